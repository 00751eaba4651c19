"""The Python source that is run in the target: the agent, wrapped so that nothing is noticed.

It runs on the main thread, in the namespace of ``__main__``, whose names may be anything (a script
with ``compile = torch.compile``), so builtins are taken from their module, no name is bound, and a
bare ``except`` looks none up. A child that was forked before it ran does nothing.

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

How = Literal["ptrace", "remote_exec"]

_INNER = """
if __import__("os").getpid() == pid:
    namespace = {"__name__": "_cockpit_agent", "__builtins__": __builtins__}
    same = __import__("_frozen_importlib_external").MAGIC_NUMBER == magic
    if same:
        code = __import__("marshal").loads(bytes.fromhex(code))
    else:
        code = compile(source, name, "exec")
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
        exec(code, namespace)
    finally:
        live.clear()
        sys.meta_path = [finder for finder in sys.meta_path if finder is not Library]
    namespace["attach"](how=how)
"""
_NAME = "<cockpit agent>"


def agent_source() -> str:
    """The text of cockpit/agent/agent.py."""
    return (Path(__file__).resolve().parents[1] / "agent" / "agent.py").read_text("utf-8")


def wrap(source: str, inner_pid: int, how: How) -> str:
    """``inner_pid`` is the pid as the process itself knows it."""
    given = {
        "pid": inner_pid,
        "how": how,
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
