"""From a Remedy (a kind and values, as flows have it) to the Action that does it.

Everything that touches this host is made for a live machine only.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from cockpit.act.action import Action, Console
from cockpit.act.admin import AdminStep
from cockpit.act.editor import EditByHand
from cockpit.act.environment import InstallTorch
from cockpit.act.environment_undo import undo as undo_installation
from cockpit.act.in_process import InRun, KillProcesses, undo_setting
from cockpit.act.patch import undo as undo_patch
from cockpit.act.relaunch import Relaunch
from cockpit.act.suggest import locate, suggest_first
from cockpit.diagnose.wheels import fitting_build
from cockpit.engine.first_step import FirstStep
from cockpit.engine.ladder import Ladder
from cockpit.engine.machine import Machine, Say
from cockpit.engine.relaunches import relaunch
from cockpit.errors import CockpitError, UsageError
from cockpit.flows.flow import Known, Remedy
from cockpit.model.action import KillPlan, KillRequest, KillResult, Target
from cockpit.model.memory import RunRequest
from cockpit.model.remedy import Outcome, Preview, UndoRecord

JOURNALLED_BY_MACHINE = frozenset({"kill", "operation", "free_frames", "attach"})
"""Kinds whose lines the machine writes itself: those that the TUI and the shell have as well."""
ON_ANY_MACHINE = frozenset({"kill", "operation", "attach", "explain"})
"""Kinds that a demo has, too: they end in the machine's own actions."""
_SHELL_ONLY = frozenset("<>|;&$`*#(")
"""A line with one of these is for a person to read, not for exec."""


def build(remedy: Remedy, known: Known, machine: Machine) -> Action | None:
    """None: it does not apply here (no such argument, no certain place, a demo)."""
    if machine.source != "live" and remedy.kind not in ON_ANY_MACHINE:
        return None
    return _BUILDERS[remedy.kind](remedy.values, known, machine)


def edited(
    action: Action,
    command: tuple[str, ...],
    where: Literal["background", "tmux", "terminal"] | None,
) -> Action | None:
    """The same start with the user's own words or in another place; None: it is no start."""
    if not isinstance(action, Relaunch):
        return None
    return replace(action, argv=command or action.argv, where=where or action.where)


def undo(record: UndoRecord, machine: Machine, console: Console) -> Outcome:
    """Takes back what a fix did. A failure is an Outcome as well."""
    try:
        if record.kind == "setting":
            return undo_setting(machine.do_in_run)(record, console)
        if record.kind in _UNDOS:
            return _UNDOS[record.kind](record, console)
    except CockpitError as error:
        return Outcome(ok=False, sentence=str(error))
    return Outcome(ok=False, sentence=f"Nobody knows how to take back a `{record.kind}`.")


_UNDOS: dict[str, Callable[[UndoRecord, Console], Outcome]] = {
    "patch": undo_patch,
    "pip": undo_installation,
}


class _Kills:
    """The machine's own kill, in the shape that the Action wants."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def plan(self, request: KillRequest) -> KillPlan:
        """Changes nothing."""
        return self._machine.plan_kill(request)

    def run(self, plan_id: str, typed: str | None, say: Say) -> tuple[KillResult, ...]:
        """Signals, waits, proves."""
        return self._machine.run_kill(plan_id, typed, say)


def _kill(values: Mapping[str, Any], known: Known, machine: Machine) -> Action:
    targets = tuple(Target(pid=pid, start_ticks=ticks) for pid, ticks in values["targets"])
    request = KillRequest(targets=targets, signal=values["signal"], job=values["job"])
    return KillProcesses(_Kills(machine), request)


def _operation(values: Mapping[str, Any], known: Known, machine: Machine) -> Action:
    return InRun(RunRequest(**values), machine.do_in_run)


@dataclass(frozen=True)
class _Attach:
    """A look inside the run, from now on."""

    machine: Machine
    pid: int
    start_ticks: int | None

    def preview(self) -> Preview:
        """The machine's own plan."""
        plan = self.machine.attach_plan(self.pid, self.start_ticks)
        sentence = plan.sentence.removesuffix(" [y/N]")
        return Preview(
            title=f"attach to {self.pid}",
            form="operation",
            lines=(sentence,),
            risk="confirm",
            loses="nothing; its main thread is stopped for some milliseconds",
            verify="the agent answers",
            undo=f"cockpit detach {self.pid}",
            refusal=sentence if plan.way is None else None,
        )

    def run(self, console: Console) -> Outcome:
        """Raises CockpitError."""
        told = self.machine.run_attach(self.pid, self.start_ticks, console.say)
        return Outcome(ok=told.ok, sentence=told.sentence)


