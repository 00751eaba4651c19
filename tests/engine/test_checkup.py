"""A whole checkup over real children: the real interpreters, a libcuda that plays its part."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.engine.checkup import Limits, checkup
from cockpit.errors import CockpitError, UsageError
from cockpit.model.checkup import Check, Checkup, CheckupRequest
from cockpit.model.gpu import Driver, Gpu
from cockpit.model.host import Host
from cockpit.model.process import DeviceUse, Process
from cockpit.model.snapshot import SamplerStatus, Snapshot
from cockpit.model.text import GIB
from tests.real_torch import TORCH, needs_torch

UUIDS = ("6d3aeded-bc55-1092-d7e0-7b25a85fd120", "22222222-bc55-1092-d7e0-7b25a85fd120")
GPUS = tuple(
    Gpu(
        index=index,
        uuid=f"GPU-{uuid}",
        name="NVIDIA H200",
        pci_bus_id=f"00000000:{6 + index:02x}:00.0",
        compute_capability="9.0",
        memory_used_bytes=0,
    )
    for index, uuid in enumerate(UUIDS)
)
SNAPSHOT = Snapshot(
    taken_at="2026-11-30T16:00:00.000Z",
    host=Host(),
    driver=Driver(version="580.159.04", cuda_version="13.0", nvml_version="580.159.04"),
    gpus=GPUS,
    sampler=SamplerStatus(interval_s=1.0),
)
QUICK = Limits(interpreter_s=5.0, driver_s=5.0, torch_s=60.0, snapshot_s=0.1)

# What `import torch` finds first: the real torch with the names of a CUDA build. The CPU plays
# every device, and says in $PLAYED which devices were visible while it computed.
PRETENDS = """
import importlib.util, os, sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        run = spec.loader.exec_module
        def exec_module(torch):
            run(torch)
            torch.version.cuda = os.environ.get("WHEEL_CUDA", "13.0")
            torch.__version__ = "2.13.0+cu130"
            torch._C._cuda_getArchFlags = lambda: os.environ.get("WHEEL_ARCH", "sm_80 sm_90")
            torch.cuda.is_available = lambda: True
            torch.cuda.device_count = lambda: 2
            real = torch.device
            def device(kind, ordinal=0):
                with open(os.environ["PLAYED"], "a") as file:
                    file.write(f"{ordinal} {os.environ.get('CUDA_VISIBLE_DEVICES')}\\n")
                if os.environ.get("WRONG"):
                    torch.Tensor.cpu = lambda self: self * 1.5
                return real("cpu")
            torch.device = device
        spec.loader.exec_module = exec_module
        return spec
