"""What a rule sees: this snapshot, its past, the attached runs' trends, and the looks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from cockpit.diagnose.live.look import Looks
from cockpit.diagnose.live.past import Past
from cockpit.model.gpu import Gpu
from cockpit.model.process import DeviceUse, Process
from cockpit.model.run import Run
from cockpit.model.run_history import RunHistory
from cockpit.model.snapshot import Snapshot

SERVERS = frozenset({"vllm", "sglang", "triton", "tgi", "llama.cpp", "ollama"})
"""Frameworks that wait for requests: an idle GPU under them is no trouble."""

SPAWNED = ("--multiprocessing-fork",)
"""The last word of a process that ``multiprocessing`` spawned."""


@dataclass
class View:
    """One tick, as the rules see it."""

    snapshot: Snapshot
    now_s: float
    past: Past
    history: RunHistory
    """Of attached runs, without their first steps."""
    looks: Looks

    @cached_property
    def gpus(self) -> dict[int, Gpu]:
        """Those that answer, by index."""
        return {gpu.index: gpu for gpu in self.snapshot.gpus if gpu.state == "ok"}

    @cached_property
    def runs(self) -> dict[int, Run]:
        """Attached runs that answer, by pid."""
        return {run.pid: run for run in self.snapshot.runs if run.state == "running"}

    @cached_property
    def processes(self) -> dict[int, Process]:
        """All rows, by pid."""
        return {process.pid: process for process in self.snapshot.processes}

    @cached_property
    def on_gpu(self) -> dict[int, list[tuple[Process, DeviceUse]]]:
        """Who holds memory of a GPU."""
        found: dict[int, list[tuple[Process, DeviceUse]]] = {}
        for process in self.snapshot.processes:
            for use in process.devices:
                found.setdefault(use.gpu, []).append((process, use))
        return found

    @cached_property
    def ranks(self) -> list[Process]:
        """Every process on a GPU that is one of several."""
        return [
            process
            for process in self.snapshot.processes
            if is_rank(process) and process.devices and process.visible
        ]

    @cached_property
    def jobs(self) -> list[tuple[Process, ...]]:
        """Ranks of one job on this machine, two or more, in the order of their ranks."""
        groups: dict[tuple[object, ...], list[Process]] = {}
        for process in self.ranks:
            key = (process.ppid, process.uid, process.world_size, process.slurm_job)
            groups.setdefault(key, []).append(process)
        return [
            tuple(sorted(group, key=lambda one: (number_of(one), one.pid)))
            for group in groups.values()
            if len(group) > 1
        ]


def other_gpus(view: View, gpu: int | None) -> str:
    """Those that answer without this one, as CUDA_VISIBLE_DEVICES has them; "" for none."""
    if gpu is None:
        return ""
    return ",".join(str(index) for index in sorted(view.gpus) if index != gpu)


def is_rank(process: Process) -> bool:
    """One of several by its environment, or a child of ``torch.multiprocessing.spawn``."""
    if process.rank is not None:
        return process.world_size is None or process.world_size > 1
    return process.command[-1:] == SPAWNED


def number_of(process: Process) -> int:
    """Its rank; where the environment tells none, that of its first GPU."""
    return process.rank if process.rank is not None else process.devices[0].gpu


def main_gpu(process: Process) -> int | None:
    """The GPU on which it holds most."""
    if not process.devices:
        return None
    return max(process.devices, key=lambda use: use.vram_bytes or 0).gpu
