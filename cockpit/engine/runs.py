"""Attached runs: who has an agent, what it says each second, and what is asked of it.

A thread listens to each agent; nobody waits for one that does not answer. The words of an agent
are data from outside: numbers are checked by the structs, texts are cleaned where they are shown.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from cockpit import procfs
from cockpit.attach.client import AgentError, Client
from cockpit.attach.discover import AgentSocket, Finder, pids_with_sockets
from cockpit.attach.run_record import start_ticks
from cockpit.attach.sweep import unlink_stale
from cockpit.engine.run_files import RunFiles
from cockpit.model.event import Event
from cockpit.model.gpu import Gpu
from cockpit.model.process import Process
from cockpit.model.run import Run, RunDevice
from cockpit.model.text import size
from cockpit.model.time import iso

STREAM_HZ = 1.0
LOOK_EVERY_S = 3.0
SWEEP_EVERY_S = 60.0
"""What killed runs left behind is removed that often."""
FIRST_SWEEP_S = 5.0
"""Not by a one-shot command, and not before the first frame."""
SILENT_AFTER_S = 2.5
"""Without a sample for so long a run is shown as not answering."""
ENDED_KEPT_S = 600.0
"""An ended run stays in the list for so long: its last numbers are what one looks for."""
OOM_IS_NEW_S = 10.0
"""The agent keeps the details of the first few only: an older record is of another OOM."""
Note = Callable[[Event], None]


@dataclass
class _Attached:
    """One run with an agent. Written by its listener, read by the sampler's thread."""

    socket: AgentSocket
    hello: Mapping[str, Any] = field(default_factory=dict)
    stats: Mapping[str, Any] = field(default_factory=dict)
    heard_at: float = 0.0
    """Monotonic; 0: nothing heard yet."""
    left_at: float | None = None
    """Monotonic: when the agent's end was seen."""
    client: Client | None = None
    start_ticks: int | None = None
    files: RunFiles = field(default_factory=RunFiles)


