"""A start of the flow's run with one thing changed: from a flow's values to a Relaunch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cockpit.act.command_change import Change, change, halve_batch
from cockpit.act.freest_gpu import freest_gpu, visible_devices
from cockpit.act.relaunch import Relaunch
from cockpit.act.run_variables import allocator_setting, variable, without_foreign_cuda
from cockpit.act.script_files import read_script
from cockpit.engine.run_looks import RunLooks, measure
from cockpit.flows.flow import Known
from cockpit.model.run_command import RunCommand

HANG_DIAGNOSTICS = (
    *("nccl_debug", "distributed_debug", "flight_recorder", "flight_recorder_old"),
    *("dump_on_timeout", "cpp_stacks"),
)
Environment = tuple[dict[str, str], tuple[str, ...]]
"""What is set, and what is taken away."""


def relaunch(values: Mapping[str, Any], known: Known) -> Relaunch | None:
    """None: the command has no such argument, or nothing would change that was to."""
    command = known.command
    if command is None:
        return None
    changed = _changed_argv(values, command)
    if changed is None and ("change" in values or values.get("halve_batch")):
        return None
    environment = _environment(values, command, known)
    if environment is None:
        return None
    return Relaunch(
        command=command,
        records=RunLooks(),
        set_environment=environment[0],
        unset=environment[1],
        argv=changed.argv if changed else None,
        notes=changed.notes if changed else (),
        title=values["title"],
        before=measure(command.directory, known.run),
    )


def _changed_argv(values: Mapping[str, Any], command: RunCommand) -> Change | None:
    wanted = values.get("change")
    if wanted is None and not values.get("halve_batch"):
        return None
    script = read_script(command.argv, command.cwd)
    if wanted is None:
        return halve_batch(command.argv, script.declared, script.framework)
    meaning, value = wanted
    return change(command.argv, meaning, value, script.declared, script.framework)


def _environment(
    values: Mapping[str, Any], command: RunCommand, known: Known
) -> Environment | None:
    set_ = dict(values.get("environment") or ())
    unset: tuple[str, ...] = tuple(values.get("unset") or ())
    if values.get("setting"):
        found = setting(values["setting"], command)
        if found is None:
            return None
        set_ |= found[0]
        unset += found[1]
    if values.get("freest_gpu"):
        but = () if known.gpu is None else (known.gpu,)
        gpu = freest_gpu(known.snapshot, except_gpus=but if len(known.snapshot.gpus) > 1 else ())
        if gpu is None:
            return None
        set_["CUDA_VISIBLE_DEVICES"] = visible_devices(gpu, known.snapshot, command.environment)
    return set_, unset


def setting(name: str, command: RunCommand) -> Environment | None:
    """A named change of the environment; None: it would change nothing."""
    if name == "expandable_segments":
        changed = allocator_setting(
            command.environment, "expandable_segments:True", command.torch_version
        )
        return dict([changed]), ()
    if name == "library_path":
        return _library_path(command)
    ids = HANG_DIAGNOSTICS if name == "hang_diagnostics" else (name,)
    rows = [variable(one) for one in ids]
    set_ = {one.name: one.value for one in rows if one.value is not None}
    return set_, tuple(one.name for one in rows if one.value is None)


def _library_path(command: RunCommand) -> Environment | None:
    path, gone = without_foreign_cuda(command.environment.get("LD_LIBRARY_PATH", ""))
    if not gone:
        return None
    return ({}, ("LD_LIBRARY_PATH",)) if path is None else ({"LD_LIBRARY_PATH": path}, ())
