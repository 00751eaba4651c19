"""A machine that exists in the program only: ``--demo``. Nothing here reads or touches a real one.

It carries its own kill, which ends simulated processes and has no way to a signal.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import datetime, timezone

from cockpit.collect.demo_details import details_of, relatives_of
from cockpit.collect.demo_events import Events
from cockpit.collect.demo_gpu import GpuLoad, GpuSimulation, noise
from cockpit.collect.demo_kill import DemoKill
from cockpit.collect.demo_parts import Scenario
from cockpit.collect.demo_rows import UIDS, Rows, ledger, loads, used_bytes
from cockpit.collect.demo_runs import DemoRuns
from cockpit.collect.demo_scenarios import SCENARIOS
from cockpit.collect.demo_world import World
from cockpit.errors import RefusedError, UsageError
from cockpit.model.action import KillPlan, KillRequest, KillResult
from cockpit.model.checkup import Checkup, CheckupRequest
from cockpit.model.gpu import TopologyLink
from cockpit.model.host import Host
from cockpit.model.memory import (
    AttachPlan,
    Census,
    Question,
    RunOutcome,
    RunRequest,
    Segments,
    Stacks,
)
from cockpit.model.playback import Playback, Source
from cockpit.model.process import ProcessDetails, Relative
from cockpit.model.snapshot import SamplerStatus, Snapshot
from cockpit.model.text import GIB

DEFAULT_SCENARIO = "busy"


def scenario_named(name: str) -> Scenario:
    """Raises UsageError, naming those that there are."""
    try:
        return SCENARIOS[name or DEFAULT_SCENARIO]
    except KeyError:
        known = ", ".join(SCENARIOS)
        raise UsageError(f"There is no demo scenario {name!r}; there are: {known}.") from None


class SimulatedMachine:
    """A scenario that runs. The same clock gives the same snapshots."""

    def __init__(
        self,
        scenario: str = DEFAULT_SCENARIO,
        *,
        readonly: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        began: datetime | None = None,
    ) -> None:
        self._scenario = scenario_named(scenario)
        self.source: Source = "demo"
        self.title = self._scenario.name
        self.uid = UIDS[self._scenario.me]
        self._clock = clock
        self._zero_s = clock()
        self._world = World(self._scenario, began or datetime.now(timezone.utc))
        self._gpus = {g.index: GpuSimulation(g) for g in self._scenario.gpus}
        self._rows = Rows(self._world, self._gpus)
        self._events = Events(self._world)
        self._kill = DemoKill(self._world, self._now_s, sleep, readonly)
        self._runs = DemoRuns(self._world, self._now_s, sleep, readonly)
        self._topology = _topology(self._scenario)

    def start(self) -> None:
        """The story begins with the first look at it, not with the object."""
        self._zero_s = self._clock()

    def snapshot(self, interval_s: float) -> Snapshot:
        """This moment of the story."""
        now_s = self._now_s()
        alive = self._runs.shrunk(self._world.alive(now_s))
        lingering = self._world.lingering(now_s)
        processes = self._rows.read(alive, now_s)
        ledgers = tuple(ledger(g, alive, lingering, now_s) for g in self._gpus.values())
        on = loads(processes, alive, now_s)
        gpus = tuple(
            simulation.read(on.get(entry.gpu) or GpuLoad(), used_bytes(entry), now_s)
            for simulation, entry in zip(self._gpus.values(), ledgers, strict=True)
        )
        return Snapshot(
            taken_at=self._world.iso_at(now_s),
            host=_host(self._scenario, now_s),
            driver=self._scenario.driver,
            topology=self._topology,
            gpus=gpus,
            processes=processes,
            runs=self._runs.read(alive, now_s),
            ledger=ledgers,
            events=self._events.read(alive, gpus, now_s),
            sampler=SamplerStatus(interval_s=interval_s, cpu_pct=0.7, rss_bytes=38 << 20),
        )

    def relatives(self, snapshot: Snapshot) -> tuple[Relative, ...]:
        """Launchers, shells and servers over the snapshot's processes."""
        return relatives_of(self._scenario.relatives, snapshot.processes)

    def newest(self) -> None:
        """Nothing of this host is shown."""

    def playback(self) -> Playback | None:
        """A demo cannot be wound."""
        return None

    def play(self, paused: bool | None, speed: float | None, seek_s: float | None) -> None:
        """Nothing: only a replay is steered."""

    def details(self, pid: int, start_ticks: int | None) -> ProcessDetails:
        """Raises TargetGoneError."""
        return details_of(self._world, pid, start_ticks, self._now_s())

    def plan_kill(self, request: KillRequest) -> KillPlan:
        """What the demo kill would end; changes nothing."""
        return self._kill.plan(request)

    def run_kill(
        self, plan_id: str, typed: str | None, say: Callable[[str], None]
    ) -> tuple[KillResult, ...]:
        """Ends simulated processes. Raises RefusedError for an unknown or unconfirmed plan."""
        return self._kill.run(plan_id, typed, say)

    def attach_plan(self, pid: int, start_ticks: int | None) -> AttachPlan:
        """Raises TargetGoneError."""
        return self._runs.attach_plan(pid, start_ticks)

    def run_attach(
        self, pid: int, start_ticks: int | None, say: Callable[[str], None]
    ) -> RunOutcome:
        """Raises RefusedError, TargetGoneError."""
        return self._runs.attach(pid, start_ticks, say)

    def ask_run(self, pid: int, question: Question, deep: bool) -> Census | Segments | Stacks:
        """Raises RefusedError, TargetGoneError."""
        return self._runs.ask(pid, question, deep)

    def do_in_run(self, request: RunRequest, say: Callable[[str], None]) -> RunOutcome:
        """Plays it on the simulated run. Raises RefusedError, TargetGoneError."""
        return self._runs.do(request, say)

    def checkup(self, request: CheckupRequest, say: Callable[[str], None]) -> Checkup:  # noqa: ARG002
        """Raises RefusedError."""
        raise RefusedError("A demo has no driver and no torch to examine: leave out --demo.")

    def _now_s(self) -> float:
        return self._clock() - self._zero_s


