"""The changes that guided fixes make to a run before it is started again, each with its title.

``Relaunch(command=…, records=…, **changes.fields())`` is the action. None: this change does not
apply to this run, or it is not known how its program takes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cockpit.act.command_change import Change, change, halve_batch
from cockpit.act.command_environment import assigned
from cockpit.act.command_table import Meaning
from cockpit.act.freest_gpu import visible_devices
from cockpit.act.library_path import folders, kept
from cockpit.act.run_variables import allocator_setting, variable
from cockpit.act.script_files import ScriptFacts
from cockpit.model.gpu import Gpu
from cockpit.model.run_command import RunCommand
from cockpit.model.snapshot import Snapshot
from cockpit.model.text import clean, plural

_NOTHING = ScriptFacts()


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs from the old run."""

    title: str
    argv: tuple[str, ...] | None = None
    set_environment: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def fields(self) -> dict[str, Any]:
        """As Relaunch takes them."""
        return {name: getattr(self, name) for name in self.__slots__}


def halve(
    command: RunCommand, script: ScriptFacts = _NOTHING, of: Meaning = "batch"
) -> Changes | None:
    """Half the batch, and twice the accumulation where that is known."""
    done = halve_batch(command.argv, script.declared, script.framework, of)
    return _of_change(done)


def set_argument(
    command: RunCommand, meaning: Meaning, value: str, script: ScriptFacts = _NOTHING
) -> Changes | None:
    """See ``command_change.change`` for the values."""
    return _of_change(change(command.argv, meaning, value, script.declared, script.framework))


def set_variable(command: RunCommand, id_: str) -> Changes | None:
    """One of ``run_variables.VARIABLES``; None: it is set so already. Raises KeyError."""
    known = variable(id_)
    if id_ == "expandable_segments":
        return allocator(command, known.value)
    if environment(command).get(known.name) == known.value:
        return None
    title = f"with {known.name}={known.value}"
    return Changes(title, set_environment={known.name: known.value}, notes=(_costs(id_),))


def allocator(command: RunCommand, setting: str) -> Changes | None:
    """Adds ``expandable_segments:True`` or the like to the allocator's variable of this torch."""
    before = environment(command)
    name, value = allocator_setting(before, setting, command.torch_version)
    if before.get(name) == value:
        return None
    note = _costs("expandable_segments")
    notes = (note,) if setting.startswith("expandable_segments") else ()
    return Changes(f"with {setting}", set_environment={name: value}, notes=notes)


def on_gpu(command: RunCommand, gpu: Gpu, snapshot: Snapshot) -> Changes:
    """Only that GPU is visible to the new run."""
    value = visible_devices(gpu, snapshot, environment(command))
    name = clean(gpu.name or "GPU")
    title = f"on GPU {gpu.index} ({name})"
    return Changes(title, set_environment={"CUDA_VISIBLE_DEVICES": value})


def without_foreign_libraries(command: RunCommand) -> Changes | None:
    """LD_LIBRARY_PATH without entries that hold another CUDA's libraries. Reads the folders."""
    path = environment(command).get("LD_LIBRARY_PATH", "")
    if not path or command.container is not None:  # a container's folders are not these
        return None
    found = folders(path, command.prefix, command.cwd)
    gone = [one for one in found if one.foreign is not None]
    count = sum(bool(one.libraries) for one in gone)
    if not count:
        return None
    title = f"without {plural(count, 'folder')} of another CUDA in LD_LIBRARY_PATH"
    notes = tuple(clean(f"without {one.path or 'an empty entry'}: {one.foreign}") for one in gone)
    rest = kept(found)
    if rest is None:
        return Changes(title, unset=("LD_LIBRARY_PATH",), notes=notes)
    return Changes(title, set_environment={"LD_LIBRARY_PATH": rest}, notes=notes)


def environment(command: RunCommand) -> dict[str, str]:
    """What its program sees: what the command sets itself comes last."""
    return {**command.environment, **assigned(command.argv)}


def _of_change(done: Change | None) -> Changes | None:
    if done is None:
        return None
    words = [_phrase(edit.name, edit.before, edit.after) for edit in done.edits]
    return Changes(", ".join(words), argv=done.argv, notes=done.notes)


def _phrase(name: str, before: str | None, after: str | None) -> str:
    """``--batch-size 16 instead of 32``, ``with --bf16``, ``without --compile``."""
    shown = clean(name)
    if after is None:
        return f"without {shown}"
    if after == "set":
        return f"with {shown}"
    return f"{shown} {clean(after)}" + (f" instead of {clean(before)}" if before else "")


def _costs(id_: str) -> str:
    known = variable(id_)
    return f"{known.name}: {known.does} It costs {known.costs}."
