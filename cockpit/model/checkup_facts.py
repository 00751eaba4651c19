"""What is read for a checkup, before anything is judged. None: not known."""

from __future__ import annotations

from msgspec import Struct

from cockpit.model.snapshot import Snapshot


class PciDevice(Struct, frozen=True, kw_only=True):
    """An NVIDIA GPU on the PCI bus (vendor 0x10de, a display or 3D controller)."""

    address: str
    device: str
    """Four hexadecimal digits."""
    driver: str | None
    """The kernel driver that is bound to it: ``nvidia``, ``nouveau``, ``vfio-pci`` …"""


class KernelFacts(Struct, frozen=True, kw_only=True):
    """The kernel's side of the driver."""

    release: str
    gpus: tuple[PciDevice, ...] | None = None
    """None: sysfs shows no PCI bus at all."""
    module_version: str | None = None
    """Of the loaded module; None: not loaded, or hidden from a sandbox."""
    open_module: bool | None = None
    modules: tuple[str, ...] = ()
    """Loaded ones of NVIDIA, and nouveau."""
    module_on_disk: bool | None = None
    """A module file exists for the running kernel."""
    nvswitches: int = 0
    fabric_manager: bool | None = None
    """A process of that name runs; None: other processes cannot be seen from here."""
    wsl: bool = False
    selinux: bool = False
    """It is enforcing."""


class DeviceNode(Struct, frozen=True, kw_only=True):
    """A file /dev/nvidia* as the job sees it."""

    path: str
    mode: str
    """As ``ls -l`` prints it."""
    owner: str
    group: str


class JobFacts(Struct, frozen=True, kw_only=True):
    """Who is examined."""

    python: str | None
    """None: none was found; ``why`` says why."""
    why: str = ""
    pid: int | None = None
    user: str | None = None
    named: bool = False
    """By --python or --pid, not found on PATH."""
    outside: bool = False
    """It has a root file system of its own, which we do not enter."""
    own_devices: bool = False
    """It has mounts of its own: device files could not be tried by opening them."""
    container: str | None = None
    cpu_s: float | None = None
    """CPU time of the process and its ended threads."""
    variables: dict[str, str] = {}
    """The few of its environment that CUDA, NCCL and the container tools read."""


class Child(Struct, frozen=True, kw_only=True):
    """How a child process of the examination ended."""

    failure: str | None = None
    """One sentence: could not be started, was cut off, ended early, or answered nonsense."""
    cut_off_s: float | None = None
    """The time limit that it passed."""
    begun: str | None = None
    """What it was about to do when it was last heard."""
    words: str = ""
    """The end of what it wrote to stderr."""


class InterpreterFacts(Struct, frozen=True, kw_only=True):
    """The job's interpreter about itself, before it imports anything big."""

    version: str | None = None
    prefix: str | None = None
    has_torch: bool | None = None
    torch_folder: str | None = None


class CudaDevice(Struct, frozen=True, kw_only=True):
    """A device as the CUDA driver counts it under the job's environment."""

    ordinal: int
    name: str | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None
    capability: str | None = None


class CudaFacts(Struct, frozen=True, kw_only=True):
    """The CUDA driver library in a child with the job's environment."""

    opened: dict[str, str] = {}
    """Device file → ``ok``, or the name of the error of open()."""
    library: str | None = None
    """The file that libcuda.so.1 came from."""
    library_error: str | None = None
    init: int | None = None
    """Answer of cuInit: 0 is success."""
    init_unmasked: int | None = None
    """The same without CUDA_VISIBLE_DEVICES; asked only when the first answer was 100."""
    version: int | None = None
    """1000 * major + 10 * minor of the newest CUDA that it serves."""
    devices: tuple[CudaDevice, ...] = ()


class SmallRun(Struct, frozen=True, kw_only=True):
    """A matmul and three training steps on one device, against the same on the CPU."""

    ordinal: int
    """In the child's counting: the idle devices of the job, in their order."""
    error: str | None = None
    """Of the exception, its traceback included."""
    context_s: float | None = None
    """Until the first number was on the device: mostly the making of a context."""
    compute_s: float | None = None
    matmul_difference: float | None = None
    """Largest difference to the CPU, relative to the largest element."""
    losses: tuple[float | None, ...] = ()
    losses_cpu: tuple[float | None, ...] = ()
    gradient_difference: float | None = None


class TorchFacts(Struct, frozen=True, kw_only=True):
    """torch in the job's interpreter."""

    version: str | None = None
    cuda: str | None = None
    hip: str | None = None
    architectures: tuple[str, ...] = ()
    available: bool | None = None
    device_count: int | None = None
    nccl: str | None = None
    complaint: str | None = None
    """Warnings and exceptions of the import and of the first question to CUDA."""
    import_s: float | None = None
    torchvision: str | None = None
    torchaudio: str | None = None
    installer: str | None = None
    installed_at: str | None = None
    small: tuple[SmallRun, ...] = ()


class LimitFacts(Struct, frozen=True, kw_only=True):
    """What the job may use of the machine."""

    shm_total_bytes: int | None = None
    shm_free_bytes: int | None = None
    memory_limit_bytes: int | None = None
    memory_used_bytes: int | None = None
    """Without page cache that can be dropped."""
    cpu_quota: float | None = None
    """CPUs' worth of time that the cgroup allows."""
    throttled_share: float | None = None
    """Of the scheduler's periods since the cgroup was made."""
    cpus: int | None = None
    """Allowed by affinity and cpuset."""
    locked_memory_bytes: int | None = None
    """Soft RLIMIT_MEMLOCK; None: unlimited or not known."""


class Facts(Struct, frozen=True, kw_only=True):
    """Everything; a part that was not read is None and named in ``unread``."""

    job: JobFacts
    snapshot: Snapshot
    kernel: KernelFacts | None = None
    nodes: tuple[DeviceNode, ...] | None = None
    interpreter: InterpreterFacts | None = None
    driver: CudaFacts | None = None
    torch: TorchFacts | None = None
    limits: LimitFacts | None = None
    children: dict[str, Child] = {}
    """Of the sources interpreter, driver and torch."""
    unread: dict[str, str] = {}
    """Source → one sentence why it is missing."""
    took_s: dict[str, float] = {}
    tried: tuple[int, ...] = ()
    """CUDA ordinals that the small success was asked for, in the order of the child's own."""
