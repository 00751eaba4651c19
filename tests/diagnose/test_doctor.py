"""Facts in, checks out: each step with what it must see, and with what it must not fire on."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.diagnose.doctor import LADDER, judge
from cockpit.diagnose.tables.causes import CAUSES
from cockpit.model.checkup import Check
from cockpit.model.checkup_facts import (
    Child,
    CudaDevice,
    CudaFacts,
    DeviceNode,
    Facts,
    InterpreterFacts,
    JobFacts,
    KernelFacts,
    LimitFacts,
    PciDevice,
    SmallRun,
    TorchFacts,
)
from cockpit.model.gpu import Driver, DriverError, Gpu, MigInstance, TopologyLink
from cockpit.model.host import Host
from cockpit.model.process import DeviceUse, Process
from cockpit.model.snapshot import SamplerStatus, Snapshot
from cockpit.model.text import GIB, MIB

UUIDS = ("6d3aeded-bc55-1092-d7e0-7b25a85fd120", "11111111-bc55-1092-d7e0-7b25a85fd120")
GPUS = tuple(
    Gpu(
        index=index,
        uuid=f"GPU-{uuid}",
        name="NVIDIA H200",
        pci_bus_id=f"00000000:{index + 6:02x}:00.0",
        compute_capability="9.0",
        memory_total_bytes=140 * GIB,
        memory_used_bytes=500 * MIB,
        ecc_uncorrected=0,
        remapped_rows_pending=False,
        remapped_rows_failed=False,
        pcie_generation=5,
        pcie_generation_max=5,
        pcie_width=16,
        pcie_width_max=16,
        mig_enabled=False,
        persistence_mode=True,
    )
    for index, uuid in enumerate(UUIDS)
)
DEVICES = tuple(
    CudaDevice(ordinal=i, name="NVIDIA H200", uuid=uuid, capability="9.0")
    for i, uuid in enumerate(UUIDS)
)
NODES = tuple(
    DeviceNode(path=f"/dev/{name}", mode="crw-rw-rw-", owner="root", group="root")
    for name in ("nvidia-uvm", "nvidia0", "nvidia1", "nvidiactl")
)
LOSSES = (2.5, 2.4, 2.3)
RUNS = tuple(
    SmallRun(
        ordinal=i,
        context_s=0.5,
        compute_s=0.2,
        matmul_difference=1e-6,
        losses=LOSSES,
        losses_cpu=LOSSES,
        gradient_difference=1e-6,
    )
    for i in (0, 1)
)
TORCH = TorchFacts(
    version="2.13.0+cu130",
    cuda="13.0",
    architectures=("sm_75", "sm_80", "sm_90", "sm_100", "compute_120"),
    available=True,
    device_count=2,
    nccl="2.29.3",
    import_s=1.0,
    small=RUNS,
)
LINK = TopologyLink(a=0, b=1, level="NODE", nvlinks=18, p2p="ok")
KERNEL = KernelFacts(
    release="6.8.0",
    gpus=tuple(
        PciDevice(address=f"0000:0{n}:00.0", device="2335", driver="nvidia") for n in (6, 7)
    ),
    module_version="580.159.04",
    open_module=True,
    modules=("nvidia", "nvidia_uvm"),
    module_on_disk=True,
)
CUDA = CudaFacts(
    opened={node.path: "ok" for node in NODES},
    library="/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04",
    init=0,
    version=13000,
    devices=DEVICES,
)
HEALTHY = Facts(
    job=JobFacts(python="/venv/bin/python", user="lab", named=True),
    snapshot=Snapshot(
        taken_at="2026-11-30T16:00:00.000Z",
        host=Host(),
        driver=Driver(version="580.159.04", cuda_version="13.0", nvml_version="580.159.04"),
        topology=(LINK,),
        gpus=GPUS,
        sampler=SamplerStatus(interval_s=1.0),
    ),
    kernel=KERNEL,
    nodes=NODES,
    interpreter=InterpreterFacts(version="3.11.7", prefix="/venv", has_torch=True),
    driver=CUDA,
    torch=TORCH,
    limits=LimitFacts(shm_total_bytes=64 * GIB, shm_free_bytes=60 * GIB, cpus=32),
    children={name: Child() for name in ("interpreter", "driver", "torch")},
    tried=(0, 1),
)


def with_(facts: Facts = HEALTHY, /, **changes: Any) -> Facts:
    """``kernel__gpus=()`` changes a part of a part; ``error`` and ``cvd`` are short for theirs."""
    for name, value in changes.items():
        if name == "cvd":
            name, value = "job__variables", {"CUDA_VISIBLE_DEVICES": value}
        if name == "error":
            message = DriverError(code=value, message="NVML says no.")
            name, value = "snapshot__driver", Driver(version=None, error=message)
            facts = with_(facts, snapshot__gpus=())
        part, _, rest = name.partition("__")
        if rest:
            value = replace(getattr(facts, part), **{rest: value})
        facts = replace(facts, **{part: value})
    return facts


def check(facts: Facts, id_: str) -> Check:
    return next(one for one in judge(facts).checks if one.id == id_)


def gpus(**changes: Any) -> tuple[Gpu, ...]:
    """Both GPUs, the first one changed."""
    return (replace(GPUS[0], **changes), GPUS[1])


IMPORT_FAILED = (
    "Traceback (most recent call last):\nRuntimeError: operator torchvision::nms does not exist"
)
NO_IMAGE = (
    "Traceback (most recent call last):\n"
    "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device"
)
NO_KERNEL = KernelFacts(release="6.8.0", gpus=(), module_version=None)
IDLE_MIG = gpus(mig_enabled=True)
MIG = gpus(
    mig_enabled=True,
    mig_instances=tuple(
        MigInstance(
            index=i,
            uuid=f"MIG-{i}aaa",
            gpu_instance=i,
            compute_instance=0,
            profile="3g.71gb",
            memory_total_bytes=None,
            memory_used_bytes=None,
        )
        for i in (0, 1)
    ),
)

NOT_WELL: list[tuple[str, Facts, str, str, str | None]] = [
    # id, facts, status, words of the sentence, cause
    (
        "pci",
        with_(kernel__gpus=(), error="library_not_found"),
        "fail",
        "No NVIDIA GPU",
        "container_without_gpu",
    ),
    (
        "kernel_module",
        with_(kernel__gpus=(replace(KERNEL.gpus[0], driver="nouveau"),)),
        "fail",
        "nouveau",
        "nouveau",
    ),
    (
        "kernel_module",
        with_(kernel__gpus=(replace(KERNEL.gpus[0], driver="vfio-pci"),)),
        "fail",
        "virtual machine",
        None,
    ),
    (
        "kernel_module",
        with_(kernel__module_version=None, error="driver_not_loaded"),
        "fail",
        "not loaded",
        "module_not_built_for_kernel",
    ),
    (
        "kernel_module",
        with_(kernel__gpus=(replace(KERNEL.gpus[0], driver=None),), kernel__open_module=False),
        "fail",
        "drives none",
        "needs_open_module",
    ),
    (
        "device_nodes",
        with_(nodes=(), job__container="docker:1"),
        "fail",
        "no device files",
        "container_without_gpu",
    ),
    (
        "device_nodes",
        with_(driver__opened={"/dev/nvidiactl": "EPERM", "/dev/nvidia0": "EPERM"}),
        "fail",
        "cannot be opened",
        "cgroup_devices_lost",
    ),
    (
        "device_nodes",
        with_(driver__opened={"/dev/nvidiactl": "EACCES"}),
        "fail",
        "cannot be opened",
        "dev_permissions",
    ),
    (
        "device_nodes",
        with_(driver__opened={"/dev/nvidiactl": "ok", "/dev/nvidia1": "EPERM"}),
        "warn",
        "cannot be opened",
        "cgroup_devices_lost",
    ),
    (
        "device_nodes",
        with_(nodes=NODES[1:], driver__init=999),
        "fail",
        "/dev/nvidia-uvm",
        "uvm_state",
    ),
    ("nvml", with_(error="lib_rm_version_mismatch"), "fail", "NVML says no", "nvml_mismatch"),
    (
        "nvml",
        with_(error="driver_not_loaded"),
        "fail",
        "NVML says no",
        "module_not_built_for_kernel",
    ),
    ("nvml", with_(error="no_permission"), "fail", "NVML says no", "dev_permissions"),
    ("nvml", with_(error="unknown"), "fail", "NVML says no", None),
    (
        "nvml",
        with_(error="unknown", job__container="docker:1"),
        "fail",
        "NVML says no",
        "cgroup_devices_lost",
    ),
    (
        "nvml",
        with_(error="no_devices", kernel__open_module=False),
        "fail",
        "NVML says no",
        "needs_open_module",
    ),
    (
        "nvml",
        with_(snapshot__gpus=gpus(state="lost")),
        "fail",
        "GPU 0 fell off the bus",
        "gpu_off_bus",
    ),
    (
        "nvml",
        with_(snapshot__gpus=gpus(state="lost"), cvd="1"),
        "warn",
        "GPU 0 fell off the bus",
        "gpu_off_bus",
    ),
    (
        "nvml",
        with_(snapshot__gpus=gpus(state="stale", age_s=9.0)),
        "warn",
        "did not answer",
        "gsp_timeout",
    ),
    (
        "libcuda",
        with_(driver=CudaFacts(library_error="no such file")),
        "fail",
        "not found",
        "container_without_gpu",
    ),
    ("libcuda", with_(driver__init=802), "fail", "fabric", "fabric_manager"),
    ("libcuda", with_(driver__init=803), "fail", "differ", "nvml_mismatch"),
    ("libcuda", with_(driver__init=804), "fail", "cuda-compat", "compat_libcuda"),
    ("libcuda", with_(driver__init=999), "fail", "unknown error", "uvm_state"),
    ("libcuda", with_(driver__init=34), "fail", "stub", None),
    ("libcuda", with_(driver__init=100), "fail", "no device", "container_without_gpu"),
    (
        "libcuda",
        with_(driver__init=100, driver__init_unmasked=100, cvd="0"),
        "fail",
        "no device",
        "container_without_gpu",
    ),
    (
        "libcuda",
        with_(children={**HEALTHY.children, "driver": Child(cut_off_s=30, begun="cuInit")}),
        "fail",
        "within 30 s (cuInit)",
        None,
    ),
    ("visible_devices", with_(cvd=""), "fail", "leaves no GPU", "cvd_hides_gpus"),
    ("visible_devices", with_(cvd="-1"), "fail", "leaves no GPU", "cvd_hides_gpus"),
    ("visible_devices", with_(cvd="NoDevFiles"), "fail", "leaves no GPU", "cvd_hides_gpus"),
    ("visible_devices", with_(cvd="7"), "fail", "leaves no GPU", "cvd_hides_gpus"),
    ("visible_devices", with_(cvd="1,1"), "fail", "leaves no GPU", "cvd_hides_gpus"),
    ("visible_devices", with_(cvd="GPU-9999"), "fail", "GPU-9999", "cvd_bad_uuid"),
    ("visible_devices", with_(cvd="1,7"), "warn", "GPU 1 is left", "cvd_hides_gpus"),
    ("visible_devices", with_(cvd="GPU-6d3a,GPU-x"), "warn", "GPU 0 is left", "cvd_bad_uuid"),
    (
        "visible_devices",
        with_(cvd="MIG-0aaa,MIG-1aaa", snapshot__gpus=MIG),
        "warn",
        "first MIG",
        "mig_single_instance",
    ),
    (
        "interpreter",
        with_(job__python=None, job__named=False, job__why="none was found"),
        "warn",
        "None was found",
        None,
    ),
    ("interpreter", with_(interpreter__has_torch=False), "fail", "has no torch", None),
    (
        "interpreter",
        with_(children={"interpreter": Child(failure="It ended without a word.")}),
        "fail",
        "without a word",
        None,
    ),
    (
        "torch_build",
        with_(torch=replace(TORCH, version="2.13.0+cpu", cuda=None)),
        "fail",
        "without CUDA",
        "cpu_wheel",
    ),
    ("torch_build", with_(torch=replace(TORCH, cuda=None, hip="6.4")), "fail", "AMD", None),
    (
        "torch_build",
        with_(torch=TorchFacts(complaint=IMPORT_FAILED)),
        "fail",
        "Importing torch failed",
        "torchvision_mismatch",
    ),
    ("driver_for_wheel", with_(driver__version=12020), "fail", "up to 12.2", "driver_too_old"),
    (
        "architectures",
        with_(torch__architectures=("sm_50", "sm_80", "sm_86")),
        "fail",
        "no code for NVIDIA H200",
        "arch_missing",
    ),
    (
        "container",
        with_(
            job__container="docker:1",
            job__variables={"NVIDIA_VISIBLE_DEVICES": "void"},
            snapshot__gpus=(),
        ),
        "fail",
        "without a GPU",
        "container_without_gpu",
    ),
    (
        "container",
        with_(job__container="docker:1", job__variables={"NVIDIA_DRIVER_CAPABILITIES": "utility"}),
        "warn",
        "compute",
        None,
    ),
    (
        "shared_memory",
        with_(limits__shm_total_bytes=64 * MIB),
        "warn",
        "Docker's default",
        "shm_too_small",
    ),
    ("shared_memory", with_(limits__shm_total_bytes=GIB), "warn", "are wanted", "shm_too_small"),
    ("shared_memory", with_(limits__shm_free_bytes=GIB), "warn", "nearly full", None),
    (
        "cgroup_limits",
        with_(limits__memory_limit_bytes=10 * GIB, limits__memory_used_bytes=int(9.8 * GIB)),
        "warn",
        "nearly used up",
        "host_oom",
    ),
    (
        "cgroup_limits",
        with_(limits__cpu_quota=1.0),
        "warn",
        "CPU time is short",
        "cpu_oversubscribed",
    ),
    (
        "cgroup_limits",
        with_(limits__throttled_share=0.3),
        "warn",
        "CPU time is short",
        "cpu_oversubscribed",
    ),
    (
        "fabric_manager",
        with_(kernel__nvswitches=4, kernel__fabric_manager=False, driver__init=999),
        "warn",
        "no process of Fabric Manager",
        "fabric_manager",
    ),
    ("mig", with_(snapshot__gpus=MIG), "warn", "a process uses one", "mig_single_instance"),
    ("mig", with_(snapshot__gpus=IDLE_MIG), "warn", "an instance is missing", None),
    ("persistence", with_(snapshot__gpus=gpus(persistence_mode=False)), "warn", "off: GPU 0", None),
    ("pcie_link", with_(snapshot__gpus=gpus(pcie_width=4)), "warn", "narrower", "pcie_width"),
    (
        "memory_health",
        with_(snapshot__gpus=gpus(remapped_rows_failed=True)),
        "fail",
        "cannot be repaired",
        "remap_failure",
    ),
    (
        "memory_health",
        with_(snapshot__gpus=gpus(remapped_rows_pending=True)),
        "warn",
        "waits",
        "ecc_contained",
    ),
    (
        "memory_health",
        with_(snapshot__gpus=gpus(ecc_uncorrected=3)),
        "warn",
        "3 uncorrected",
        "ecc_dbe",
    ),
    (
        "peer_to_peer",
        with_(snapshot__topology=(replace(LINK, p2p="chipset_not_supported"),)),
        "warn",
        "1 pair",
        None,
    ),
    ("nccl", with_(job__variables={"NCCL_P2P_DISABLE": "1"}), "warn", "NCCL_P2P_DISABLE=1", None),
    ("job_on_gpu", with_(job__pid=77, job__cpu_s=300.0), "warn", "not on a GPU", "code_uses_cpu"),
    (
        "small_success",
        with_(torch__small=(replace(RUNS[0], matmul_difference=0.4), RUNS[1])),
        "fail",
        "GPU 0: a matmul differs",
        "device_state_bad",
    ),
    (
        "small_success",
        with_(torch__small=(RUNS[0], replace(RUNS[1], losses=(2.5, None, 2.3)))),
        "fail",
        "GPU 1: a loss is not finite",
        "device_state_bad",
    ),
    (
        "small_success",
        with_(torch__small=(replace(RUNS[0], gradient_difference=None), RUNS[1])),
        "fail",
        "a gradient",
        "device_state_bad",
    ),
    (
        "small_success",
        with_(torch__small=(SmallRun(ordinal=0, error=NO_IMAGE), RUNS[1])),
        "fail",
        "no kernel image",
        "arch_missing",
    ),
    (
        "small_success",
        with_(
            torch__small=RUNS[:1],
            children={
                **HEALTHY.children,
                "torch": Child(failure="it was cut off while computing on device 1"),
            },
        ),
        "fail",
        "computing on device 1",
        None,
    ),
    (
        "small_success",
        with_(
            tried=(),
            torch__small=(),
            torch__available=False,
            torch__complaint="CUDA error: system not yet initialized",
        ),
        "fail",
        "finds no CUDA device",
        "fabric_manager",
    ),
]


@pytest.mark.parametrize(
    ("id_", "facts", "status", "words", "cause"),
    NOT_WELL,
    ids=[f"{row[0]}-{row[4] or row[3]}" for row in NOT_WELL],
)
def test_a_step_that_is_not_well_says_so_with_its_cause(
    id_: str, facts: Facts, status: str, words: str, cause: str | None
) -> None:
    found = check(facts, id_)
    assert (found.status, found.cause) == (status, cause), found
    assert words in found.sentence
    assert found.sentence.endswith((".", "!", "?")) or id_ == "small_success"
    assert cause is None or cause in CAUSES
    assert "{" not in "".join(fix.value for fix in found.fixes if "format" not in fix.value)


def test_a_healthy_machine_passes_every_step_that_applies() -> None:
    found = judge(HEALTHY)
    assert [one.id for one in found.checks] == [step.id for step in LADDER]
    assert {one.id for one in found.checks if one.status == "not_applicable"} == {
        "container",
        "fabric_manager",
        "job_on_gpu",
    }
    assert all(one.status in ("pass", "not_applicable") for one in found.checks), found
    assert found.finding is None
    success = found.checks[-1]
    assert success.status == "pass"
    assert "GPUs 0, 1" in success.sentence


@pytest.mark.parametrize(
    ("id_", "facts"),
    [
        (
            "kernel_module",
            with_(kernel__gpus=(KERNEL.gpus[0], replace(KERNEL.gpus[1], driver="vfio-pci"))),
        ),
        ("device_nodes", with_(nodes=NODES[1:])),
        ("libcuda", with_(driver__init=100, driver__init_unmasked=0, cvd="")),
        ("visible_devices", with_(cvd="1,0")),
        ("visible_devices", with_(cvd=" 1")),
        ("visible_devices", with_(cvd="GPU-6d3a")),
        ("visible_devices", with_(cvd="MIG-0aaa", snapshot__gpus=MIG)),
        ("driver_for_wheel", with_(torch__cuda="12.8", driver__version=12040)),
        ("architectures", with_(torch__architectures=("sm_80", "compute_80"))),
        ("architectures", with_(torch__architectures=("sm_90a",))),
        ("fabric_manager", with_(kernel__nvswitches=4, kernel__fabric_manager=None)),
        ("pcie_link", with_(snapshot__gpus=gpus(pcie_generation=1))),
        ("memory_health", with_(snapshot__gpus=gpus(ecc_corrected=9))),
        (
            "peer_to_peer",
            with_(snapshot__topology=(replace(LINK, nvlinks=0, p2p="chipset_not_supported"),)),
        ),
        ("nccl", with_(job__variables={"NCCL_P2P_DISABLE": "0"})),
        (
            "small_success",
            with_(torch__small=tuple(replace(run, matmul_difference=4e-4) for run in RUNS)),
        ),
    ],
)
def test_a_step_does_not_fire_on_what_is_normal(id_: str, facts: Facts) -> None:
    assert check(facts, id_).status == "pass", check(facts, id_)


def test_the_first_failed_step_is_the_finding_and_later_ones_wait_for_it() -> None:
    found = judge(with_(cvd="", driver__init=100, driver__init_unmasked=0, driver__devices=()))
    assert found.finding is not None
    assert (found.finding.cause, found.finding.facts["step"]) == (
        "cvd_hides_gpus",
        "visible_devices",
    )
    assert found.finding.facts["cvd"] == ""
    assert any("unset CUDA_VISIBLE_DEVICES" in fix.value for fix in found.finding.fixes)
    success = found.checks[-1]
    assert (success.status, success.sentence) == (
        "not_applicable",
        "Not tried: Visible devices failed.",
    )


def test_a_container_of_a_machine_without_a_gpu_is_not_first_told_to_start_anew() -> None:
    facts = with_(kernel__gpus=(), error="library_not_found", job__container="docker:1")
    found = judge(facts).finding
    assert found is not None
    assert found.fixes[0].value == "lspci -d 10de:"


def test_no_gpu_at_all_is_not_called_one_without_a_peer() -> None:
    by_id = {one.id: one.sentence for one in judge(with_(error="library_not_found")).checks}
    assert by_id["peer_to_peer"] == "There is no GPU."


def test_a_cause_that_is_not_known_is_called_unknown() -> None:
    found = judge(with_(error="unknown")).finding
    assert found is not None
    assert (found.flow, found.cause, found.title) == ("unknown", "unknown", "NVML says no.")


def test_where_nvml_answers_a_kernel_that_shows_nothing_is_not_blamed() -> None:
    found = judge(with_(kernel=NO_KERNEL, nodes=(), driver=CudaFacts(library_error="no such file")))
    by_id = {one.id: one.status for one in found.checks}
    ids = ("pci", "kernel_module", "device_nodes", "libcuda")
    assert {by_id[id_] for id_ in ids} == {"not_applicable"}


@pytest.mark.parametrize(
    ("version", "driver", "capability", "wheel"),
    [
        ("2.13.0+cpu", "13.0", "9.0", "cu130"),
        ("2.13.0+cpu", "12.8", "9.0", "cu126"),
        ("2.13.0+cpu", "13.0", "7.0", "cu126"),
        ("2.8.0+cpu", "13.0", "12.0", "cu128"),
        ("2.8.0+cpu", "12.8", "9.0", "cu126"),
        ("2.4.1+cpu", "12.4", "8.0", "cu124"),
        ("2.4.1+cpu", "11.4", "8.0", "cu118"),
    ],
)
def test_the_fix_of_a_cpu_wheel_names_the_index_that_fits_driver_gpu_and_release(
    version: str, driver: str, capability: str, wheel: str
) -> None:
    facts = with_(
        torch=replace(TORCH, version=version, cuda=None, torchvision="0.28.0+cpu"),
        driver__version=int(driver.split(".")[0]) * 1000 + int(driver.split(".")[1]) * 10,
        driver__devices=(replace(DEVICES[0], capability=capability),),
    )
    found = judge(facts).finding
    assert found is not None
    assert found.cause == "cpu_wheel"
    value = found.fixes[0].value
    assert f"https://download.pytorch.org/whl/{wheel} " in value + " "
    assert f"torch=={version.partition('+')[0]} torchvision==0.28.0 --index-url" in value
    assert value.startswith("/venv/bin/python -m pip install")


def test_a_gpu_in_use_is_not_computed_on_and_its_holder_is_named() -> None:
    holder = Process(
        pid=4242, user="alice", devices=(DeviceUse(gpu=0, vram_bytes=GIB, sm_pct=None),)
    )
    facts = with_(snapshot__processes=(holder,), tried=(1,), torch__small=RUNS[:1])
    found = check(facts, "small_success")
    assert found.status == "pass"
    assert "on GPU 1 agree" in found.sentence
    assert "GPU 0 is in use by pid 4242, alice's" in [one.text for one in found.evidence]
    none = check(
        with_(facts, tried=(), torch__small=(), cvd="0", driver__devices=DEVICES[:1]),
        "small_success",
    )
    assert none.status == "not_applicable"
    assert "GPU 0 is in use by pid 4242" in none.sentence


def test_memory_without_a_visible_owner_is_somebodys() -> None:
    full = gpus(memory_used_bytes=20 * GIB)
    facts = with_(snapshot__gpus=full, tried=(1,), torch__small=RUNS[:1])
    assert any("cannot be seen" in one.text for one in check(facts, "small_success").evidence)


def test_a_running_job_on_its_gpu_passes() -> None:
    row = Process(pid=77, devices=(DeviceUse(gpu=1, vram_bytes=GIB, sm_pct=9.0),))
    found = check(with_(job__pid=77, snapshot__processes=(row,)), "job_on_gpu")
    assert (found.status, found.sentence) == ("pass", "pid 77 is on GPU 1.")


def test_a_job_with_a_root_of_its_own_is_not_guessed_about() -> None:
    why = "pid 5 has a root file system of its own (docker:0123), which is not entered"
    job = JobFacts(python=None, why=why, pid=5, outside=True, container="docker:0123")
    facts = replace(HEALTHY, job=job, interpreter=None, driver=None, torch=None, children={})
    facts = replace(facts, tried=(), unread={"driver": f"Not tried: {why}."})
    by_id = {one.id: one for one in judge(facts).checks}
    for id_ in ("libcuda", "interpreter", "torch_build", "small_success"):
        assert by_id[id_].status == "not_applicable", by_id[id_]
    assert "root file system of its own" in by_id["interpreter"].sentence


def test_foreign_words_reach_no_terminal() -> None:
    evil = "\x1b[2J"
    facts = with_(
        torch=replace(TORCH, version=f"2{evil}", cuda=None),
        cvd=f"GPU-{evil}",
        job__user=evil,
        job__python=f"/tmp/{evil}/python",
        driver__library=evil,
    )
    found = judge(facts)
    assert not any("\x1b" in one.sentence for one in found.checks)
    assert "\x1b" not in found.subject.sentence


def advice(facts: Facts, step: str) -> str:
    return "\n".join(fix.value for fix in check(facts, step).fixes)


def test_selinux_and_the_group_are_named_only_where_they_are_known() -> None:
    told = advice(with_(error="no_permission"), "nvml")
    assert "ls -l /dev/nvidia*" in told
    assert "usermod" not in told
    confined = with_(error="no_permission", kernel__selinux=True)
    assert "setsebool" not in advice(confined, "nvml"), "the rule is for containers"
    node = replace(NODES[0], group="video")
    confined = with_(confined, job__container="podman:1", nodes=(node,))
    told = advice(confined, "nvml")
    assert "sudo usermod -aG video $USER" in told
    assert "sudo setsebool -P container_use_devices 1 # on the host" in told


def test_no_option_of_a_container_is_advised_where_the_bus_has_no_gpu() -> None:
    facts = with_(kernel=NO_KERNEL, error="library_not_found", driver=None)
    for step in ("pci", "nvml"):
        assert check(facts, step).status == "fail"
        assert "docker" not in advice(facts, step)
        assert "srun" in advice(facts, step)
    facts = with_(facts, kernel=replace(KERNEL, module_version=None))
    assert "docker run --gpus all" in advice(facts, "nvml")


def test_without_a_gpu_no_build_is_said_to_fit() -> None:
    build = with_(torch__cuda=None, torch__version="2.13.0+cpu")
    assert "/whl/cu130" in advice(build, "torch_build")
    build = with_(build, snapshot__gpus=(), driver__devices=())
    assert check(build, "torch_build").cause == "cpu_wheel"
    assert "pip install" not in advice(build, "torch_build")


def test_the_python_that_was_examined_is_known_by_each_of_its_paths() -> None:
    def environments(**changes: Any) -> tuple[str, ...]:
        return judge(with_(**changes)).subject.environments

    assert environments() == ("/venv",)
    folder = "/home/u/.pyenv/versions/3.11.7/lib/python3.11/site-packages/torch"
    shim = {"job__python": "/home/u/.pyenv/shims/python", "interpreter__torch_folder": folder}
    assert environments(**shim) == ("/home/u/.pyenv", "/venv", "/home/u/.pyenv/versions/3.11.7")
    assert environments(job__python=None, interpreter=None) == ()
