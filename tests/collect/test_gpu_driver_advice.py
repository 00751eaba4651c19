"""What a failed start means, by circumstances."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpit.collect.driver_advice import explain
from cockpit.collect.driver_files import (
    DriverFacts,
    host_memory,
    in_container,
    in_wsl,
    known_gpus,
    module_version,
)


def _facts(**changes) -> DriverFacts:
    base = {
        "module_version": None,
        "in_container": False,
        "in_wsl": False,
        "has_device_files": False,
    }
    return DriverFacts(**{**base, **changes})


def _text(code: str, library: str | None = None, **facts) -> str:
    error = explain(code, _facts(**facts), library)
    assert error.code == code
    return " ".join((error.message, *error.advice))


def test_a_mismatch_names_both_versions_and_the_reboot():
    text = _text("lib_rm_version_mismatch", "580.159.04", module_version="570.86.15")
    assert "570.86.15" in text
    assert "580.159.04" in text
    assert "Reboot" in text


@pytest.mark.parametrize(
    "code", ["lib_rm_version_mismatch", "driver_not_loaded", "library_not_found"]
)
def test_a_container_is_told_what_to_do_with_it_and_what_on_the_host(code):
    error = explain(code, _facts(in_container=True))
    assert any("container" in step for step in error.advice)
    assert any("on the host" in step.lower() for step in error.advice)
    for step in error.advice:
        assert "modprobe" not in step or step.startswith("On the host")


@pytest.mark.parametrize("in_container", [True, False])
def test_a_driver_that_worked_before_was_not_missing_from_the_start(in_container):
    facts = _facts(in_container=in_container, worked_before=True)
    error = explain("driver_not_loaded", facts)
    assert "no way" not in error.message
    assert "answered before" in error.message
    assert "--gpus all" not in " ".join(error.advice)
    assert len(error.advice) >= 2


def test_device_files_in_a_container_are_a_way_to_the_driver():
    text = _text("driver_not_loaded", in_container=True, has_device_files=True)
    assert "no way" not in text
    assert "On the host" in text


def test_unknown_error_in_a_container_is_the_lost_device_cgroup():
    text = _text("unknown", in_container=True)
    assert "Restart the container" in text
    assert "daemon-reload" in text
    assert "daemon-reload" not in _text("unknown")


def test_a_missing_library_beside_a_loaded_module_asks_for_that_version():
    assert "570.86.15" in _text("library_not_found", module_version="570.86.15")
    assert "--demo" in _text("library_not_found")


def test_wsl_is_sent_to_windows():
    assert "Windows" in _text("library_not_found", in_wsl=True)
    assert "Windows" in _text("driver_not_loaded", in_wsl=True)


@pytest.mark.parametrize("code", ["irq_issue", "operating_system", "nvml_4242"])
def test_an_error_without_a_page_of_its_own_still_has_a_next_step(code):
    assert "dmesg" in _text(code)


def _write(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_the_version_is_that_of_the_loaded_module(tmp_path):
    assert module_version(tmp_path) is None
    line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
    _write(tmp_path, "proc/driver/nvidia/version", line)
    assert module_version(tmp_path) == "580.159.04"
    _write(tmp_path, "sys/module/nvidia/version", "570.86.15\n")
    assert module_version(tmp_path) == "570.86.15"


def test_the_kernel_module_still_knows_a_lost_gpu(tmp_path):
    information = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 41\nGPU UUID: \t GPU-6d3aeded-bc55\n"
    _write(tmp_path, "proc/driver/nvidia/gpus/0000:1B:00.0/information", information)
    _write(tmp_path, "proc/driver/nvidia/gpus/0000:0a:00.0/information", "")
    first, second = known_gpus(tmp_path)
    assert (first.bus_id, first.name) == ("0000:0a:00.0", None)
    assert (second.bus_id, second.name) == ("0000:1b:00.0", "NVIDIA H200")
    assert second.uuid == "GPU-6d3aeded-bc55"


def test_marks_of_containers_and_wsl_are_seen(tmp_path, monkeypatch):
    for name in ("KUBERNETES_SERVICE_HOST", "container"):
        monkeypatch.delenv(name, raising=False)
    assert not in_container(tmp_path)
    assert not in_wsl(tmp_path)
    _write(tmp_path, ".dockerenv", "")
    _write(tmp_path, "proc/version", "Linux version 5.15.167.4-microsoft-standard-WSL2")
    assert in_container(tmp_path)
    assert in_wsl(tmp_path)


def test_host_memory_is_total_and_what_is_not_available(tmp_path):
    assert host_memory(tmp_path) is None
    _write(tmp_path, "proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n")
    assert host_memory(tmp_path) == (1000 * 1024, 600 * 1024)
