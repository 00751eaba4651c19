"""Illegal access, asserts, library errors, Xids: to the line of the source that is to blame."""

from __future__ import annotations

from collections.abc import Iterator

from cockpit.flows import looks, reruns
from cockpit.flows.flow import Check, Flow, Judged, Known, Remedy


def _is_hardware(known: Known) -> bool:
    return known.cause in looks.HARDWARE


def _whose_fault(known: Known) -> Judged:
    if known.finding is None or known.cause in ("unknown", "benign"):
        return None
    if _is_hardware(known):
        return "bad", "The card or its driver, not the program."
    return "note", "The program: only its first error counts, and it has to be started again."


def _ladder(known: Known) -> Iterator[Remedy]:
    """Reruns, each of which can name the line; the engine stops at the first that does."""
    if known.cause in ("benign", "recovered"):
        return
    if known.command is not None and not _is_hardware(known):
        yield Remedy(
            "ladder",
            {},
            because="CUDA reports errors later than they happen; these reruns make it tell where.",
        )


def _edit(known: Known) -> Iterator[Remedy]:
    where = known.fact("place")
    if not isinstance(where, str) or _is_hardware(known) or known.finding is None:
        return
    code = [fix for fix in known.finding.fixes if fix.kind == "code-change"]
    suggestion = code[0].value if code else known.finding.explanation
    if known.is_located:
        because = "The line is known; what it should do, only its author knows."
    else:
        because = "It is where the error was noticed; CUDA reports late, so it may be another line."
    yield Remedy("edit", {"place": where, "suggestion": suggestion}, because=because)


def _located(known: Known) -> Iterator[Remedy]:
    """First of all, once a rerun has named the line."""
    if known.is_located:
        yield from _edit(known)


def _other_gpu(known: Known) -> Iterator[Remedy]:
    if _is_hardware(known) and len(known.snapshot.gpus) > 1:
        yield from reruns.rerun(
            known,
            title="start it on the freest other GPU",
            because="This card should be left alone until an administrator has looked at it.",
            freest_gpu=True,
        )


def _libraries(known: Known) -> Iterator[Remedy]:
    if known.cause == "foreign_libcublas":
        yield from reruns.rerun(
            known,
            title="start it again without foreign CUDA libraries",
            because="Another CUDA's cuBLAS is loaded into the process.",
            setting="library_path",
        )


FLOW = Flow(
    id="kernel-fault",
    title="Illegal access, assert or device error",
    checks=(
        Check("What failed first?", looks.diagnosed),
        Check("Where?", looks.place),
        Check("Program or hardware?", _whose_fault),
        Check("Xids?", looks.xids),
        Check("Memory of the card?", looks.memory_health),
        Check("Can it be started again?", looks.command_line),
    ),
    offers=(
        reruns.after_patch,
        _located,
        _libraries,
        _other_gpu,
        _ladder,
        _edit,
        reruns.from_diagnosis,
    ),
    good="Nothing failed on the GPU.",
    is_of_a_run=True,
)
