"""The ladder of reruns that makes CUDA tell where an error happened.

Each rung starts the run again in another way and diagnoses its output; the first one whose
traceback names a line of the user's own ends the ladder. Nothing is changed by it.
"""

from __future__ import annotations

import io
import os
import shutil
from dataclasses import dataclass, replace

from cockpit import diagnose
from cockpit.act import gpu_core
from cockpit.act.action import Console
from cockpit.act.freest_gpu import freest_gpu
from cockpit.act.relaunch import Relaunch
from cockpit.act.relaunch_changes import Changes, environment, on_gpu, set_argument
from cockpit.act.relaunch_check import Terms
from cockpit.attach import run_record
from cockpit.diagnose.devices import resolve
from cockpit.engine import relaunches
from cockpit.engine.relaunches import variables
from cockpit.errors import TargetGoneError
from cockpit.flows.flow import Known
from cockpit.model.finding import Finding
from cockpit.model.remedy import Compared, Outcome, Preview
from cockpit.model.run_command import RunCommand
from cockpit.model.text import clean

PATIENCE_S = 900.0
SANITIZER = "compute-sanitizer"
_PLACES = ("/usr/local/cuda/bin", "/opt/nvidia/compute-sanitizer")


@dataclass(frozen=True)
class Rung:
    """One way to run it again."""

    title: str
    start: Relaunch
    if_it_runs: str
    """What it means when this one does not fail."""


@dataclass(frozen=True)
class Ladder:
    """An Action: all rungs under one confirmation, with every command shown before."""

    rungs: tuple[Rung, ...]

    @classmethod
    def of(cls, known: Known) -> Ladder | None:
        """Those rungs that this machine and this command have."""
        command = known.command
        if command is None:
            return None
        found = (_blocking, _eager, _on_cpu, _other_gpu, _dumped, _sanitized)
        rungs = tuple(rung for make in found if (rung := make(command, known)) is not None)
        return cls(rungs)

    def preview(self) -> Preview:
        """Every command, in order."""
        previews = [(rung, rung.start.preview()) for rung in self.rungs]
        refusal = next((one.refusal for _, one in previews if one.refusal), None)
        lines = [line for rung, one in previews for line in (f"# {rung.title}", *(one.lines[:1]))]
        return Preview(
            title=f"run it again in up to {len(self.rungs)} ways, until one names the line",
            form="command",
            lines=tuple(lines),
            risk="confirm",
            loses="time: each of them runs up to the failure, some much slower",
            verify="a traceback that ends at a line of your own source",
            refusal=refusal,
        )

    def run(self, console: Console) -> Outcome:
        """Up to the first rung that names a line, or that does not fail."""
        seen: list[Compared] = []
        last: Outcome | None = None
        dump = ""
        for number, rung in enumerate(self.rungs, 1):
            if console.cancelled.is_set():
                break
            console.say(f"{number} of {len(self.rungs)}: {rung.title}")
            last = rung.start.run(console)
            finding = _diagnosed(last.path)
            seen.append(Compared(what=rung.title, before="failed", after=_word(last, finding)))
            dump = _dump_words(last.path) or dump
            if not last.ok:
                return last  # it holds the GPU still: what comes next would prove nothing
            if last.verified:
                return _told(last, seen, f"{rung.title}: it runs. {rung.if_it_runs}")
            place = _place(finding)
            if finding is not None and place is not None:
                words = f"{clean(place)}: {clean(finding.title)} ({rung.title})."
                return _told(last, seen, words)
        if last is None:
            return Outcome(ok=True, sentence="Nothing was run.")
        sentence = f"No rerun named a line of your own. {dump}".rstrip()
        return Outcome(ok=True, sentence=sentence, compared=tuple(seen))


def _told(last: Outcome, seen: list[Compared], sentence: str) -> Outcome:
    """Located is not repaired: whether a change helps, the next run shows."""
    return Outcome(
        ok=True, sentence=sentence, compared=tuple(seen), output=last.output, path=last.path
    )


def _word(outcome: Outcome, finding: Finding | None) -> str:
    if outcome.verified:
        return "runs"
    if outcome.verified is None:
        return "not decided"
    return f"fails: {finding.cause}" if finding is not None else "fails"


