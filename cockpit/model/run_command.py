"""A command that may be started again, and what is measured of a run before and after."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class RunCommand(Struct, frozen=True, kw_only=True):
    """How a run was started, as far as it is known. Text from outside: clean it to show it."""

    argv: tuple[str, ...]
    cwd: str | None
    uid: int
    """Whose run it is: nobody else starts it again."""
    source: Literal["record", "process", "typed"]
    """``record``: what ``cockpit run`` kept. ``process``: /proc. ``typed``: given by the user."""
    environment: dict[str, str] = {}
    """What it was started with; secrets are in it. Stays in the engine."""
    unknown: tuple[str, ...] = ()
    """Variables whose values were not kept (secrets): the cockpit's own are taken."""
    interpreter: str | None = None
    pid: int | None = None
    """Of the process to be started again: a launcher, not its rank."""
    start_ticks: int | None = None
    inner_pid: int | None = None
    """Its pid in its own namespace; 1: the container ends with it."""
    container: str | None = None
    """``docker:0123456789ab`` where it runs in a container that the cockpit is outside of."""
    slurm_job: str | None = None
    """Only where the cockpit is not in the same job."""
    torch_version: str | None = None
    name: str | None = None
    directory: str | None = None
    """Of its record, when it was started under ``cockpit run``."""
    refusal: str | None = None
    """Why what is known does not suffice to start it again."""

    @property
    def prefix(self) -> str | None:
        """The Python environment of its interpreter: ``/venv`` of ``/venv/bin/python``."""
        if self.interpreter is None or not self.interpreter.startswith("/"):
            return None
        return self.interpreter.rpartition("/")[0].rpartition("/")[0] or "/"

    def __repr__(self) -> str:
        return f"RunCommand(argv={self.argv!r}, cwd={self.cwd!r}, pid={self.pid})"


class RunMeasure(Struct, frozen=True, kw_only=True):
    """What is known of one run, before or after a change. None: not known."""

    step: int | None = None
    """The last one that was seen; with several ranks that of the slowest."""
    exit_status: int | None = None
    """128 + n for signal n; None: it runs, or nobody saw its end."""
    signal: str | None = None
    lasted_s: float | None = None
    allocated_peak_bytes: int | None = None
    """Of the device that had most."""
    reserved_peak_bytes: int | None = None
    step_times_s: tuple[float, ...] = ()
    """Seconds a step, each over the steps of about a second."""
    ooms: int | None = None
    family: str | None = None
    """Of its failure: a flow, ``host-oom`` or ``unknown``; None: it is not known to have failed."""


class SeenRun(Struct, frozen=True, kw_only=True):
    """One look at a run that was started under ``cockpit run``."""

    directory: str
    name: str
    pid: int
    start_ticks: int | None
    state: Literal["running", "ended", "lost", "elsewhere"]
    exit_status: int | None = None
    signal: str | None = None
    ooms: int = 0
    family: str | None = None
    """Of its failure, by what it printed, as in RunMeasure; None: it has not failed."""
    failure: str = ""
    """What it failed of, in words; empty: its output does not say."""
    step: int | None = None
    steps_per_s: float | None = None
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    output: tuple[str, ...] = ()
    """Its last lines, harmless for a terminal."""
