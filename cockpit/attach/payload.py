"""The Python source that is run in the target: the agent, wrapped so that nothing is noticed.

It runs on the main thread, in the namespace of ``__main__``, whose names may be anything (a script
with ``compile = torch.compile``), so builtins are taken from their module, no name is bound, and a
bare ``except`` looks none up. A child that was forked before it ran does nothing.

Where the agent does not start, the reason is left in a file that the cockpit has named
(``reason``).

What the agent imports comes from the standard library's folder alone: a json.py beside the user's
script is not run. Other threads' imports meanwhile go on as ever.

To compile the agent's source takes its interpreter 23 ms, in which no other thread of it runs; a
target of this interpreter's own version is given the compiled code instead (3 ms in all).
"""

from __future__ import annotations

import importlib.util
import marshal
from functools import lru_cache
from pathlib import Path
from typing import Literal

How = Literal["ptrace", "remote_exec", "gdb"]

_INNER = """
def leave(text):
    os = __import__("posix")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(why, flags, 0o600)
    try:
        os.write(file, (text[:400] + "\\n").encode("utf-8", "replace"))
    finally:
        os.close(file)
def start():
    namespace = {"__name__": "_cockpit_agent", "__builtins__": __builtins__}
    same = __import__("_frozen_importlib_external").MAGIC_NUMBER == magic
    if same:
        compiled = __import__("marshal").loads(bytes.fromhex(code))
    else:
        compiled = compile(source, name, "exec")
    sys, thread = __import__("sys"), __import__("_thread").get_ident()
    home = sys.modules["os"].__file__.rpartition("/")[0]
    search = sys.modules["_frozen_importlib_external"].PathFinder.find_spec
    live = [True]  # a rebinding by another thread may bring Library back: then it is to be inert
    class Library:
        def find_spec(name, path=None, target=None):
            if not live or path is not None or name in sys.builtin_module_names:
                return None
            if __import__("_thread").get_ident() != thread:
                return None
            spec = search(name, [home, home + "/lib-dynload"])
            if spec is None:
                raise ModuleNotFoundError(name, name=name)
            return spec
    sys.meta_path = [Library, *sys.meta_path]
    try:
        exec(compiled, namespace)
    finally:
        live.clear()
        sys.meta_path = [finder for finder in sys.meta_path if finder is not Library]
    if namespace["attach"](how=how) is None:
        leave(namespace["registry"]().trouble or "no reason was given")
if __import__("posix").getpid() == pid:
    try:
        start()
    except BaseException as error:
        first = (str(error).strip().splitlines() or ["no message"])[0]
        leave(type(error).__name__ + ": " + first)
"""
_NAME = "<cockpit agent>"


def agent_source() -> str:
    """The text of cockpit/agent/agent.py."""
    return (Path(__file__).resolve().parents[1] / "agent" / "agent.py").read_text("utf-8")


def wrap(source: str, inner_pid: int, how: How, reason_path: str) -> str:
    """``inner_pid`` is the pid as the process itself knows it, ``reason_path`` of ``reason``."""
    given = {
        "pid": inner_pid,
        "how": how,
        "why": reason_path,
        "name": _NAME,
        "source": source,
        "magic": importlib.util.MAGIC_NUMBER,
        "code": _compiled(source),
    }
    pairs = ", ".join(f"{name!r}: {value!a}" for name, value in given.items())
    names = f"{{{pairs}, '__builtins__': b}}"
    run = f"(lambda b: b.exec({_INNER!a}, {names}))(__import__('builtins'))"
    return f"try:\n    {run}\nexcept:\n    pass\n"


@lru_cache(maxsize=2)
def _compiled(source: str) -> str:
    """Without docstrings, as hexadecimal digits: a literal of bytes takes longer to parse."""
    return marshal.dumps(compile(source, _NAME, "exec", optimize=2, dont_inherit=True)).hex()
