"""Simulated processes as rows and as ledgers that add up: what the tick shows of a World."""

from __future__ import annotations

from msgspec.structs import replace

from cockpit.collect.demo_gpu import GpuLoad, GpuSimulation, noise, sm_pct
from cockpit.collect.demo_parts import Hold
from cockpit.collect.demo_world import Instance, World
from cockpit.model.ledger import Explanation, Ledger, LedgerProcess
from cockpit.model.process import DeviceUse, Process
from cockpit.model.text import GIB, size

BASELINE_BYTES = 1114112
"""In use on an H200 on which nothing runs."""

UIDS = {"root": 0, "svc": 998, "ml1": 1001, "ml2": 1002, "ml3": 1003}
_FOREIGN = ("user", "command", "name", "state", "ppid", "cpu_pct", "rss_bytes", "started_at")


class Rows:
    """Builds the rows of one tick; what cannot change is built once for each process."""

    def __init__(self, world: World, gpus: dict[int, GpuSimulation]) -> None:
        self._world = world
        self._gpus = gpus
        self._templates: dict[int, Process] = {}

    def read(self, alive: list[Instance], now_s: float) -> tuple[Process, ...]:
        """One row for each process that lives."""
        self._templates = {i.pid: self._templates.get(i.pid) or self._template(i) for i in alive}
        return tuple(self._row(i, now_s) for i in alive)

    def _row(self, instance: Instance, now_s: float) -> Process:
        devices = tuple(self._use(instance, hold, now_s) for hold in instance.process.holds)
        known = [d.vram_bytes for d in devices if d.vram_bytes is not None]
        template = self._templates[instance.pid]
        vram = sum(known) if known and len(known) == len(devices) else None
        gaps = template.gaps
        if devices and vram is None and "vram_bytes" not in gaps:
            gaps = {**gaps, "vram_bytes": "gpu_lost"}
        if not instance.process.visible:
            return replace(template, devices=devices, vram_bytes=vram, gaps=gaps)
        stopped = self._world.is_stopped(instance.pid)
        return replace(
            template,
            devices=devices,
            vram_bytes=vram,
            gaps=gaps,
            state="T" if stopped else template.state,
            cpu_pct=0.0 if stopped else self._cpu(instance, now_s),
        )

    def _use(self, instance: Instance, hold: Hold, now_s: float) -> DeviceUse:
        if self._gpus[hold.gpu].is_lost(now_s):
            return DeviceUse(gpu=hold.gpu, vram_bytes=None, sm_pct=None)
        vram = instance.held_bytes(hold, now_s) if hold.known else None
        # without a sample in the interval NVML has no line for the process: not known, never zero
        load = hold.load_at(now_s)
        busy = load.kind != "idle" and not self._world.is_stopped(instance.pid)
        pct = sm_pct(load, instance.pid, now_s) if busy else None
        return DeviceUse(gpu=hold.gpu, vram_bytes=vram, sm_pct=pct)

    def _cpu(self, instance: Instance, now_s: float) -> float:
        base = instance.process.cpu_pct
        return round(base * (1.0 + 0.06 * noise(instance.pid, int(now_s))), 1)

    def _template(self, instance: Instance) -> Process:
        p = instance.process
        if not p.visible:
            gaps = dict.fromkeys(_FOREIGN, "other_namespace")
            if any(not hold.known for hold in p.holds):
                gaps["vram_bytes"] = "other_namespace"
            return Process(pid=instance.pid, kind=p.kind, visible=False, gaps=gaps)
        gaps = {} if p.holds else {"vram_bytes": "not_listed" if self._gpus else "no_driver"}
        return Process(
            pid=instance.pid,
            start_ticks=instance.start_ticks,
            started_at=self._world.iso_at(instance.born_s),
            tty=p.tty,
            framework=p.framework,
            user=p.user,
            uid=UIDS.get(p.user or ""),
            command=p.command if not p.held_by else (),
            name=p.name[:15],
            state="Z" if p.held_by else "R" if p.cpu_pct > 50.0 else "S",
            ppid=p.ppid,
            rss_bytes=int(p.rss_gib * GIB),
            kind=p.kind if p.holds else None,
            stray=p.stray,
            container=p.container,
            slurm_job=p.slurm_job,
            conda_env=p.conda_env,
            tmux=p.tmux,
            cwd=p.cwd if not p.held_by else None,
            rank=p.rank,
            local_rank=p.rank,
            world_size=p.world_size,
            gaps=gaps,
        )


