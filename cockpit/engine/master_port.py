"""Another port for the ranks of a job to meet at: where its command, or its launcher, takes it."""

from __future__ import annotations

import re
import socket

from cockpit.act.command_environment import assigned
from cockpit.act.command_words import NotUnderstoodError, Program, find_program
from cockpit.act.relaunch_changes import Changes
from cockpit.model.run_command import RunCommand

_OPTIONS = {
    "torchrun": "--master-port",
    "accelerate": "--main_process_port",
    "deepspeed": "--master_port",
}
"""Launchers with a port of their own, which they hand to their ranks in MASTER_PORT."""
_PORT = re.compile(r"--(?:master|main_process)[-_]port(?:=(\d+))?")
_ENDPOINT = re.compile(r"(--rdzv[-_]endpoint=)?([^=]*:)\d+")
_NODES = re.compile(r"--(?:nnodes|num_nodes|num_machines)(?:=(.*))?")


def other_port(command: RunCommand, port: int | None = None) -> Changes | None:
    """None: a shell's string, or a job on several machines, which all have to be told the same.

    ``port``: else one that nobody listens on now.
    """
    try:
        program = find_program(command.argv)
    except NotUnderstoodError:
        return None
    if program.shell_at is not None or _is_of_several_nodes(program):
        return None
    new = str(port or free_port())
    argv = _replaced(program, new) or _added(program, new)
    if argv is not None:
        return Changes(f"with master port {new}", argv=argv)
    if "MASTER_PORT" in assigned(command.argv) or "MASTER_PORT" in command.environment:
        return Changes(f"with MASTER_PORT={new}", set_environment={"MASTER_PORT": new})
    return None


def free_port() -> int:
    """Of this host, now: the kernel chooses."""
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])


def _own_words(program: Program) -> list[int]:
    """Indices of the launchers' options and of the program's own."""
    own = [n for _, begin, end in program.options for n in range(begin, end)]
    return [*own, *range(program.arguments_at, len(program.words))]


def _is_of_several_nodes(program: Program) -> bool:
    words = program.words
    for n in _own_words(program):
        found = _NODES.fullmatch(words[n])
        if found is not None:
            value = found[1] or (words[n + 1] if n + 1 < len(words) else "")
            return value not in ("1", "1:1")
    return False


def _replaced(program: Program, port: str) -> tuple[str, ...] | None:
    """The port that the command names already."""
    words = list(program.words)
    for n in _own_words(program):
        found = _PORT.fullmatch(words[n])
        if found is not None and found[1]:
            words[n] = words[n].replace(f"={found[1]}", f"={port}")
            return tuple(words)
        before = words[n - 1] if n else ""
        if before and _PORT.fullmatch(before) and "=" not in before and words[n].isdigit():
            words[n] = port
            return tuple(words)
        endpoint = _ENDPOINT.fullmatch(words[n])
        if endpoint is not None and (endpoint[1] or before.replace("_", "-") == "--rdzv-endpoint"):
            words[n] = f"{endpoint[1] or ''}{endpoint[2]}{port}"
            return tuple(words)
    return None


def _added(program: Program, port: str) -> tuple[str, ...] | None:
    for name, begin, _ in program.options:
        if name in _OPTIONS:
            words = program.words
            return (*words[:begin], f"{_OPTIONS[name]}={port}", *words[begin:])
    return None