def _attach(values: Mapping[str, Any], known: Known, machine: Machine) -> Action:
    return _Attach(machine, values["pid"], values["start_ticks"])


def _relaunch(values: Mapping[str, Any], known: Known, machine: Machine) -> Action | None:
    return relaunch(values, known)


def _patch(values: Mapping[str, Any], known: Known, machine: Machine) -> Action | None:
    frames = known.fact("frames") or [values["place"]]
    places = locate(frames, known.command.cwd if known.command else known.request.cwd)
    return suggest_first(values["kind"], places, dict(values["facts"]))


def _edit(values: Mapping[str, Any], known: Known, machine: Machine) -> Action | None:
    places = locate(values["place"], known.command.cwd if known.command else known.request.cwd)
    if not places:
        return None
    file, line = places[0]
    words = (str(values["suggestion"]),)
    return EditByHand(file, line, words, f"open {os.path.basename(file)} at line {line}")


def _install_torch(values: Mapping[str, Any], known: Known, machine: Machine) -> Action | None:
    python = values["python"]
    gpus = [one for one in known.snapshot.gpus if one.compute_capability]
    driver = known.snapshot.driver
    choice = fitting_build(
        tuple(one.compute_capability for one in gpus if one.compute_capability),
        driver.version,
        driver.cuda_version,
    )
    return InstallTorch(python, known.uid, choice)


def _first_step(values: Mapping[str, Any], known: Known, machine: Machine) -> Action:
    return FirstStep(machine, values["python"])


def _ladder(values: Mapping[str, Any], known: Known, machine: Machine) -> Action | None:
    return Ladder.of(known)


@dataclass(frozen=True)
class _Told:
    """What a person has to do: it can be read and copied, not run."""

    values: Mapping[str, Any]

    def preview(self) -> Preview:
        """The diagnosis's own words."""
        return Preview(
            title=self.values["title"],
            form="text",
            lines=self.values["lines"],
            risk="confirm",
            loses=self.values["loses"],
            verify=self.values["verify"],
            refusal="This is for you to do: the cockpit cannot.",
        )

    def run(self, console: Console) -> Outcome:
        """Raises UsageError: there is nothing to run."""
        raise UsageError("This is for you to do: the cockpit cannot.")


def _explain(values: Mapping[str, Any], known: Known, machine: Machine) -> Action:
    return _Told(values)


def _admin(values: Mapping[str, Any], known: Known, machine: Machine) -> Action:
    """With sudo in the user's terminal, where every line is a plain command."""
    if any(_SHELL_ONLY & set(line) for line in values["lines"]):
        return _Told(values)
    try:
        words = tuple(tuple(shlex.split(line)) for line in values["lines"])
        return AdminStep(
            title=values["title"],
            commands=tuple(one[1:] if one[:1] == ("sudo",) else one for one in words),
            why="",
            loses=values["loses"],
            verify=values["verify"],
            in_terminal=True,
        )
    except (ValueError, UsageError):  # a quote without its end; a shell
        return _Told(values)


_BUILDERS: dict[str, Callable[[Mapping[str, Any], Known, Machine], Action | None]] = {
    "kill": _kill,
    "operation": _operation,
    "free_frames": _operation,
    "attach": _attach,
    "relaunch": _relaunch,
    "patch": _patch,
    "edit": _edit,
    "install_torch": _install_torch,
    "first_step": _first_step,
    "ladder": _ladder,
    "explain": _explain,
    "admin": _admin,
}
