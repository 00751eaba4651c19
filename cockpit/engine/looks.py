"""Takes the looks that the rules wish for, on a thread of its own: never on the tick's.

At most one look at a process every three seconds, two a second in all, and only while a rule still
wishes for them. Read-only: py-spy without a pause, /proc, and the agent where py-spy may not look.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cockpit import procfs
from cockpit.attach import stacks
from cockpit.attach.client import AgentError, Client
from cockpit.attach.discover import AgentSocket
from cockpit.collect.cpu_runs import CpuRunScan
from cockpit.collect.source_lines import SourceLines
from cockpit.collect.work import Work
from cockpit.diagnose.live.look import CpuRun, Look, LookFrame, Worker

log = logging.getLogger(__name__)

APART_S = 2.5
FAR_APART_S = 10.0
"""Once a process has been looked at often enough to know."""
ENOUGH = 8
PAUSE_S = 0.5
WISHED_S = 12.0
"""A wish lasts so long, or three ticks."""
KEPT = 8
KEPT_S = 60.0
SCAN_EVERY_S = 10.0
AFTER_FAILURE_S = 30.0
PAUSE_AFTER_FAILURE_S = 4.0
"""Where one cannot be looked at, the others mostly cannot either."""
LONGEST_AFTER_FAILURE_S = 600.0
"""Each failure doubles the pause: a start of py-spy costs 20 ms of a core."""
FRAMES = 40
FRAMES_WITH_TEXT = 3
AGENT_LIMIT_S = 1.0
FindSocket = Callable[[int], AgentSocket | None]


@dataclass
class _Subject:
    """A process that somebody wishes to see."""

    pid: int
    start_ticks: int | None
    work: Work
    wished_s: float
    due_s: float = 0.0
    count: int = 0
    py_spy_fails: bool = False
    failures: int = 0
    seen: deque[Look] = field(default_factory=lambda: deque(maxlen=KEPT))


class Looker:
    """The looks of a live machine. ``want`` and ``cpu_runs`` are called by the tick's thread."""

    def __init__(self, socket: FindSocket = lambda _: None) -> None:
        self._socket = socket
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._started = False
        self._subjects: dict[int, _Subject] = {}
        self._lines = SourceLines()
        self._scan = CpuRunScan()
        self._scan_wished_s = -1e9
        self._scan_due_s = 0.0
        self._cpu_runs: tuple[CpuRun, ...] = ()

    def want(self, pid: int, start_ticks: int | None) -> tuple[Look, ...]:
        """Wish for looks at a process; the answer is those of the last minute, oldest first."""
        now_s, oldest_s = time.monotonic(), time.time() - KEPT_S
        with self._lock:
            subject = self._subjects.get(pid)
            if subject is None or subject.start_ticks != start_ticks:
                subject = _Subject(pid, start_ticks, Work(pid), now_s)
                self._subjects[pid] = subject
            subject.wished_s = now_s
            seen = tuple(look for look in subject.seen if look.at_s >= oldest_s)
        self._begin()
        return seen

    def cpu_runs(self) -> tuple[CpuRun, ...]:
        """Wish for a scan of processes that train on the CPU; the answer is the last scan's."""
        with self._lock:
            self._scan_wished_s = time.monotonic()
            found = self._cpu_runs
        self._begin()
        return found

    def _begin(self) -> None:
        if not self._started:
            self._started = True
            threading.Thread(target=self._run, name="looks", daemon=True).start()
        self._wake.set()

    # -- the thread

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            while self._is_wished():
                pause_s = PAUSE_S
                try:
                    if not self._one_turn(time.monotonic()):
                        pause_s = PAUSE_AFTER_FAILURE_S
                except Exception:  # a look is a courtesy: the next one may work
                    log.exception("a look failed")
                time.sleep(pause_s)

    def _is_wished(self) -> bool:
        now_s = time.monotonic()
        with self._lock:
            for pid in [p for p, s in self._subjects.items() if now_s - s.wished_s > KEPT_S]:
                del self._subjects[pid]
            return bool(self._subjects) or now_s - self._scan_wished_s < WISHED_S

    def _one_turn(self, now_s: float) -> bool:
        """Whether the look that was due, if any, showed something."""
        subject = self._next(now_s)
        if subject is not None:
            self._take(subject)
        if now_s - self._scan_wished_s < WISHED_S and now_s >= self._scan_due_s:
            self._scan_due_s = now_s + SCAN_EVERY_S
            found = tuple(CpuRun(*one) for one in self._scan.scan())
            with self._lock:
                self._cpu_runs = found
        return subject is None or not subject.failures

    def _next(self, now_s: float) -> _Subject | None:
        with self._lock:
            due = [
                subject
                for subject in self._subjects.values()
                if subject.due_s <= now_s and now_s - subject.wished_s < WISHED_S
            ]
        return min(due, key=lambda one: one.due_s, default=None)

    def _take(self, subject: _Subject) -> None:
        stat = procfs.stat("/proc", subject.pid)
        gone = isinstance(stat, procfs.Gap) or (
            subject.start_ticks is not None and stat.start_ticks != subject.start_ticks
        )
        look = Look(at_s=time.time(), failure="gone") if gone else self._look(subject)
        subject.count += 1
        subject.due_s = time.monotonic() + _pause_s(subject, look)
        with self._lock:
            subject.seen.append(look)

    def _look(self, subject: _Subject) -> Look:
        frames, failure = self._frames(subject)
        if not frames:
            return Look(at_s=time.time(), failure=failure)
        work = subject.work.read()
        return Look(
            at_s=time.time(),
            frames=tuple(
                frame._replace(text=self._lines.line(subject.pid, frame.file, frame.line))
                if number < FRAMES_WITH_TEXT
                else frame
                for number, frame in enumerate(frames)
            ),
            main_cpu_pct=work.main_cpu_pct,
            main_state=work.main_state,
            workers=tuple(Worker(*one) for one in work.workers),
            cpus=work.cpus,
            throttled_pct=work.throttled_pct,
            failure=failure,
        )

    def _frames(self, subject: _Subject) -> tuple[Sequence[LookFrame], str | None]:
        """By py-spy: the agent's own thread needs the GIL, and meets the trainer where it waits."""
        failure: str | None = None
        if not _is_python(subject.pid):
            return (), "It is no Python."
        if not subject.py_spy_fails:
            dump = stacks.dump(subject.pid)
            main = dump.main
            if main is not None:
                return [_frame(one) for one in main.frames[:FRAMES]], None
            failure = dump.failure
            subject.py_spy_fails = failure is not None
        socket = self._socket(subject.pid)
        if socket is None:
            subject.py_spy_fails = False
            return (), failure or "It has no Python thread."
        return _asked(subject.pid, socket)


