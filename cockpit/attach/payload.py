"""The Python source that is run in the target: the agent, wrapped so that nothing is noticed.

It runs on the main thread, in the namespace of ``__main__``, whose names may be anything (a script
with ``compile = torch.compile``), so builtins are taken from their module, no name is bound, and a
bare ``except`` looks none up. A child that was forked before it ran does nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

How = Literal["ptrace", "remote_exec"]

_INNER = """
if __import__("os").getpid() == pid:
    namespace = {"__name__": "_cockpit_agent", "__builtins__": __builtins__}
    exec(compile(source, "<cockpit agent>", "exec"), namespace)
    namespace["attach"](how=how)
"""


def agent_source() -> str:
    """The text of cockpit/agent/agent.py."""
    return (Path(__file__).resolve().parents[1] / "agent" / "agent.py").read_text("utf-8")


def wrap(source: str, inner_pid: int, how: How) -> str:
    """``inner_pid`` is the pid as the process itself knows it."""
    names = f"{{'pid': {inner_pid}, 'how': {how!r}, 'source': {source!a}, '__builtins__': b}}"
    run = f"(lambda b: b.exec({_INNER!a}, {names}))(__import__('builtins'))"
    return f"try:\n    {run}\nexcept:\n    pass\n"