sys.meta_path.insert(0, Watch())
"""


@pytest.fixture(scope="module")
def libcuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libcuda.so.1 that answers as it is told; skips without a C compiler."""
    compiler = os.environ.get("CC", "gcc")
    if shutil.which(compiler) is None:
        pytest.skip(f"no C compiler ({compiler})")
    folder = tmp_path_factory.mktemp("libcuda")
    source = Path(__file__).parent / "fake_libcuda.c"
    build = [compiler, "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)]
    subprocess.run(build, check=True)
    return folder


@pytest.fixture
def environment(libcuda: Path, tmp_path: Path) -> dict[str, str]:
    """That of a user on a machine with two GPUs and a CUDA build of torch."""
    (tmp_path / "pretends").mkdir()
    (tmp_path / "pretends/sitecustomize.py").write_text(PRETENDS)
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {
        **kept,
        "LD_LIBRARY_PATH": str(libcuda),
        "FAKE_UUIDS": ",".join(uuid.replace("-", "") for uuid in UUIDS),
        "PYTHONPATH": str(tmp_path / "pretends"),
        "PLAYED": str(tmp_path / "played"),
    }


def examine(
    environment: dict[str, str],
    python: str | None = TORCH,
    snapshot: Snapshot | None = SNAPSHOT,
    limits: Limits = QUICK,
    say: Callable[[str], None] = lambda _: None,
) -> Checkup:
    request = CheckupRequest(python=python)
    return checkup(request, lambda: snapshot, say, limits, environment)


def step(found: Checkup, id_: str) -> Check:
    return next(one for one in found.checks if one.id == id_)


def played(environment: dict[str, str]) -> list[str]:
    path = Path(environment["PLAYED"])
    return path.read_text().splitlines() if path.exists() else []


def stand_in(folder: Path, code: str) -> str:
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\n{textwrap.dedent(code)}\n")
    path.chmod(0o755)
    return str(path)


@needs_torch
def test_a_machine_that_works_passes_with_a_small_success_on_each_gpu(
    environment: dict[str, str],
) -> None:
    heard: list[str] = []
    found = examine(environment, say=heard.append)
    assert found.finding is None, found.finding
    success = step(found, "small_success")
    assert success.status == "pass"
    assert "GPUs 0, 1 agree with the CPU" in success.sentence
    assert success.took_s
    assert success.took_s > 0.1
    assert played(environment) == ["0 None", "1 None"]
    assert step(found, "libcuda").status == "pass"
    assert any("torch" in sentence for sentence in heard)


@needs_torch
def test_a_gpu_in_use_is_hidden_from_the_small_success(environment: dict[str, str]) -> None:
    holder = Process(
        pid=4242, user="alice", devices=(DeviceUse(gpu=0, vram_bytes=GIB, sm_pct=None),)
    )
    found = examine(environment, snapshot=replace(SNAPSHOT, processes=(holder,)))
    assert played(environment) == [f"0 GPU-{UUIDS[1]}"]
    success = step(found, "small_success")
    assert (success.status, "on GPU 1 agree" in success.sentence) == ("pass", True)


@needs_torch
def test_where_all_are_in_use_nothing_is_computed_and_nothing_failed(
    environment: dict[str, str],
) -> None:
    holders = tuple(
        Process(pid=4242 + gpu, devices=(DeviceUse(gpu=gpu, vram_bytes=None, sm_pct=None),))
        for gpu in (0, 1)
    )
    found = examine(environment, snapshot=replace(SNAPSHOT, processes=holders))
    assert played(environment) == []
    success = step(found, "small_success")
    assert success.status == "not_applicable"
    assert "pid 4242" in success.sentence
    assert "pid 4243" in success.sentence
    assert found.finding is None


@needs_torch
def test_wrong_results_are_noticed(environment: dict[str, str]) -> None:
    found = examine({**environment, "WRONG": "1"})
    assert found.finding is not None
    assert (found.finding.cause, found.finding.gpu) == ("device_state_bad", 0)
    assert step(found, "small_success").status == "fail"


@needs_torch
@pytest.mark.parametrize(
    ("variables", "id_", "cause"),
    [
        ({"CUDA_VISIBLE_DEVICES": ""}, "visible_devices", "cvd_hides_gpus"),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, "visible_devices", "cvd_hides_gpus"),
        ({"FAKE_CUINIT": "802"}, "libcuda", "fabric_manager"),
        ({"FAKE_CUINIT": "804"}, "libcuda", "compat_libcuda"),
        ({"FAKE_CUINIT": "999"}, "libcuda", "uvm_state"),
        ({"FAKE_CUINIT": "hang"}, "libcuda", "unknown"),
        ({"FAKE_CUDA_VERSION": "12040"}, "driver_for_wheel", "driver_too_old"),
        ({"WHEEL_ARCH": "sm_50 sm_80 sm_100"}, "architectures", "arch_missing"),
    ],
)
def test_the_step_that_fails_is_named(
    environment: dict[str, str], variables: dict[str, str], id_: str, cause: str
) -> None:
    began = time.monotonic()
    found = examine({**environment, **variables})
    assert time.monotonic() - began < 30
    assert found.finding is not None
    assert (found.finding.facts["step"], found.finding.cause) == (id_, cause)
    assert step(found, "small_success").status in ("not_applicable", "fail")


@needs_torch
def test_a_cpu_wheel_is_named_with_the_index_that_fits(environment: dict[str, str]) -> None:
    del environment["PYTHONPATH"]
    found = examine(environment)
    assert found.finding is not None
    assert found.finding.cause == "cpu_wheel"
    assert "https://download.pytorch.org/whl/cu130" in found.finding.fixes[0].value
    assert found.finding.fixes[0].value.startswith(TORCH)


def test_an_interpreter_that_hangs_is_cut_off_and_the_rest_is_examined(
    environment: dict[str, str], tmp_path: Path
) -> None:
    python = stand_in(tmp_path, "import time\ntime.sleep(120)")
    began = time.monotonic()
    found = examine(environment, python=python, limits=replace_limits(interpreter_s=1.0))
    assert time.monotonic() - began < 10
    assert found.finding is not None
    assert found.finding.facts["step"] == "interpreter"
    assert "did not answer within 1 s and was cut off" in step(found, "interpreter").sentence
    assert step(found, "nvml").status == "pass"
    assert step(found, "torch_build").status == "not_applicable"


def test_an_interpreter_that_prints_garbage_is_reported(
    environment: dict[str, str], tmp_path: Path
) -> None:
    found = examine(environment, python=stand_in(tmp_path, "print('Hello \\x1b]0;you\\x07')"))
    assert "It answered something else: Hello ^[]0;you^G" in step(found, "interpreter").sentence


def test_torch_that_hangs_while_imported_is_cut_off(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "site/torch").mkdir(parents=True)
    (tmp_path / "site/torch/__init__.py").write_text("import time\ntime.sleep(120)")
    environment["PYTHONPATH"] = str(tmp_path / "site")
    limits = replace_limits(torch_s=2.0)
    found = examine(environment, python=sys.executable, limits=limits)
    sentence = step(found, "torch_build").sentence
    assert sentence == "It did not answer within 2 s and was cut off while importing torch."


