"""A run inside a container, seen from outside: started again by ``docker exec``, or explained.

Only docker and podman, and only through their own command line: whoever may use that may enter the
container. A run that was the container's first process ended the container with it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cockpit.act.quoting import shell_line
from cockpit.model.run_command import RunCommand
from cockpit.model.text import clean

ANSWER_LIMIT_S = 5.0
_ENGINES = ("docker", "podman")


class Entry(NamedTuple):
    """How to get in."""

    command: tuple[str, ...]
    """To be run outside."""
    refusal: str | None = None
    advice: tuple[str, ...] = ()
    """What to type instead."""


def enter(
    run: RunCommand, argv: Sequence[str], set_: Mapping[str, str], mark: str | None = None
) -> Entry:
    """``docker exec -w DIR -e VAR=… -u UID ID CMD``. Asks the engine; changes nothing.

    ``mark``: ``NAME=value`` that the program has inside, too, so that it can be ended from here.
    """
    engine, _, identity = (run.container or "").partition(":")
    command = (
        engine,
        "exec",
        *(("-w", run.cwd) if run.cwd else ()),
        *(word for name, value in set_.items() for word in ("-e", f"{name}={value}")),
        *(("-e", mark) if mark else ()),
        *("-u", str(run.uid)),
        identity,
        *argv,
    )
    if engine not in _ENGINES:
        return Entry(command, _elsewhere(engine), _advice(engine, argv, set_))
    if shutil.which(engine) is None:
        sentence = f"The run is in a container, and there is no {engine} command here."
        return Entry(command, sentence, _advice(engine, argv, set_))
    state = _inspect(engine, identity)
    if run.inner_pid == 1 or state == "false":
        sentence = "The container ends with this run, its first process: start a new container."
        return Entry(command, sentence, _advice(engine, argv, set_, _image(engine, identity)))
    if state != "true":
        sentence = f"The run is in a container, and {engine} does not show it to you: {state}"
        return Entry(command, sentence, _advice(engine, argv, set_))
    return Entry(command)


def _elsewhere(engine: str) -> str:
    name = clean(engine)
    return f"The run is in a container of {name}: start it again with the tool that started it."


def _advice(
    engine: str, argv: Sequence[str], set_: Mapping[str, str], image: str = "IMAGE"
) -> tuple[str, ...]:
    """With the NVIDIA Container Toolkit: ``--gpus`` hands the GPUs in, ``--nv`` for Apptainer."""
    if engine == "apptainer":
        inner = {f"APPTAINERENV_{name}": value for name, value in set_.items()}
        return (shell_line(("apptainer", "exec", "--nv", image, *argv), environment=inner),)
    variables = [word for name, value in set_.items() for word in ("-e", f"{name}={value}")]
    program = engine if engine in _ENGINES else "docker"
    gpus = ("--device", "nvidia.com/gpu=all") if program == "podman" else ("--gpus", "all")
    words = (program, "run", "--rm", *gpus, "--ipc=host", *variables, image, *argv)
    return (shell_line(words),)


def _inspect(engine: str, identity: str) -> str:
    """``true``, ``false``, or the engine's words why it cannot tell."""
    return _ask(engine, identity, "{{.State.Running}}")


def _image(engine: str, identity: str) -> str:
    answer = _ask(engine, identity, "{{.Config.Image}}")
    return answer if answer and " " not in answer else "IMAGE"


def _ask(engine: str, identity: str, form: str) -> str:
    command = [engine, "inspect", "--type", "container", "-f", form, identity]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {ANSWER_LIMIT_S:.0f} s"
    except OSError as error:
        return str(error.strerror or error)
    if done.returncode == 0:
        return clean(done.stdout.strip())
    lines = done.stderr.strip().splitlines()
    return clean(lines[-1]) if lines else f"status {done.returncode}"
