"""The page of one simulated process: its family, environment and open device files."""

from __future__ import annotations

from collections.abc import Iterable

from cockpit.collect.demo_world import Instance, World
from cockpit.errors import TargetGoneError
from cockpit.model.process import Process, ProcessDetails, Relative
from cockpit.model.secret import HIDDEN


def relatives_of(known: tuple[Relative, ...], processes: Iterable[Process]) -> tuple[Relative, ...]:
    """Those of ``known`` that are ancestors of the processes, in the order of ``known``."""
    by_pid = {r.pid: r for r in known}
    wanted: set[int] = set()
    for process in processes:
        wanted.update(r.pid for r in _chain(process.ppid, by_pid))
    return tuple(r for r in known if r.pid in wanted)


def details_of(world: World, pid: int, start_ticks: int | None, now_s: float) -> ProcessDetails:
    """Raises TargetGoneError when the pid is not there, or is another process now."""
    alive = world.alive(now_s)
    found = next((i for i in alive if i.pid == pid), None)
    if found is None:
        raise TargetGoneError(f"pid {pid} does not exist any more.")
    if start_ticks is not None and found.process.visible and start_ticks != found.start_ticks:
        raise TargetGoneError(f"pid {pid} belongs to a later process now.")
    if not found.process.visible:
        return _foreign(found)
    return _details(world, found, alive)


def _details(world: World, found: Instance, alive: list[Instance]) -> ProcessDetails:
    p = found.process
    mine = p.user == world.scenario.me
    by_pid = {r.pid: r for r in world.scenario.relatives}
    zombie = p.held_by is not None
    gaps = {} if mine else dict.fromkeys(("environment", "executable", "wchan"), "no_permission")
    return ProcessDetails(
        pid=found.pid,
        start_ticks=found.start_ticks,
        ancestors=tuple(_chain(p.ppid, by_pid)),
        children=tuple(_as_relative(i) for i in alive if i.process.ppid == found.pid),
        environment=_environment(found) if mine and not zombie else None,
        executable=_executable(p.command) if mine and not zombie else None,
        session_id=p.ppid if p.tty else found.pid,
        group_id=p.ppid if p.rank is not None else found.pid,
        threads=1 if zombie else 86 + found.pid % 40,
        wchan=("do_exit" if zombie else "futex_wait_queue") if mine else None,
        device_files=() if zombie else _device_files(found),
        cgroup=_cgroup(found),
        limits=(("memlock", "unlimited"), ("nofile", "1048576"), ("nproc", "unlimited")),
        gaps=gaps,
    )


def _foreign(found: Instance) -> ProcessDetails:
    fields = (f for f in ProcessDetails.__struct_fields__ if f not in ("pid", "gaps"))
    return ProcessDetails(
        pid=found.pid, start_ticks=None, gaps=dict.fromkeys(fields, "other_namespace")
    )


def _chain(ppid: int | None, by_pid: dict[int, Relative]) -> list[Relative]:
    chain: list[Relative] = []
    while ppid is not None and (parent := by_pid.get(ppid)) is not None:
        chain.append(parent)
        ppid = parent.ppid
    return chain


def _as_relative(instance: Instance) -> Relative:
    p = instance.process
    return Relative(pid=instance.pid, ppid=p.ppid, name=p.name, command=p.command, user=p.user)


def _environment(found: Instance) -> tuple[tuple[str, str], ...]:
    p = found.process
    values = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "HF_TOKEN": HIDDEN,
        "HOME": f"/home/{p.user}",
        "LANG": "C.UTF-8",
        "NCCL_DEBUG": "WARN",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "USER": p.user or "",
        "WANDB_API_KEY": HIDDEN,
    }
    if p.conda_env:
        values["CONDA_DEFAULT_ENV"] = p.conda_env
    if p.rank is not None:
        values |= {"RANK": str(p.rank), "LOCAL_RANK": str(p.rank)}
        values |= {"WORLD_SIZE": str(p.world_size), "MASTER_ADDR": "127.0.0.1"}
    elif p.holds:
        values["CUDA_VISIBLE_DEVICES"] = ",".join(str(hold.gpu) for hold in p.holds)
    return tuple(sorted(values.items()))


def _executable(command: tuple[str, ...]) -> str | None:
    if not command:
        return None
    return command[0] if command[0].startswith("/") else f"/opt/conda/envs/llm/bin/{command[0]}"


def _device_files(found: Instance) -> tuple[str, ...]:
    gpus = tuple(f"/dev/nvidia{hold.gpu}" for hold in found.process.holds)
    return (*gpus, "/dev/nvidia-uvm", "/dev/nvidiactl")


def _cgroup(found: Instance) -> str:
    p = found.process
    if p.container:
        return "/system.slice/docker-" + p.container.split(":")[-1] + ".scope"
    if p.slurm_job:
        return f"/system.slice/slurmstepd.scope/job_{p.slurm_job}/step_0"
    return "/user.slice/user-1001.slice/session-14.scope"