def loads(
    processes: tuple[Process, ...], alive: list[Instance], now_s: float
) -> dict[int, GpuLoad]:
    """What runs on each GPU, added up over the processes; ``alive`` is in the order of the rows."""
    total: dict[int, GpuLoad] = {}
    for row, instance in zip(processes, alive, strict=True):
        for use, hold in zip(row.devices, instance.process.holds, strict=True):
            if use.sm_pct is not None:
                before = total.get(use.gpu) or GpuLoad()
                total[use.gpu] = before.plus(hold.load_at(now_s).kind, use.sm_pct)
    return total


def ledger(
    gpu: GpuSimulation, alive: list[Instance], lingering: list[Instance], now_s: float
) -> Ledger:
    """Who holds this GPU, to the byte."""
    index = gpu.gpu.index
    if gpu.is_lost(now_s):
        return _unreadable(index)
    named: list[LedgerProcess] = []
    hidden: list[tuple[int, int]] = []
    for instance, bytes_ in _holders(index, alive, now_s):
        if instance[1]:
            named.append(LedgerProcess(pid=instance[0], bytes=bytes_))
        else:
            hidden.append((instance[0], bytes_))
    gone = [(i[0], bytes_) for i, bytes_ in _holders(index, lingering, now_s)]
    unaccounted = BASELINE_BYTES + sum(b for _, b in (*hidden, *gone))
    total, reserved = gpu.card.memory_total_bytes, gpu.card.memory_reserved_bytes
    return Ledger(
        gpu=index,
        total_bytes=total,
        free_bytes=total - reserved - sum(p.bytes for p in named) - unaccounted,
        driver_reserved_bytes=reserved,
        processes=tuple(named),
        unaccounted_bytes=unaccounted,
        explanations=_explanations(hidden, gone),
    )


def used_bytes(entry: Ledger) -> int:
    """Without the driver's reserve, as nvidia-smi shows it."""
    return entry.total_bytes - entry.free_bytes - entry.driver_reserved_bytes


def _holders(
    index: int, instances: list[Instance], now_s: float
) -> list[tuple[tuple[int, bool], int]]:
    return [
        ((i.pid, hold.known), i.held_bytes(hold, now_s))
        for i in instances
        for hold in i.process.holds
        if hold.gpu == index
    ]


def _unreadable(index: int) -> Ledger:
    fields = ("total_bytes", "free_bytes", "driver_reserved_bytes")
    return Ledger(
        gpu=index,
        total_bytes=0,
        free_bytes=0,
        driver_reserved_bytes=0,
        processes=(),
        unaccounted_bytes=0,
        gaps=dict.fromkeys(fields, "gpu_lost"),
    )


def _explanations(
    hidden: list[tuple[int, int]], gone: list[tuple[int, int]]
) -> tuple[Explanation, ...]:
    told = []
    if hidden:
        pids, amount = tuple(p for p, _ in hidden), sum(b for _, b in hidden)
        sentence = f"{size(amount)} belong to pid {_list(pids)} of another namespace"
        told.append(Explanation(kind="other_namespace", pids=pids, sentence=sentence))
    if gone:
        pids, amount = tuple(p for p, _ in gone), sum(b for _, b in gone)
        sentence = f"{size(amount)} of pid {_list(pids)}, just gone, are on their way back"
        told.append(Explanation(kind="gone_process", pids=pids, sentence=sentence))
    return tuple(told)


def _list(pids: tuple[int, ...]) -> str:
    return ", ".join(str(pid) for pid in pids)
