"""Which build of torch is chosen for which machine."""

from __future__ import annotations

import pytest

from cockpit.diagnose.wheels import fitting_build


@pytest.mark.parametrize(
    ("devices", "driver", "index"),
    [
        (["9.0"], "550.54.14", "cu126"),
        (["9.0"], "580.65.06", "cu130"),
        (["8.9", "8.6"], "535.104.05", "cu126"),
        (["7.5"], "525.60.13", "cu126"),
        (["6.1"], "580.95.05", "cu126"),
        (["7.0"], "535.54.03", "cu126"),
        (["12.0"], "570.86.10", "cu128"),
        (["10.3"], "580.95.05", "cu130"),
        (["12.1"], "595.58.03", "cu130"),
        (["8.0"], "515.43.04", "cu118"),
        (["7.0", "12.0"], "580.95.05", "cu128"),
    ],
)
def test_gpu_and_driver_choose_the_index(devices: list[str], driver: str, index: str) -> None:
    found = fitting_build(devices, driver=driver, python=(3, 11))
    assert (found.index, found.refusal) == (index, None)
    assert found.url == f"https://download.pytorch.org/whl/{index}"
    assert found.capabilities == tuple(devices)


@pytest.mark.parametrize(
    ("cuda", "index"),
    [("13.0", "cu130"), ("12.4", "cu126"), ("11.4", "cu118")],
)
def test_the_cuda_that_the_driver_runs_is_enough(cuda: str, index: str) -> None:
    assert fitting_build(["8.0"], cuda=cuda, python=(3, 12)).index == index


def test_a_driver_too_old_for_all_builds_names_the_one_that_is_needed() -> None:
    found = fitting_build(["12.0"], driver="550.54.14", python=(3, 12))
    assert found.index is None
    assert "570.26 or newer, which an administrator installs" in (found.refusal or "")


def test_a_driver_older_than_cuda_11_runs_nothing() -> None:
    found = fitting_build(["7.0"], driver="418.87")
    assert found.index is None
    assert "450.80 or newer" in (found.refusal or "")


def test_an_old_python_gets_an_older_build_that_has_wheels_for_it() -> None:
    found = fitting_build(["8.0"], driver="580.95.05", python=(3, 8))
    assert (found.index, found.torch) == ("cu124", ">=2.4,<2.7")


def test_a_python_without_wheels_for_this_gpu_is_said() -> None:
    found = fitting_build(["12.0"], driver="580.95.05", python=(3, 8))
    assert "Python 3.8" in (found.refusal or "")


def test_two_gpus_that_no_build_knows_together_need_two_environments() -> None:
    found = fitting_build(["6.1", "12.0"], driver="580.95.05", python=(3, 12))
    assert "two environments" in (found.refusal or "")


@pytest.mark.parametrize("device", ["3.5", "8.7"])
def test_what_has_no_wheels_is_refused(device: str) -> None:
    assert fitting_build([device], driver="580.95.05").index is None


def test_grace_hopper_takes_the_builds_for_its_processor() -> None:
    found = fitting_build(["9.0"], driver="550.54.14", python=(3, 12), machine="aarch64")
    assert found.index == "cu126"
    assert fitting_build(["9.0"], driver="580.95.05", machine="ppc64le").index is None


def test_without_a_driver_version_nothing_is_guessed() -> None:
    assert fitting_build(["9.0"]).index is None
