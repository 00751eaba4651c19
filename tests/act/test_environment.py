"""torch into real environments, by real pip, from indexes on loopback; and the way back."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from wheelhouse import environment, install, serving, torch_wheel, versions, wheel

from cockpit.act.action import Console
from cockpit.act.environment import InstallTorch, undo
from cockpit.act.pip import Pip
from cockpit.errors import CockpitError, RefusedError
from cockpit.model.remedy import Outcome
from cockpit.model.wheel import WheelChoice

SYSTEM_PYTHON = Path("/usr/bin/python3")


@pytest.fixture(autouse=True)
def plain_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The configuration of whoever runs the tests has no say."""
    for name in [n for n in os.environ if n.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_RETRIES", "0")


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """Folders of wheels: an index each."""
    root = tmp_path / "whl"
    for tag in ("cpu", "cu126"):
        torch_wheel(root / tag, f"2.7.0+{tag}")
        wheel(root / tag, "torchvision", f"0.22.0+{tag}", requires=("torch==2.7.0",))
    return root


@pytest.fixture
def server(house: Path) -> Iterator[object]:
    with serving(house) as running:
        yield running


def choice(url: str, **options: object) -> WheelChoice:
    options = {"torch": ">=2.6", "why": "It fits.", "index": "cu126", **options}
    return WheelChoice(url=f"{url}/{options['index']}", **options)


def console() -> Console:
    return Console(say=[].append)


def said(told: Console) -> list[str]:
    return told.say.__self__


def action(python: str, server: object, state: Path, **options: object) -> InstallTorch:
    return InstallTorch(python, os.geteuid(), choice(server.url, **options), state=state)


def cpu_environment(tmp_path: Path, house: Path) -> str:
    """One in which a dependency has put a build for CPUs, as people find it."""
    numpy = wheel(tmp_path / "pypi", "numpy", "1.26.0")
    vision = house / "cpu" / "torchvision-0.22.0+cpu-py3-none-any.whl"
    torch = house / "cpu" / "torch-2.7.0+cpu-py3-none-any.whl"
    return environment(tmp_path / "train-env", torch, vision, numpy)


def test_a_cpu_build_becomes_the_same_version_for_cuda_and_is_taken_back(
    tmp_path: Path, house: Path, server: object
) -> None:
    python = cpu_environment(tmp_path, house)
    install_torch = action(python, server, tmp_path / "state", capabilities=())
    preview = install_torch.preview()
    assert preview.refusal is None
    assert preview.typed == "train-env"
    command = next(line for line in preview.lines if line.startswith(python))
    assert command == (
        f"{python} -m pip install --index-url {server.url}/cu126 "
        "torch==2.7.0+cu126 torchvision==0.22.0+cu126"
    )
    told = console()
    outcome = install_torch.run(told)
    assert outcome.ok, outcome
    assert outcome.verified is None  # there is no GPU here to compute on
    assert versions(python)["torch"] == "2.7.0+cu126"
    assert versions(python)["torchvision"] == "0.22.0+cu126"
    assert "  torch 2.7.0+cu126 (2.7.0+cpu)" in said(told)
    assert [(c.before, c.after) for c in outcome.compared[:2]] == [
        ("2.7.0+cpu", "2.7.0+cu126"),
        ("none", "12.6"),
    ]
    kept = Path(outcome.undo.data["folder"])
    assert kept.parent == tmp_path / "state" / "environments"
    assert kept.stat().st_mode & 0o077 == 0
    assert "torch==2.7.0+cpu" in (kept / "freeze.txt").read_text()
    assert (kept / "inspect.json").stat().st_mode & 0o777 == 0o600

    back = undo(outcome.undo, console())
    assert (back.ok, back.verified) == (True, True), back
    assert versions(python)["torch"] == "2.7.0+cpu"
    assert versions(python)["numpy"] == "1.26.0"


def test_where_the_index_lacks_that_version_the_newest_that_fits_is_taken(
    tmp_path: Path, house: Path, server: object
) -> None:
    old = torch_wheel(tmp_path / "old", "2.6.0+cpu")
    libraries = wheel(house / "cu126", "nvidia_cublas", "12.6.1")
    assert libraries.exists()
    torch_wheel(house / "cu126", "2.7.0+cu126", requires=("nvidia_cublas==12.6.1",))
    torch_wheel(house / "cpu", "2.6.0+cpu")
    python = environment(tmp_path / "env", old)
    outcome = action(python, server, tmp_path / "state").run(console())
    assert outcome.ok, outcome
    assert versions(python)["torch"] == "2.7.0+cu126"
    assert versions(python)["nvidia_cublas"] == "12.6.1"
    back = undo(outcome.undo, console())
    assert back.verified, back
    assert versions(python)["torch"] == "2.6.0+cpu"
    assert "nvidia_cublas" not in versions(python)


def test_an_index_that_does_not_answer_changes_nothing(tmp_path: Path, house: Path) -> None:
    python = cpu_environment(tmp_path, house)
    closed = choice("http://127.0.0.1:9/whl")
    outcome = InstallTorch(python, os.geteuid(), closed, state=tmp_path / "s").run(console())
    assert not outcome.ok
    assert "No package index answers (http://127.0.0.1:9/whl/cu126): nothing was changed" in (
        outcome.sentence
    )
    assert outcome.undo is None
    assert versions(python)["torch"] == "2.7.0+cpu"


def test_an_index_without_the_build_changes_nothing(
    tmp_path: Path, house: Path, server: object
) -> None:
    python = cpu_environment(tmp_path, house)
    outcome = action(python, server, tmp_path / "s", index="cu130").run(console())
    assert not outcome.ok
    assert "nothing was changed" in outcome.sentence
    assert versions(python)["torch"] == "2.7.0+cpu"


def test_another_package_is_not_replaced(tmp_path: Path, house: Path, server: object) -> None:
    wheel(house / "cu126", "numpy", "2.0.0")
    torch_wheel(house / "cu126", "2.7.0+cu126", requires=("numpy>=2",))
    python = cpu_environment(tmp_path, house)
    outcome = action(python, server, tmp_path / "s").run(console())
    assert "It would also replace numpy==1.26.0 by 2.0.0: nothing was changed" in outcome.sentence
    assert versions(python)["numpy"] == "1.26.0"


def test_what_was_installed_can_be_taken_back_where_pip_cannot_list_it_any_more(
    tmp_path: Path, house: Path, server: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = cpu_environment(tmp_path, house)
    freeze = Pip.freeze

    def broken(self: Pip) -> dict[str, str]:
        if versions(python)["torch"] == "2.7.0+cu126":
            raise CockpitError("`pip freeze` failed.")
        return freeze(self)

    with monkeypatch.context() as patch:
        patch.setattr(Pip, "freeze", broken)
        outcome = action(python, server, tmp_path / "s").run(console())
    assert outcome.ok, outcome
    assert "nothing was changed" not in outcome.sentence
    back = undo(outcome.undo, console())
    assert (back.ok, back.verified) == (True, True), back
    assert versions(python)["torch"] == "2.7.0+cpu"


def run_cancelled(install_torch: InstallTorch, when: str) -> Outcome:
    """Cancelled once a line that begins so has been told, or at a moment without one."""
    cancelled = threading.Event()

    def say(line: str) -> None:
        if line.startswith(when):
            cancelled.set()

    return install_torch.run(Console(say=say, cancelled=cancelled))


def test_cancelled_during_the_download_nothing_was_changed(
    tmp_path: Path, house: Path, server: object
) -> None:
    python = cpu_environment(tmp_path, house)
    server.slow_s = 30.0
    # pip's dry run waits for the wheel's metadata: the server keeps it waiting
    outcome = run_cancelled(action(python, server, tmp_path / "s"), "dry run:")
    assert (outcome.ok, outcome.sentence) == (False, "Cancelled: nothing was changed.")
    assert outcome.undo is None
    assert versions(python)["torch"] == "2.7.0+cpu"


def test_cancelled_while_files_are_replaced_pip_ends_and_it_can_be_taken_back(
    tmp_path: Path, house: Path, server: object
) -> None:
    torch_wheel(house / "cu126", "2.7.0+cu126", padding=800)
    python = cpu_environment(tmp_path, house)
    outcome = run_cancelled(action(python, server, tmp_path / "s"), "Installing collected")
    assert "take it back" in outcome.sentence
    assert versions(python)["torch"] == "2.7.0+cu126"
    assert undo(outcome.undo, console()).verified
    assert versions(python)["torch"] == "2.7.0+cpu"


def test_what_was_changed_since_is_not_taken_back(
    tmp_path: Path, house: Path, server: object
) -> None:
    python = cpu_environment(tmp_path, house)
    outcome = action(python, server, tmp_path / "s").run(console())
    install(python, torch_wheel(tmp_path / "other", "2.8.0+cu126"))
    with pytest.raises(RefusedError, match="torch changed since"):
        undo(outcome.undo, console())
    assert versions(python)["torch"] == "2.8.0+cu126"


def test_an_environment_that_changed_after_the_preview_is_left_alone(
    tmp_path: Path, house: Path, server: object
) -> None:
    python = cpu_environment(tmp_path, house)
    install_torch = action(python, server, tmp_path / "s")
    install_torch.preview()
    install(python, torch_wheel(tmp_path / "other", "2.8.0+cpu"))
    with pytest.raises(RefusedError, match="has changed since it was shown"):
        install_torch.run(console())


def test_a_configured_index_is_asked_first_and_the_other_only_for_what_it_lacks(
    tmp_path: Path, house: Path, server: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = cpu_environment(tmp_path, house)
    wheel(house / "mirror", "torch", "2.7.0")
    monkeypatch.setenv("PIP_INDEX_URL", server.url.replace("//", "//me:pass@") + "/mirror")
    install_torch = action(python, server, tmp_path / "s")
    note = next(line for line in install_torch.preview().lines if "is configured (" in line)
    assert "pass" not in note
    assert f"//<hidden>@127.0.0.1:{server.server_address[1]}/whl/mirror" in note
    server.seen.clear()
    assert install_torch.run(console()).ok
    assert server.seen[0] == "/whl/mirror/torch/"
    assert "/whl/cu126/torch/" in server.seen
    assert versions(python)["torch"] == "2.7.0+cu126"


def test_a_mirror_that_has_the_build_is_enough(
    tmp_path: Path, house: Path, server: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = cpu_environment(tmp_path, house)
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/cu126")
    closed = choice("http://127.0.0.1:9/whl")
    assert InstallTorch(python, os.geteuid(), closed, state=tmp_path / "s").run(console()).ok
    assert versions(python)["torch"] == "2.7.0+cu126"


def test_verification_sees_gpus_and_missing_machine_code(
    tmp_path: Path, house: Path, server: object
) -> None:
    torch_wheel(house / "cu126", "2.7.0+cu126", gpus=2)
    python = cpu_environment(tmp_path, house)
    outcome = action(python, server, tmp_path / "s", capabilities=("9.0",)).run(console())
    assert outcome.verified is True
    assert "computes on 2 GPU(s)" in outcome.sentence
    again = action(python, server, tmp_path / "s", capabilities=("12.0",)).run(console())
    assert (again.ok, again.verified) == (True, False)
    assert "installed already" in again.sentence
    assert "no code for compute capability 12.0" in again.sentence


def test_a_run_that_has_this_torch_mapped_is_warned_about(
    tmp_path: Path, house: Path, server: object
) -> None:
    python = cpu_environment(tmp_path, house)
    folder = next(Path(python).parents[1].glob("lib/python*/site-packages/torch"))
    library = folder / "libtorch.so"
    library.write_bytes(b"\0" * mmap.PAGESIZE)
    program = (
        "import mmap, sys, time; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 0); "
        "print('mapped', flush=True); time.sleep(60)"
    )
    user = subprocess.Popen(
        [python, "-c", program, str(library)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert user.stdout.readline() == "mapped\n"
        lines = action(python, server, tmp_path / "s").preview().lines
        assert any("WARNING: 1 process" in line and f"pid {user.pid}" in line for line in lines)
    finally:
        user.kill()
        user.wait()
        user.stdout.close()


def test_an_environment_that_is_called_by_a_version_only_is_named_by_its_path(
    tmp_path: Path, server: object
) -> None:
    folder = tmp_path / "versions" / "3.11.7"
    preview = action(environment(folder), server, tmp_path / "s").preview()
    assert preview.title.endswith(f" into {folder}")
    assert preview.typed == str(folder)


# -- refusals


def test_the_systems_own_python_is_refused(tmp_path: Path, server: object) -> None:
    marked = list(Path("/usr/lib").glob("python3*/EXTERNALLY-MANAGED"))
    if not marked or not SYSTEM_PYTHON.exists():
        pytest.skip("the system's Python is not marked EXTERNALLY-MANAGED")
    install_torch = action(str(SYSTEM_PYTHON), server, tmp_path / "s")
    assert "EXTERNALLY-MANAGED" in (install_torch.preview().refusal or "")
    with pytest.raises(RefusedError, match="EXTERNALLY-MANAGED"):
        install_torch.run(console())


def test_torch_that_conda_installed_is_condas_to_change(
    tmp_path: Path, house: Path, server: object
) -> None:
    python = cpu_environment(tmp_path, house)
    prefix = Path(python).parents[1]
    (prefix / "conda-meta").mkdir()
    next(prefix.glob("lib/python*/site-packages/torch-*/INSTALLER")).write_text("conda\n")
    preview = action(python, server, tmp_path / "s").preview()
    assert "conda's own" in (preview.refusal or "")
    assert preview.lines == (
        f"conda install --prefix {prefix} --channel conda-forge pytorch-gpu cuda-version=12.6",
    )


def test_an_environment_without_pip_says_how_to_get_it(
    tmp_path: Path, server: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    python = environment(tmp_path / "bare", pip=False)
    assert "-m ensurepip" in (action(python, server, tmp_path / "s").preview().refusal or "")


def test_a_run_of_another_user_is_refused_without_running_its_python(
    tmp_path: Path, server: object
) -> None:
    witness = tmp_path / "ran"
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\ntouch {witness}\n")
    python.chmod(0o755)
    other = InstallTorch(str(python), os.geteuid() + 1, choice(server.url), state=tmp_path / "s")
    assert "belongs to" in (other.preview().refusal or "")
    with pytest.raises(RefusedError):
        other.run(console())
    assert not witness.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files away needs root")
def test_another_users_environment_is_refused_even_to_root(
    tmp_path: Path, house: Path, server: object
) -> None:
    python = cpu_environment(tmp_path, house)
    os.chown(Path(python).parents[1], 1002, 1002)
    install_torch = action(python, server, tmp_path / "s")
    assert "belongs to" in (install_torch.preview().refusal or "")
    with pytest.raises(RefusedError, match="belongs to"):
        install_torch.run(console())


def refusal_for(uid: int, python: str) -> str:
    """What a cockpit of that user would say: asked in a child that has become the user."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        fix = InstallTorch(python, uid, choice("http://127.0.0.1:9/whl"), state=Path("/nowhere"))
        os.write(write, str(fix.preview().refusal).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return told


@pytest.mark.skipif(
    os.geteuid() != 0 or not SYSTEM_PYTHON.exists(), reason="becoming another user needs root"
)
def test_a_user_is_refused_the_environment_of_another() -> None:
    with tempfile.TemporaryDirectory(prefix="cockpit-open-") as folder:
        os.chmod(folder, 0o755)
        theirs = f"{folder}/theirs"
        subprocess.run([SYSTEM_PYTHON, "-m", "venv", "--without-pip", theirs], check=True)
        assert "belongs to root" in refusal_for(1002, f"{theirs}/bin/python")


def test_no_fitting_build_is_a_refusal_with_the_reason(tmp_path: Path, server: object) -> None:
    python = environment(tmp_path / "env")
    none = WheelChoice(index=None, refusal="The driver has to be 570.26 or newer.")
    preview = InstallTorch(python, os.geteuid(), none, state=tmp_path / "s").preview()
    assert preview.refusal == "The driver has to be 570.26 or newer."


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not installed here")
def test_uv_serves_an_environment_without_pip(
    tmp_path: Path, house: Path, server: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    python = environment(
        tmp_path / "uv-env", house / "cpu" / "torch-2.7.0+cpu-py3-none-any.whl", pip=False
    )
    install_torch = action(python, server, tmp_path / "s")
    uv = shutil.which("uv")
    command = (
        f"{uv} pip install --python {python} --index-url {server.url}/cu126 torch==2.7.0+cu126"
    )
    assert command in install_torch.preview().lines
    outcome = install_torch.run(console())
    assert outcome.ok, outcome
    assert versions(python)["torch"] == "2.7.0+cu126"
    assert undo(outcome.undo, console()).verified
    assert versions(python)["torch"] == "2.7.0+cpu"
    closed = choice("http://127.0.0.1:9/whl")
    unreachable = InstallTorch(python, os.geteuid(), closed, state=tmp_path / "s").run(console())
    assert "No package index answers" in unreachable.sentence
    torch_wheel(house / "cu126", "2.8.0+cu126")
    newer = action(python, server, tmp_path / "s", torch=">=2.8").run(console())
    assert newer.ok, newer
    assert versions(python)["torch"] == "2.8.0+cu126"
