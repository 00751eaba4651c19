"""The parts a demo scenario is written with: GPUs, processes, their loads and lives. Data only."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from cockpit.model.event import EventKind, Severity
from cockpit.model.gpu import Driver
from cockpit.model.process import ProcessKind, Relative, Stray
from cockpit.model.text import GIB

LoadKind = Literal["idle", "train", "infer", "dips", "wave", "hang"]
Model = Literal["H200", "RTX 4090"]


class Load(Struct, frozen=True):
    """What a process does to the SMs of one GPU."""

    kind: LoadKind = "idle"
    level_pct: float = 0.0
    period_s: float = 10.0
    """Of ``dips`` (a checkpoint, a validation) and ``wave`` (a data loader that lags)."""


_WAITING = Load("hang", 100.0)


class Hold(Struct, frozen=True, kw_only=True):
    """Memory of one GPU that a process holds."""

    gpu: int
    gib: float
    load: Load = Load()
    grow_gib_per_s: float = 0.0
    swing_gib: float = 0.0
    """Comes and goes with a period of 20 s: activations, a batch of longer sequences."""
    known: bool = True
    """False: the driver does not say how much (another namespace); the ledger cannot name it."""
    hangs_at_s: float | None = None
    """From then on it only waits for the other ranks."""

    def load_at(self, now_s: float) -> Load:
        """The load, or the wait that it has become."""
        return self.load if self.hangs_at_s is None or now_s < self.hangs_at_s else _WAITING

    def size_bytes(self, age_s: float) -> int:
        """At this age, in the driver's pages of 2 MiB."""
        swing = self.swing_gib * abs(age_s % 20.0 / 10.0 - 1.0)
        return int((self.gib + self.grow_gib_per_s * age_s + swing) * (GIB >> 21)) << 21


class Life(Struct, frozen=True, kw_only=True):
    """When a process is there, in seconds since the demo began."""

    born_s: float
    """Negative: it was there before."""
    lives_s: float | None = None
    every_s: float | None = None
    """A successor with another pid is born this often."""

    def generation(self, now_s: float) -> int | None:
        """The number of the one that lives now."""
        age = now_s - self.born_s
        if age < 0:
            return None
        number = int(age // self.every_s) if self.every_s else 0
        if self.lives_s is not None and age - number * (self.every_s or 0.0) >= self.lives_s:
            return None
        return number


class DemoProcess(Struct, frozen=True, kw_only=True):
    """One process, or a row of successors."""

    pid: int
    user: str | None
    command: tuple[str, ...]
    holds: tuple[Hold, ...]
    life: Life
    ppid: int = 1
    name: str = "python"
    kind: ProcessKind = "compute"
    cpu_pct: float = 100.0
    rss_gib: float = 4.0
    tty: str | None = None
    framework: str | None = "pytorch"
    visible: bool = True
    stray: Stray | None = None
    container: str | None = None
    slurm_job: str | None = None
    conda_env: str | None = None
    tmux: str | None = None
    cwd: str | None = None
    rank: int | None = None
    world_size: int | None = None
    job: str | None = None
    """Processes of one name are the ranks of one job."""
    ignores_term: bool = False
    held_by: int | None = None
    """It is a zombie; this pid keeps the device open for it."""
    protected: str | None = None
    """Why the policy never offers to end it."""
    ends_with_oom: bool = False


class Throttle(Struct, frozen=True, kw_only=True):
    """What slows a GPU down, and since when."""

    reasons: tuple[str, ...]
    from_s: float
    temperature_c: int
    clock_share: float
    power_share: float


class DemoGpu(Struct, frozen=True, kw_only=True):
    """One GPU of a scenario."""

    index: int
    model: Model = "H200"
    numa_node: int = 0
    pci_bus_id: str
    throttle: Throttle | None = None
    lost_at_s: float | None = None


class DemoEvent(Struct, frozen=True, kw_only=True):
    """An event that the scenario itself brings."""

    at_s: float
    gpu: int | None
    kind: EventKind
    sentence: str
    severity: Severity
    xid: int | None = None


class DemoHost(Struct, frozen=True, kw_only=True):
    """The machine round the GPUs: the middle of each value."""

    name: str
    cpu_count: int
    memory_gib: int
    memory_used_gib: float
    cpu_pct: float
    disk_read_bytes_per_s: float = 0.0
    shm_used_gib: float = 0.0


class Scenario(Struct, frozen=True, kw_only=True):
    """A machine and its story."""

    name: str
    title: str
    """One sentence, as ``--demo`` lists it."""
    host: DemoHost
    driver: Driver
    gpus: tuple[DemoGpu, ...] = ()
    processes: tuple[DemoProcess, ...] = ()
    relatives: tuple[Relative, ...] = ()
    events: tuple[DemoEvent, ...] = ()
    me: str = "ml1"
    """The user that the cockpit plays."""