def _diagnosed(path: str | None) -> Finding | None:
    if path is None:
        return None
    try:
        output = run_record.load_run(path).output()
    except TargetGoneError:
        return None
    return diagnose.diagnose_rerun(io.BytesIO("\n".join(output).encode(errors="replace")))


def _place(finding: Finding | None) -> str | None:
    if finding is None or finding.flow != "kernel-fault":  # it failed of something else
        return None
    place = finding.facts.get("place")
    return place if isinstance(place, str) else None


# -- the rungs


def _start(known: Known, command: RunCommand, change: Changes) -> Relaunch:
    terms = Terms(patience_s=PATIENCE_S)
    return relaunches.start(known, command, change, title=change.title, terms=terms, is_probe=True)


def _blocking(command: RunCommand, known: Known) -> Rung:
    change = variables(command, "every kernel waited for", "launch_blocking")
    return Rung(
        "every kernel waited for (CUDA_LAUNCH_BLOCKING=1)",
        _start(known, command, change),
        "It did not come again: the order in time may matter (a race between streams, memory used "
        "after it was freed), or its data differ from run to run.",
    )


def _eager(command: RunCommand, known: Known) -> Rung | None:
    """Without torch.compile, where the run may use it."""
    script = relaunches.script_of(command, known)
    options = [name for one in script.declared for name in one.names]
    if not any("compile" in word for word in (*command.argv, *options)):
        return None
    change = variables(command, "without torch.compile", "no_dynamo", "launch_blocking")
    return Rung(
        "without torch.compile",
        _start(known, command, change),
        "A compiled kernel is at fault: leave torch.compile off, and report it.",
    )


def _on_cpu(command: RunCommand, known: Known) -> Rung:
    """The CPU checks every index and says which; the GPU is hidden from a program that asks."""
    script = relaunches.script_of(command, known)
    changed = set_argument(command, "device", "cpu", script)
    hidden = {"CUDA_VISIBLE_DEVICES": ""}
    change = Changes("on the CPU", changed.argv if changed else None, hidden)
    return Rung(
        "on the CPU",
        _start(known, command, change),
        "Only the GPU code is at fault, not the numbers that it is given.",
    )


def _other_gpu(command: RunCommand, known: Known) -> Rung | None:
    used = known.gpu if known.gpu is not None else _first_visible(command, known)
    if len(known.snapshot.gpus) < 2 or used is None:
        return None
    gpu = freest_gpu(known.snapshot, except_gpus=(used,))
    if gpu is None:
        return None
    return Rung(
        f"on GPU {gpu.index}",
        _start(known, command, on_gpu(command, gpu, known.snapshot)),
        f"GPU {used} is suspect: let an administrator run a diagnosis on it.",
    )


def _first_visible(command: RunCommand, known: Known) -> int | None:
    """The card that a program takes which chooses none."""
    value = environment(command).get("CUDA_VISIBLE_DEVICES")
    return next(iter(resolve(value, known.snapshot.gpus).gpus), None)


def _dumped(command: RunCommand, known: Known) -> Rung | None:
    """Of a kernel that no line of Python tells apart; inside a container nobody would find it."""
    if command.container is not None:
        return None
    change = variables(command, "with a GPU core dump", "launch_blocking")
    return Rung(
        "with a GPU core dump",
        replace(_start(known, command, change), options=("--coredump",)),
        "Without an exception there is no dump.",
    )


def _dump_words(directory: str | None) -> str:
    """Where the dump is and what it says; empty: there is none."""
    path = gpu_core.newest(directory) if directory is not None else None
    if path is None:
        return ""
    failed = gpu_core.failure(path)
    what = f"The GPU core dump says: {failed}." if failed else "There is a GPU core dump."
    return f"{what} Look into it: {gpu_core.by_hand(path)}"


def _sanitized(command: RunCommand, known: Known) -> Rung | None:
    path = os.pathsep.join((os.environ.get("PATH", ""), *_PLACES))
    program = shutil.which(SANITIZER, path=path)
    if program is None:
        return None
    argv = (program, "--tool", "memcheck", "--target-processes", "all", *command.argv)
    change = replace(
        variables(command, "under compute-sanitizer", "no_caching", "launch_blocking"), argv=argv
    )
    return Rung(
        "under compute-sanitizer (10 to 100 times slower)",
        _start(known, command, change),
        "memcheck found nothing.",
    )