def _pause_s(subject: _Subject, look: Look) -> float:
    if look.frames:
        subject.failures = 0
        return APART_S if subject.count < ENOUGH else FAR_APART_S
    subject.failures += 1
    return min(AFTER_FAILURE_S * 2.0 ** (subject.failures - 1), LONGEST_AFTER_FAILURE_S)


def _is_python(pid: int) -> bool:
    """By the name of what it runs; not to be seen counts as yes, py-spy will say."""
    executable = procfs.read_link(f"/proc/{pid}/exe")
    return isinstance(executable, procfs.Gap) or "python" in executable.rpartition("/")[2]


def _frame(frame: stacks.Frame) -> LookFrame:
    """Of Python 3.11 and newer py-spy tells ``Class.function``, the agent the function alone."""
    return LookFrame(frame.filename, frame.line, frame.name.rpartition(".")[2])


def _asked(pid: int, socket: AgentSocket) -> tuple[Sequence[LookFrame], str | None]:
    try:
        with Client.connect(pid, socket.path, AGENT_LIMIT_S) as client:
            threads = client.call("stacks", AGENT_LIMIT_S).get("threads")
    except AgentError as error:
        return (), str(error)
    return _training_frames(threads), None


def _training_frames(threads: Any) -> list[LookFrame]:
    """The thread that takes the steps, else the main one: the agent's words are checked here."""
    rows = [row for row in threads if isinstance(row, dict)] if isinstance(threads, list) else []
    wanted = [row for row in rows if row.get("training")] + [r for r in rows if r.get("main")]
    frames = wanted[0].get("frames") if wanted else None
    return [
        LookFrame(str(one[0]), int(one[1]), str(one[2]))
        for one in (frames if isinstance(frames, list) else [])[:FRAMES]
        if isinstance(one, list) and len(one) == 3 and isinstance(one[1], int)
    ]