class Runs:
    """All attached runs of this machine. ``note`` takes events, from any thread.

    ``tidies``: sockets and logs of our own ended runs are removed.
    """

    def __init__(self, note: Note = lambda _: None, tidies: bool = True) -> None:
        self._note = note
        self._tidies = tidies
        self._sweep_at = time.monotonic() + FIRST_SWEEP_S
        self._gpus: Sequence[Gpu] = ()
        self._attached: dict[int, _Attached] = {}
        self._candidates: tuple[int, ...] = ()
        self._look = threading.Event()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin to look for agents in the background."""
        threading.Thread(target=self._keep_looking, name="runs", daemon=True).start()

    def read(self, processes: Sequence[Process], gpus: Sequence[Gpu]) -> tuple[Run, ...]:
        """One tick: what the agents said last, joined with what the driver sees."""
        self._gpus = gpus
        self._candidates = tuple(one.pid for one in processes if one.visible)
        self._look.set()
        with self._lock:
            known = dict(self._attached)
        rows = {one.pid: one for one in processes}
        return tuple(_run(pid, one, rows.get(pid), gpus) for pid, one in sorted(known.items()))

    def note(self, socket: AgentSocket) -> None:
        """An agent that was just attached: no need to wait for the next look."""
        self._listen_to(socket)

    def forget(self, pid: int) -> None:
        """After a detach."""
        with self._lock:
            gone = self._attached.pop(pid, None)
        if gone is not None and gone.client is not None:
            gone.client.close()

    def socket(self, pid: int) -> AgentSocket | None:
        """Where the agent of a process listens; None: it has none that we know."""
        with self._lock:
            one = self._attached.get(pid)
        return None if one is None or one.left_at is not None else one.socket

    def pids(self) -> tuple[int, ...]:
        """Living processes with an agent: also those that hold no GPU memory."""
        with self._lock:
            return tuple(pid for pid, one in self._attached.items() if one.left_at is None)

    def gpu_by_index(self, pid: int) -> dict[int, int]:
        """torch's index of a device → NVML's, for the devices that the process uses."""
        with self._lock:
            one = self._attached.get(pid)
        rows = device_rows(one.stats.get("devices")) if one is not None else []
        return {_index(row): _gpu_index(row, self._gpus) for row in rows}

    # -- in the background

    def _keep_looking(self) -> None:
        finder = Finder()
        while True:
            self._look.wait()
            self._look.clear()
            # Also runs that hold no VRAM: training on the CPU by mistake looks like that.
            for socket in finder.find_all({*self._candidates, *pids_with_sockets()}):
                self._listen_to(socket)
            self._read_exits()
            self._drop_old()
            self._sweep()
            time.sleep(LOOK_EVERY_S)

    def _sweep(self) -> None:
        now = time.monotonic()
        if self._tidies and now >= self._sweep_at:
            self._sweep_at = now + SWEEP_EVERY_S
            unlink_stale()

    def _listen_to(self, socket: AgentSocket) -> None:
        with self._lock:
            one = self._attached.get(socket.pid)
            if one is not None and one.left_at is None:
                return
            ticks = start_ticks(socket.pid)
            files = RunFiles.of_process(socket.pid)
            one = self._attached[socket.pid] = _Attached(socket, start_ticks=ticks, files=files)
        threading.Thread(
            target=self._listen, args=(one,), name=f"run-{socket.pid}", daemon=True
        ).start()

    def _listen(self, one: _Attached) -> None:
        """Until the agent goes away; a silence is waited out."""
        while one.left_at is None:
            try:
                with Client.connect(one.socket.pid, one.socket.path) as client:
                    one.client = client
                    one.hello = client.call("hello")
                    for stats in client.stream(STREAM_HZ):
                        self._hear(one, client, stats)
            except AgentError:
                if _is_over(one):
                    one.left_at = time.monotonic()
                    self._tell_last_ooms(one)
                time.sleep(1 / STREAM_HZ)

    def _hear(self, one: _Attached, client: Client, stats: Mapping[str, Any]) -> None:
        """One sample. Raises AgentError for numbers that are none: the thread has to go on."""
        before, one.stats = one.stats, stats
        one.heard_at = time.monotonic()
        try:
            for row in _new_ooms(before, stats):
                self._tell_oom(one, row, _oom_record(client))
        except (TypeError, ValueError, ArithmeticError) as error:
            raise AgentError(f"pid {client.pid} told no numbers: {error}", "bad_reply") from error

    def _tell_oom(self, one: _Attached, row: Mapping[str, Any], record: Mapping[str, Any]) -> None:
        gpu, pid = _gpu_index(row, self._gpus), one.socket.pid
        sentence = f"OOM in pid {pid} on GPU {gpu}"
        if record.get("device") == row.get("index") and _is_oom_record(record):
            one.files.ooms_told.add(float(record["at"]))
            asked, free = size(record["asked_bytes"]), size(record["device_free_bytes"])
            sentence += f": asked {asked}, {free} free"
        self._note(
            Event(at=iso(time.time()), gpu=gpu, kind="oom", sentence=sentence, severity="error")
        )

    def _tell_last_ooms(self, one: _Attached) -> None:
        """An OOM that ends the program comes between two samples: its record is on disk."""
        rows = {_index(row): row for row in device_rows(one.stats.get("devices"))}
        for record in one.files.ooms(one.socket.inner_pid, one.start_ticks):
            if _is_oom_record(record) and float(record["at"]) not in one.files.ooms_told:
                index = int(record["device"])
                self._tell_oom(one, rows.get(index, {"index": index}), record)

    def _read_exits(self) -> None:
        """Of those that do not answer: the end of a command is written once."""
        with self._lock:
            known = list(self._attached.values())
        for one in known:
            if one.left_at is not None or time.monotonic() - one.heard_at > SILENT_AFTER_S:
                one.files.read_exit()

    def _drop_old(self) -> None:
        now = time.monotonic()
        with self._lock:
            for pid, one in list(self._attached.items()):
                if one.left_at is not None and now - one.left_at > ENDED_KEPT_S:
                    del self._attached[pid]


def _is_over(one: _Attached) -> bool:
    """A killed process leaves its socket, where the next one with its pid finds it."""
    if not os.path.exists(one.socket.path):
        return True
    stat = procfs.stat("/proc", one.socket.pid)
    if isinstance(stat, procfs.Gap):
        return stat.reason == "gone"
    return stat.dead or one.start_ticks not in (None, stat.start_ticks)


def _run(pid: int, one: _Attached, process: Process | None, gpus: Sequence[Gpu]) -> Run:
    hello, stats = one.hello, one.stats
    facts = {
        "start_ticks": one.start_ticks,
        "exit_status": one.files.exit_status,
        "name": one.files.name or (process.name if process is not None else None),
        "attached_by": hello.get("attached_by"),
        "torch_version": hello.get("torch_version"),
        "python_version": hello.get("python_version"),
        "step": stats.get("step"),
        "step_age_s": stats.get("step_age_s"),
        "steps_per_s": stats.get("steps_per_s"),
        "cuda_initialized": stats.get("cuda_initialized", hello.get("cuda_initialized")),
    }
    try:
        run = msgspec.convert({"pid": pid, **facts}, Run)
        devices = _devices(stats, process, gpus)
    except msgspec.ValidationError:
        return Run(pid=pid, state="no_answer", gaps={"devices": "bad_reply"})
    state = _state(one, process)
    gaps = {} if state == "running" else {"devices": "timeout"}
    return replace(run, state=state, devices=devices, gaps=gaps)


def _state(one: _Attached, process: Process | None) -> Any:
    if one.left_at is not None:
        return "ended"
    if process is not None and process.state in ("T", "t"):
        return "stopped"
    if time.monotonic() - one.heard_at < SILENT_AFTER_S:
        return "running"
    return "no_answer" if one.files.exit_status is None else "ended"


def _devices(
    stats: Mapping[str, Any], process: Process | None, gpus: Sequence[Gpu]
) -> tuple[RunDevice, ...]:
    """The agent's rows with NVML's numbers of the GPUs. Raises ValidationError."""
    rows = device_rows(stats.get("devices"))
    return tuple(device_of(row, _gpu_index(row, gpus), process) for row in rows)


def device_rows(told: object) -> list[dict[str, Any]]:
    """What an agent tells of its devices, without what is no row: it comes from outside."""
    return [row for row in told if isinstance(row, dict)] if isinstance(told, list) else []


def _index(row: Mapping[str, Any]) -> int:
    """torch's own number of the device."""
    index = row.get("index")
    return index if isinstance(index, int) else 0