def _topology(scenario: Scenario) -> tuple[TopologyLink, ...]:
    links = []
    for a in scenario.gpus:
        for b in scenario.gpus[a.index + 1 :]:
            level = "NODE" if a.numa_node == b.numa_node else "SYS"
            switched = a.model == "H200"
            links.append(
                TopologyLink(
                    a=a.index,
                    b=b.index,
                    level=level,
                    nvlinks=18 if switched else 0,
                    p2p="ok" if switched else "chipset_not_supported",
                )
            )
    return tuple(links)


def _host(scenario: Scenario, now_s: float) -> Host:
    host, second = scenario.host, int(now_s)
    wobble, slow = noise(3, second), math.sin(now_s / 23.0)
    cpu_pct = host.cpu_pct * (1.0 + 0.07 * slow + 0.04 * wobble)
    return Host(
        name=host.name,
        cpu_count=host.cpu_count,
        cpu_pct=round(cpu_pct, 1),
        load_1m=round(host.cpu_count * host.cpu_pct / 100.0 * 0.58 * (1.0 + 0.03 * slow), 2),
        memory_total_bytes=host.memory_gib * GIB,
        memory_used_bytes=int((host.memory_used_gib + 1.5 * slow) * 1024) << 20,
        swap_used_bytes=0,
        iowait_pct=round(2.0 + wobble, 1),
        disk_read_bytes_per_s=float(round(host.disk_read_bytes_per_s * (1.0 + 0.2 * wobble), -5)),
        disk_write_bytes_per_s=float(round(2.4e8 * (1.0 + 0.5 * noise(5, second)), -5)),
        shm_total_bytes=host.memory_gib * GIB // 2,
        shm_used_bytes=int(host.shm_used_gib * GIB),
    )
