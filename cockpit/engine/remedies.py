"""From a Remedy (a kind and values, as flows have it) to the Action that does it.

Everything that touches this host is made for a live machine only.
"""

from __future__ import annotations

import os
import platform
import re
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
from cockpit.engine import live_pace
from cockpit.engine.first_step import FirstStep
from cockpit.engine.gpu_removal import GuardedStep, removal
from cockpit.engine.ladder import Ladder
from cockpit.engine.largest_tensors import LargestTensors
from cockpit.engine.machine import Machine
from cockpit.engine.relaunches import ask_help, relaunch
from cockpit.errors import CockpitError, UsageError
from cockpit.flows.flow import Known, Remedy
from cockpit.model.action import KillRequest, Target
from cockpit.model.memory import RunRequest
from cockpit.model.remedy import BY_HAND, Outcome, Preview, UndoRecord

JOURNALLED_BY_MACHINE = frozenset({"kill", "operation", "attach"})
"""Kinds whose lines the machine writes itself: those that the TUI and the shell have as well."""
ON_ANY_MACHINE = frozenset({"kill", "operation", "attach", "tensors", "explain", "admin"})
"""Kinds that a demo has, too: they end in the machine's own actions, or in words."""
_PYTHON = re.compile(r"python3\.\d+")
_SHELL_ONLY = frozenset("<>|;&$`*#(")
"""A line with one of these is for a person to read, not for exec."""
_TOLD_ONLY = frozenset({"isolate"})
"""`systemctl isolate` ends all that is no part of its target: the terminal around us, maybe."""


def build(remedy: Remedy, known: Known, machine: Machine) -> Action | None:
    """None: it does not apply here (no such argument, no certain place, a demo)."""
    if machine.source != "live" and remedy.kind not in ON_ANY_MACHINE:
        return None
    return _BUILDERS[remedy.kind](_Wanted(remedy.values, known, machine))


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


@dataclass(frozen=True)
class _Wanted:
    """What an Action is made of."""

    values: Mapping[str, Any]
    known: Known
    machine: Machine


def _kill(of: _Wanted) -> Action:
    targets = tuple(Target(pid=pid, start_ticks=ticks) for pid, ticks in of.values["targets"])
    request = KillRequest(targets=targets, signal=of.values["signal"], job=of.values["job"])
    return KillProcesses(request, of.machine.plan_kill, of.machine.run_kill)


def _operation(of: _Wanted) -> Action:
    """In the slow flow a setting is judged by the time of a step; a demo has no run to measure."""
    is_measured = of.known.request.flow == "slow" and of.machine.source == "live"
    pace = live_pace.step_times if is_measured else None
    return InRun(RunRequest(**of.values), of.machine.do_in_run, pace=pace)


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
            title=f"look inside {self.pid} (attach)",
            form="operation",
            lines=(sentence,) if plan.way is not None else (),
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


def _attach(of: _Wanted) -> Action:
    return _Attach(of.machine, of.values["pid"], of.values["start_ticks"])


def _tensors(of: _Wanted) -> Action:
    return LargestTensors(of.machine, of.values["pid"])


def _relaunch(of: _Wanted) -> Action | None:
    return relaunch(of.values, of.known)


def _ask_help(of: _Wanted) -> Action | None:
    return ask_help(of.values, of.known)


def _patch(of: _Wanted) -> Action | None:
    frames = of.known.fact("frames") or [of.values["place"]]
    places = locate(frames, of.known.command.cwd if of.known.command else of.known.request.cwd)
    facts = {"python_version": _python_version(of.known), **dict(of.values["facts"])}
    return suggest_first(of.values["kind"], places, facts)


def _python_version(known: Known) -> str | None:
    """As its agent tells, else as the file is called that its interpreter leads to."""
    if known.run is not None and known.run.python_version is not None:
        return known.run.python_version
    path = known.command.interpreter if known.command is not None else None
    name = os.path.basename(os.path.realpath(path)) if path else ""
    return name.removeprefix("python") if _PYTHON.fullmatch(name) else None


def _edit(of: _Wanted) -> Action | None:
    places = locate(
        of.values["place"], of.known.command.cwd if of.known.command else of.known.request.cwd
    )
    if not places:
        return None
    file, line = places[0]
    words = (str(of.values["suggestion"]),)
    return EditByHand(file, line, words, "change it in the editor")


def _install_torch(of: _Wanted) -> Action | None:
    python = of.values["python"]
    gpus = [one for one in of.known.snapshot.gpus if one.compute_capability]
    driver = of.known.snapshot.driver
    choice = fitting_build(
        [one.compute_capability for one in gpus if one.compute_capability],
        driver=driver.version,
        cuda=driver.cuda_version,
        machine=platform.machine(),
    )
    return InstallTorch(python, of.known.uid, choice)


def _first_step(of: _Wanted) -> Action:
    return FirstStep(of.machine, of.values["python"])


def _ladder(of: _Wanted) -> Action | None:
    return Ladder.of(of.known)


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
            refusal=BY_HAND,
        )

    def run(self, console: Console) -> Outcome:  # noqa: ARG002
        """Raises UsageError: there is nothing to run."""
        raise UsageError(BY_HAND)


def _explain(of: _Wanted) -> Action:
    return _Told(of.values)


def _admin(of: _Wanted) -> Action:
    """With sudo in the user's terminal, where it is one plain command: what is confirmed is what
    runs, and a step is one command."""
    lines = of.values["lines"]
    if of.machine.source != "live":  # sudo would be this host's
        return _Told(of.values)
    if len(lines) != 1 or _SHELL_ONLY & set(lines[0]):
        return _Told(of.values)
    try:
        words = tuple(shlex.split(lines[0]))
        if words[:1] != ("sudo",) or _TOLD_ONLY & set(words):
            return _Told(of.values)
        step = AdminStep(
            title=of.values["title"],
            argv=words[1:],
            loses=of.values["loses"],
            verify=of.values["verify"],
        )
        wanted = removal(words)
        if wanted is None:
            return step
        return GuardedStep(step, wanted, lambda: of.machine.newest() or of.known.snapshot)
    except (ValueError, UsageError):  # a quote without its end; a shell
        return _Told(of.values)


_BUILDERS: dict[str, Callable[[_Wanted], Action | None]] = {
    "kill": _kill,
    "operation": _operation,
    "attach": _attach,
    "tensors": _tensors,
    "relaunch": _relaunch,
    "ask_help": _ask_help,
    "patch": _patch,
    "edit": _edit,
    "install_torch": _install_torch,
    "first_step": _first_step,
    "ladder": _ladder,
    "explain": _explain,
    "admin": _admin,
}