def replace_limits(**seconds: float) -> Limits:
    return Limits(**{"interpreter_s": 5.0, "driver_s": 5.0, "snapshot_s": 0.1, **seconds})


def test_a_broken_torch_is_told_with_its_last_words(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "site/torch").mkdir(parents=True)
    words = "libcudnn.so.9: cannot open shared object file: No such file or directory"
    (tmp_path / "site/torch/__init__.py").write_text(f"raise ImportError({words!r})")
    environment["PYTHONPATH"] = str(tmp_path / "site")
    found = step(examine(environment, python=sys.executable), "torch_build")
    assert found.status == "fail"
    assert any(words in one.text for one in found.evidence)


@needs_torch
def test_a_running_job_is_seen_with_its_own_environment(environment: dict[str, str]) -> None:
    argv = [TORCH, "-c", "import time; print('ready', flush=True); time.sleep(90)"]
    its = {**environment, "CUDA_VISIBLE_DEVICES": "1"}
    child = subprocess.Popen(argv, env=its, stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        child.stdout.readline()
        request = CheckupRequest(pid=child.pid)
        found = checkup(request, lambda: SNAPSHOT, lambda _: None, QUICK, {})
    finally:
        child.kill()
        child.wait()
    assert (found.subject.pid, found.subject.python) == (child.pid, TORCH)
    assert "is GPU 1" in step(found, "visible_devices").sentence


def test_a_program_that_is_no_python_still_has_its_driver_tried(
    environment: dict[str, str],
) -> None:
    argv = ["/bin/bash", "-c", "echo ready; read -t 60 x < <(sleep 60)"]
    child = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        child.stdout.readline()
        request = CheckupRequest(pid=child.pid)
        found = checkup(request, lambda: SNAPSHOT, lambda _: None, QUICK, {})
    finally:
        child.kill()
        child.wait()
    assert step(found, "libcuda").status == "pass"
    assert "which is no Python" in step(found, "interpreter").sentence


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a root directory of its own")
def test_a_job_with_a_root_of_its_own_is_not_entered(
    environment: dict[str, str], tmp_path: Path
) -> None:
    code = (
        "import os, sys, time; os.chroot(sys.argv[1]); print('ready', flush=True); time.sleep(60)"
    )
    argv = [sys.executable, "-c", code, str(tmp_path)]
    child = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        child.stdout.readline()
        request = CheckupRequest(pid=child.pid)
        found = checkup(request, lambda: SNAPSHOT, lambda _: None, QUICK, {})
    finally:
        child.kill()
        child.wait()
    for id_ in ("libcuda", "interpreter", "torch_build", "small_success"):
        assert step(found, id_).status == "not_applicable", step(found, id_)
    assert "a root file system of its own" in step(found, "interpreter").sentence
    assert played(environment) == []


def test_without_a_python_that_has_torch_it_says_where_it_looked(
    environment: dict[str, str], tmp_path: Path
) -> None:
    bare = {**environment, "PATH": str(tmp_path), "PYTHONPATH": ""}
    found = examine(bare, python=None)
    interpreter = step(found, "interpreter")
    if interpreter.status == "pass":
        pytest.skip("the interpreter of these tests has torch")
    assert (interpreter.status, found.subject.python) == ("warn", None)
    assert sys.executable in interpreter.sentence
    assert step(found, "libcuda").status == "pass"


def test_an_engine_without_a_reading_says_so(environment: dict[str, str]) -> None:
    with pytest.raises(CockpitError, match="no reading"):
        examine(environment, python=sys.executable, snapshot=None)


@needs_torch
def test_idle_is_judged_by_a_reading_that_is_newer_than_the_question(
    environment: dict[str, str],
) -> None:
    holder = Process(pid=4242, devices=(DeviceUse(gpu=1, vram_bytes=GIB, sm_pct=None),))
    ticks = [SNAPSHOT, replace(SNAPSHOT, processes=(holder,))]
    request = CheckupRequest(python=TORCH)
    limits = replace_limits(torch_s=60.0, snapshot_s=3.0)
    checkup(
        request, lambda: ticks.pop(0) if len(ticks) > 1 else ticks[0], print, limits, environment
    )
    assert played(environment) == [f"0 GPU-{UUIDS[0]}"]


def test_two_subjects_are_one_too_many() -> None:
    with pytest.raises(UsageError):
        checkup(CheckupRequest(pid=1, python="python"), lambda: SNAPSHOT, lambda _: None)


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    yield
    left = subprocess.run(["ps", "-o", "args=", "--ppid", str(os.getpid())], capture_output=True)
    assert b"timeout -s KILL" not in left.stdout
