"""Training on the CPU by mistake: the first step from the PCI bus to a matmul that fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cockpit.flows import kills, looks, reruns
from cockpit.flows.flow import Check, Flow, Judged, Known, Remedy
from cockpit.model.text import clean

_NEEDS_BUILD = frozenset(
    {"cpu_wheel", "arch_missing", "driver_too_old", "torchvision_mismatch", "cudart_missing"}
)
_HIDDEN = frozenset({"cvd_hides_gpus", "cvd_bad_uuid", "cvd_after_init"})
_FOREIGN = frozenset({"compat_libcuda", "foreign_libcublas"})


def causes(known: Known) -> frozenset[str]:
    """Of the diagnosis, and of the steps of the checkup that do not pass."""
    return (_of_checkup(known) | {known.cause}) - {""}


def _of_checkup(known: Known) -> frozenset[str]:
    checks = known.checkup.checks if known.checkup is not None else ()
    return frozenset(one.cause for one in checks if one.status == "fail" and one.cause)


def _is_of_another_python(known: Known) -> bool:
    """The log's run had its torch, or its interpreter, elsewhere than the Python examined."""
    environment = known.fact("environment")
    if environment is None or known.checkup is None or known.checkup.subject.python is None:
        return False
    return environment not in known.checkup.subject.environments


def _is_about_another_python(known: Known) -> bool:
    """And nothing says that the Python examined is to be used from now on."""
    return known.command is None and _is_of_another_python(known)


def whose_python(known: Known) -> Judged:
    """Said only where the steps are of another Python than the log."""
    if not _is_of_another_python(known) or known.checkup is None:
        return None
    of_log, ours = clean(str(known.fact("environment"))), known.checkup.subject.python
    return "note", f"The log is of {of_log}, the steps here are of {clean(ours or '?')}."


def _process(known: Known) -> Judged:
    has_ended = known.command is not None and known.command.pid is None
    if known.request.pid is None or has_ended:
        return None
    if known.process is not None and known.process.devices:
        return "ok", f"Process {known.request.pid} holds memory on a GPU."
    run = known.run
    if run is not None and run.cuda_initialized is False:
        return "bad", f"Process {known.request.pid} has not touched CUDA."
    return "note", f"Process {known.request.pid} holds no memory on a GPU."


def _from_log(known: Known) -> Iterator[Remedy]:
    """A log may be of another machine: what it says comes before what is wrong with this one."""
    if known.is_of_log:
        yield from reruns.from_diagnosis(known)


def installs(known: Known) -> Iterator[Remedy]:
    """The build of torch that fits, where the one that is there does not, or none is. Without a
    GPU that answers none can be said to fit."""
    python = known.checkup.subject.python if known.checkup is not None else None
    if python is None or not known.snapshot.gpus or _is_about_another_python(known):
        return
    found = _of_checkup(known) if _is_of_another_python(known) else causes(known)
    if found & _NEEDS_BUILD:
        because = "The installed build cannot use this GPU."
        yield Remedy("install_torch", {"python": python}, because=because)
    elif _lacks_torch(known):
        because = "This Python has no torch yet."
        yield Remedy("install_torch", {"python": python}, because=because)


def _lacks_torch(known: Known) -> bool:
    """The interpreter starts, and the checkup knows a build for it."""
    checks = known.checkup.checks if known.checkup is not None else ()
    return any(
        check.id == "interpreter"
        and check.status == "fail"
        and any(reruns.PIP in fix.value for fix in check.fixes)
        for check in checks
    )


def _visible(known: Known) -> Iterator[Remedy]:
    if causes(known) & _HIDDEN:
        yield from reruns.rerun(
            known,
            title="start it again without CUDA_VISIBLE_DEVICES",
            because="The variable hides the GPUs from the run.",
            unset=("CUDA_VISIBLE_DEVICES",),
        )
        yield from reruns.rerun(
            known,
            title="start it again on the freest GPU",
            because="CUDA_VISIBLE_DEVICES then names a card that exists.",
            freest_gpu=True,
        )
        yield from reruns.rerun(
            known,
            title="start it again with the variable corrected",
            because="What CUDA_VISIBLE_DEVICES names wrongly is left out.",
            setting="visible_devices",
        )


def _libraries(known: Known) -> Iterator[Remedy]:
    if causes(known) & _FOREIGN:
        yield from reruns.rerun(
            known,
            title="start it again without foreign CUDA libraries",
            because="LD_LIBRARY_PATH puts another CUDA's libraries before torch's own.",
            setting="library_path",
        )


def _origins(known: Known) -> Iterator[Remedy]:
    """A run that is started again is well; the next one of a new shell has the variable again."""
    found = causes(known)
    for name, wrong in (("CUDA_VISIBLE_DEVICES", _HIDDEN), ("LD_LIBRARY_PATH", _FOREIGN)):
        if found & wrong and known.origins.get(name):
            values = {
                "title": f"Correct {name} where it is set",
                "lines": known.origins[name],
                "loses": "what else relies on it there",
                "verify": f"echo ${name} in a new shell",
            }
            because = "It comes back with every new shell."
            yield Remedy("explain", values, because=because)


def _program(known: Known) -> Iterator[Remedy]:
    if "code_uses_cpu" in causes(known):
        because = "Nothing is broken: the program itself asks for the CPU."
        yield from reruns.change(known, "device", "cuda", "ask for the GPU", because)
        because = "Model and data have to be on the same device."
        yield from reruns.patch(known, "to_device", because, on_cpu=known.is_live)


def _checkpoint(known: Known) -> Iterator[Remedy]:
    if "checkpoint_device" in causes(known):
        because = "The GPU that it was saved on is not there for this process."
        yield from reruns.patch(known, "map_location", because, cannot_load=True)


def from_checkup(known: Known) -> Iterator[Remedy]:
    """Once only; and what is advised for another Python than the log's does not help its run."""
    if _is_about_another_python(known):
        known = replace(known, checkup=None)
    told = {one.values["title"] for one in _from_log(known)}
    for one in reruns.from_checkup(known):
        if one.is_spare or one.values["title"] not in told:
            yield one


def _end_first(known: Known) -> Iterator[Remedy]:
    """A process that computes on the CPU goes on there, whatever is changed."""
    if causes(known) and known.command is not None:
        yield from kills.job(
            known, "It goes on on the CPU: a change counts from the next start on."
        )


FLOW = Flow(
    id="no-cuda",
    title="Training on the CPU, or CUDA is not available",
    checks=(
        Check("What does the diagnosis say?", looks.diagnosed),
        Check("Where?", looks.place),
        Check("Is the process on a GPU?", _process),
        Check("Can it be started again?", looks.command_line),
        Check("Does the driver answer?", looks.driver),
        Check("Whose Python?", whose_python),
        looks.checkup,
    ),
    offers=(
        reruns.after_patch,
        _program,
        _checkpoint,
        _visible,
        _libraries,
        _origins,
        _from_log,
        installs,
        _end_first,
        from_checkup,
        reruns.from_driver,
    ),
    needs=frozenset({"command", "checkup", "origins"}),
    good=looks.works,
)
