"""A start of the flow's run with one thing changed: from a flow's values to a Relaunch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from cockpit.act import relaunch_changes as changes
from cockpit.act.freest_gpu import freest_gpu
from cockpit.act.help_options import AskHelp, may_ask
from cockpit.act.relaunch import Relaunch
from cockpit.act.relaunch_changes import Changes
from cockpit.act.relaunch_check import Terms
from cockpit.act.script_files import ScriptFacts, read_script
from cockpit.act.script_options import declared_in_help
from cockpit.collect.driver_files import known_gpus
from cockpit.diagnose.visible_devices import Device, advise
from cockpit.engine.master_port import other_port
from cockpit.engine.run_looks import RunLooks, failure_of, measure
from cockpit.flows.flow import Known
from cockpit.model.run_command import RunCommand, RunMeasure
from cockpit.model.text import clean

HANG_DIAGNOSTICS = (
    *("nccl_debug", "flight_recorder", "flight_recorder_old"),
    *("dump_on_timeout", "cpp_stacks"),
)
"""Without TORCH_DISTRIBUTED_DEBUG: its check waits before each collective, so that the call in
which the ranks hang is never recorded (seen with torch 2.13)."""


def relaunch(values: Mapping[str, Any], known: Known) -> Relaunch | None:
    """None: the command has no such argument, or nothing would change that was to."""
    command = known.command
    if command is None:
        return None
    change = _change(values, command, known)
    if change is None:
        return None
    notes = (*change.notes, f"changed: {change.title}") if change.title else change.notes
    flow = known.request.flow
    terms = Terms(faster=flow == "slow", hangs=flow == "multi-gpu")
    return start(known, command, change, title=values["title"], notes=notes, terms=terms)


def start(
    known: Known,
    command: RunCommand,
    change: Changes,
    *,
    title: str,
    notes: tuple[str, ...] = (),
    terms: Terms | None = None,
    is_probe: bool = False,
) -> Relaunch:
    """The Action."""
    fields = change.fields() | {"title": title, "notes": notes}
    return Relaunch(
        command=command,
        records=RunLooks(),
        before=_before(known, command, is_probe),
        terms=terms or Terms(),
        is_probe=is_probe,
        **fields,
    )


def _before(known: Known, command: RunCommand, is_probe: bool) -> RunMeasure:
    """How it went; that it was ended in this flow is no failure of the run.

    A probe fails otherwise by design: on the CPU an index error, not an assert of the device.
    """
    before = known.before or measure(command.directory, known.run)
    if known.finding is not None and not known.is_live and not is_probe:
        before = replace(before, family=failure_of(known.finding)[0])
    if any(one.is_step and one.verified for one in known.done):
        return replace(before, exit_status=None, signal=None)
    return before


def _change(values: Mapping[str, Any], command: RunCommand, known: Known) -> Changes | None:
    if values.get("halve"):
        return changes.halve(command, script_of(command, known), values["halve"])
    if "change" in values:
        meaning, value = values["change"]
        return changes.set_argument(command, meaning, value, script_of(command, known))
    if values.get("setting") == "visible_devices":
        return _corrected(command, known)
    if values.get("setting"):
        return setting(values["setting"], command)
    if values.get("freest_gpu"):
        return _freest(command, known)
    unset = tuple(name for name in values["unset"] if name in command.environment)
    if values["unset"] and not unset:
        return None
    return Changes("", set_environment=dict(values["environment"]), unset=unset)


def script_of(command: RunCommand, known: Known) -> ScriptFacts:
    """By its source, and by what it answered to ``--help``."""
    found = read_script(command.argv, command.cwd)
    return found._replace(declared=(*found.declared, *declared_in_help(known.request.help)))


def ask_help(values: Mapping[str, Any], known: Known) -> AskHelp | None:
    """None: it was asked, it is known without asking, or it would not answer but train."""
    command = known.command
    if command is None or known.request.help:
        return None
    meaning = values["meaning"]
    may = may_ask(command, meaning, script_of(command, known))
    return AskHelp(command, meaning) if may else None


def _freest(command: RunCommand, known: Known) -> Changes | None:
    """Another card than the one that the flow is about, where there is another."""
    but = () if known.gpu is None or len(known.snapshot.gpus) < 2 else (known.gpu,)
    gpu = freest_gpu(known.snapshot, except_gpus=but)
    return None if gpu is None else changes.on_gpu(command, gpu, known.snapshot)


def _corrected(command: RunCommand, known: Known) -> Changes | None:
    """CUDA_VISIBLE_DEVICES without what it names wrongly; None: nothing would be left of it."""
    name = "CUDA_VISIBLE_DEVICES"
    before = changes.environment(command).get(name)
    if len(known_gpus()) > len(known.snapshot.gpus):  # --only: the others are there all the same
        return None
    devices = [
        Device(gpu.index, gpu.uuid or "", tuple(one.uuid or "" for one in gpu.mig_instances))
        for gpu in known.snapshot.gpus
    ]
    advice = advise(before, devices, slurm=command.slurm_job is not None)
    if advice.problem is None or advice.value in (None, before):
        return None
    if advise(advice.value, devices).problem is not None:
        return None
    return Changes(
        f"with {name}={clean(advice.value)}",
        set_environment={name: advice.value},
        notes=(clean(advice.problem),),
    )


def setting(name: str, command: RunCommand) -> Changes | None:
    """A named change of the environment; None: it is so already."""
    if name == "master_port":
        return other_port(command)
    if name == "library_path":
        return changes.without_foreign_libraries(command)
    if name == "hang_diagnostics":
        return variables(command, "for a hang that tells more", *HANG_DIAGNOSTICS)
    return changes.set_variable(command, name)


def variables(command: RunCommand, title: str, *ids: str) -> Changes:
    """Several at once; those that are set so already are left as they are."""
    rows = [one for id_ in ids if (one := changes.set_variable(command, id_)) is not None]
    set_ = {name: value for one in rows for name, value in one.set_environment.items()}
    return Changes(title, set_environment=set_)