def _new_ooms(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Device rows whose counter of OOMs grew between two samples."""
    if not before:
        return []
    were = {_index(row): row.get("ooms") or 0 for row in device_rows(before.get("devices"))}
    rows = device_rows(after.get("devices"))
    return [row for row in rows if (row.get("ooms") or 0) > were.get(_index(row), 0)]


def _oom_record(client: Client) -> Mapping[str, Any]:
    """The details of an OOM of this moment; empty where no observer is installed."""
    try:
        record = client.call("oom_record").get("record")
    except AgentError:
        return {}
    if not isinstance(record, dict) or not _is_oom_record(record):
        return {}
    return record if abs(time.time() - record["at"]) < OOM_IS_NEW_S else {}


def _is_oom_record(record: Mapping[str, Any]) -> bool:
    names = ("at", "device", "asked_bytes", "device_free_bytes")
    return all(isinstance(record.get(name), int | float) for name in names)


def device_of(row: Mapping[str, Any], gpu: int, process: Process | None = None) -> RunDevice:
    """One device row of the agent as a RunDevice. Raises ValidationError."""
    known = {name: row[name] for name in RunDevice.__struct_fields__ if name in row}
    seen = [use.vram_bytes for use in process.devices if use.gpu == gpu] if process else []
    return msgspec.convert(
        {**known, "gpu": gpu, "driver_seen_bytes": seen[0] if seen else None}, RunDevice
    )


def _gpu_index(row: Mapping[str, Any], gpus: Sequence[Gpu]) -> int:
    """torch counts from CUDA_VISIBLE_DEVICES, NVML from the bus: the UUID joins them."""
    uuid = str(row.get("uuid") or "").removeprefix("GPU-")
    for gpu in gpus:
        if uuid and gpu.uuid is not None and gpu.uuid.removeprefix("GPU-") == uuid:
            return gpu.index
    return _index(row)
