"""``cockpit doctor`` in the engine: gathers the facts, each with a deadline, and has them judged.

Runs on a request's thread. Everything that can block does so on a thread or in a child of its own
that is left behind or ended when its time is over. torch is imported by a child only.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from cockpit.collect import job as jobs
from cockpit.collect import probe
from cockpit.collect.job import Job
from cockpit.collect.job_limits import read_limits
from cockpit.collect.kernel_side import read_kernel, read_nodes
from cockpit.diagnose.devices import gpu_of, in_use
from cockpit.diagnose.doctor import judge
from cockpit.engine.machine import Say
from cockpit.errors import CockpitError, UsageError
from cockpit.model.checkup import Checkup, CheckupRequest
from cockpit.model.checkup_facts import (
    Child,
    CudaDevice,
    CudaFacts,
    DeviceNode,
    Facts,
    InterpreterFacts,
    KernelFacts,
    LimitFacts,
    TorchFacts,
)
from cockpit.model.snapshot import Snapshot

T = TypeVar("T")

MASK = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Limits:
    """Seconds after which a reading is cut off."""

    files_s: float = 5.0
    interpreter_s: float = 10.0
    """Start and one search of the import path: 20 ms, seconds on a cold network file system."""
    driver_s: float = 30.0
    """cuInit without persistence mode: about 1 s a GPU."""
    torch_s: float = 120.0
    """Import from a cold network file system 60 s, a context 1 s, the small success 0.3 s."""
    snapshot_s: float = 3.0


LIMITS = Limits()


@dataclass
class _Gathered:
    """Facts as they come. Written by one thread: what a late reader brings is not looked at."""

    kernel: KernelFacts | None = None
    nodes: tuple[DeviceNode, ...] | None = None
    interpreter: InterpreterFacts | None = None
    driver: CudaFacts | None = None
    torch: TorchFacts | None = None
    limits: LimitFacts | None = None
    tried: tuple[int, ...] = ()
    children: dict[str, Child] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    took_s: dict[str, float] = field(default_factory=dict)


def checkup(
    request: CheckupRequest,
    snapshot: Callable[[], Snapshot | None],
    say: Say,
    limits: Limits = LIMITS,
    environment: Mapping[str, str] = os.environ,
) -> Checkup:
    """Changes nothing. Raises UsageError, RefusedError, TargetGoneError for what was asked for.

    ``snapshot`` gives the engine's newest tick; ``environment`` is that of the user.
    """
    if request.pid is not None and request.python is not None:
        raise UsageError("Either --pid or --python, not both.")
    return _Examination(request, snapshot, say, limits, environment).run()


class _Examination:
    """One checkup."""

    def __init__(
        self,
        request: CheckupRequest,
        snapshot: Callable[[], Snapshot | None],
        say: Say,
        limits: Limits,
        environment: Mapping[str, str],
    ) -> None:
        self._request = request
        self._snapshot = snapshot
        self._say = say
        self._limits = limits
        self._environment = environment
        self._found = _Gathered()
        self._began_with = snapshot()
        self._judged: Snapshot | None = None
        """The tick by which the idle devices were chosen."""

    def run(self) -> Checkup:
        """The ladder, in the order in which one reading helps the next."""
        found = self._found
        job = self._job()
        self._say("reading what the kernel says of the driver")
        found.kernel = self._read("kernel", read_kernel)
        found.limits = self._read("limits", lambda: read_limits(job.pid, job.root))
        self._driver(job)
        # After cuInit: it makes the device files where they are not made at boot.
        found.nodes = self._read("nodes", lambda: read_nodes(job.root))
        self._torch(job)
        return judge(self._facts(job))

    def _facts(self, job: Job) -> Facts:
        found = self._found
        return Facts(
            job=job.facts(),
            snapshot=self._judged or self._tick(),
            kernel=found.kernel,
            nodes=found.nodes,
            interpreter=found.interpreter,
            driver=found.driver,
            torch=found.torch,
            limits=found.limits,
            children=found.children,
            unread=found.unread,
            took_s=found.took_s,
            tried=found.tried,
        )

    # -- whose

    def _job(self) -> Job:
        request = self._request
        if request.pid is not None:
            job = jobs.of_process(request.pid, request.start_ticks)
            self._interpreter(job)
            return job
        if request.python is not None:
            job = jobs.of_path(request.python, self._environment)
            self._interpreter(job)
            return job
        return self._search()

    def _search(self) -> Job:
        """The first Python of the user's that has torch."""
        looked: list[str] = []
        for job in jobs.candidates(self._environment):
            self._interpreter(job)
            if self._found.interpreter is not None and self._found.interpreter.has_torch:
                return job
            looked.append(job.python or "?")
        self._found.interpreter = None
        self._found.children.pop("interpreter", None)
        where = ", ".join(looked) or "PATH"
        return jobs.nobody(self._environment, f"no Python with torch was found ({where})")

    def _interpreter(self, job: Job) -> None:
        if job.python is None:
            return
        self._say(f"starting {job.python}")
        self._found.interpreter = self._probe(
            "interpreter", job, InterpreterFacts, self._limits.interpreter_s
        )

    # -- the driver, and torch on it

    def _driver(self, job: Job) -> None:
        """In a child with the job's environment."""
        stand_in = self._stand_in(job)
        if stand_in is None:
            return
        self._say("starting the CUDA driver in a child process")
        nodes = self._read("nodes", lambda: read_nodes(job.root)) or ()
        # In a /dev of its own the job's files are not those that we would open.
        paths = () if job.own_devices else tuple(node.path for node in nodes)
        self._found.driver = self._probe(
            "driver", stand_in, CudaFacts, self._limits.driver_s, paths
        )

    def _has_started(self) -> bool:
        facts, child = self._found.interpreter, self._found.children.get("interpreter")
        return facts is not None and child is not None and child.failure is None

    def _stand_in(self, job: Job) -> Job | None:
        """The job; where it has no Python, with ours, which only we ourselves may need to run."""
        unread = self._found.unread
        if job.outside:
            unread["driver"] = f"Not tried: {job.why}."
        elif job.python is not None and self._has_started():
            return job
        elif job.python is not None or job.owner.uid != os.geteuid():
            unread["driver"] = "Not tried: the job's interpreter did not start."
        else:
            try:
                ours = jobs.of_path(sys.executable, job.environment)
            except CockpitError as error:
                unread["driver"] = f"Not tried: {error}"
            else:
                return replace(job, python=ours.python, owner=ours.owner)
        return None

    def _torch(self, job: Job) -> None:
        facts = self._found.interpreter
        if not self._has_started() or facts is None or not facts.has_torch:
            self._found.unread["torch"] = "There is no torch to look at."
            return
        self._say("importing torch, and computing on each idle GPU")
        environment = self._choose_devices(job)
        arguments = tuple(str(place) for place in range(len(self._found.tried)))
        self._found.torch = self._probe(
            "pytorch", job, TorchFacts, self._limits.torch_s, arguments, environment
        )

    def _choose_devices(self, job: Job) -> dict[str, str]:
        """Sets ``tried``. Busy ones are hidden from the child: not even a context is made there."""
        driver = self._found.driver
        devices = driver.devices if driver is not None else ()
        self._judged = tick = self._tick(newer=True)
        idle = [one for one in devices if one.uuid and _is_idle(one, tick)]
        self._found.tried = tuple(one.ordinal for one in idle)
        environment = dict(job.environment)
        if idle and len(idle) < len(devices):
            environment[MASK] = ",".join(_entry(one, tick) for one in idle)
        return environment

    # -- readings

    def _probe(
        self,
        name: str,
        job: Job,
        kind: type[T],
        limit_s: float,
        arguments: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> T | None:
        """One child; its end is noted under the name of what it looks at."""
        source = "torch" if name == "pytorch" else name

        def ask() -> probe.Answer:
            return probe.ask(
                name,
                job.python or "",
                job.owner,
                environment=job.environment if environment is None else environment,
                cwd=job.cwd,
                arguments=arguments,
                limit_s=limit_s,
            )

        # The start itself may block: an interpreter on a file server that does not answer.
        answer = self._read(source, ask, limit_s + self._limits.files_s)
        if answer is None:
            failure = "Its start did not come back: the file system under it does not answer."
            self._found.children[source] = Child(failure=failure, cut_off_s=limit_s)
            return None
        facts = answer.into(kind)
        self._found.children[source] = answer.child
        return facts

    def _read(self, source: str, read: Callable[[], T], limit_s: float | None = None) -> T | None:
        """What a thread of its own brings in time; else None, noted in ``unread``."""
        limit = self._limits.files_s if limit_s is None else limit_s
        box: list[Any] = []

        def work() -> None:
            try:
                box.append(read())
            except (OSError, ValueError, KeyError) as error:
                box.append(error)

        began = time.monotonic()
        thread = threading.Thread(target=work, name=f"checkup-{source}", daemon=True)
        thread.start()
        thread.join(limit)
        self._found.took_s[source] = time.monotonic() - began
        if not box:
            late = f"The reading took longer than {limit:g} s: cut off."
            failed = "The reading failed: the engine's log has the details."
            self._found.unread[source] = late if thread.is_alive() else failed
            return None
        if isinstance(box[0], Exception):
            self._found.unread[source] = f"It cannot be read: {box[0]}."
            return None
        self._found.unread.pop(source, None)
        result: T = box[0]
        return result

    def _tick(self, *, newer: bool = False) -> Snapshot:
        """The engine's newest; ``newer``: one that was taken since the checkup began, if it comes
        in time. Raises CockpitError where there is none at all.
        """
        began = time.monotonic()
        found = self._snapshot()
        while found is None or (newer and found is self._began_with):
            if time.monotonic() - began > self._limits.snapshot_s:
                break
            time.sleep(0.05)
            found = self._snapshot()
        if found is None:
            raise CockpitError("The engine has no reading of the GPUs yet: try again.")
        self._found.took_s.setdefault("nvml", time.monotonic() - began)
        return found


def _is_idle(device: CudaDevice, tick: Snapshot) -> bool:
    gpu = gpu_of(device, tick.gpus)
    return gpu is not None and in_use(gpu, tick) is None


def _entry(device: CudaDevice, tick: Snapshot) -> str:
    """How CUDA_VISIBLE_DEVICES names it: a whole GPU, or a MIG instance of one."""
    whole = any((gpu.uuid or "").lower() == f"gpu-{device.uuid}" for gpu in tick.gpus)
    return f"{'GPU' if whole else 'MIG'}-{device.uuid}"
