"""Who has the device files open, found through /proc/*/fd."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from real_processes import Processes, wait_until

from cockpit.collect import holders


def open_device(processes: Processes, folder: Path) -> int:
    """A process that has a file "nvidia3" open twice, and "nvidiactl"."""
    for name in ("nvidia3", "nvidiactl"):
        (folder / name).touch()
    code = f"exec 4<{folder}/nvidia3 5<{folder}/nvidia3 6<{folder}/nvidiactl; sleep 60; :"
    pid = processes.popen(["sh", "-c", code]).pid
    wait_until(lambda: os.path.exists(f"/proc/{pid}/fd/6"))
    return pid


def test_a_scan_finds_each_file_once(processes: Processes, tmp_path: Path) -> None:
    pid = open_device(processes, tmp_path)
    found = holders.scan(prefix=f"{tmp_path}/nvidia")
    assert found.files[pid] == (f"{tmp_path}/nvidia3", f"{tmp_path}/nvidiactl")
    assert found.names[pid] == "sh"
    assert found.looked_at > 1
    assert pid not in holders.scan(prefix=f"{tmp_path}/nvidia", skip=(pid,)).files


def test_a_scan_skips_what_is_not_there() -> None:
    assert holders.scan("/nowhere").files == {}


def test_only_gpu_files_have_a_minor_number() -> None:
    files = ("/dev/nvidia0", "/dev/nvidia12", "/dev/nvidiactl", "/dev/nvidia-uvm")
    assert holders.minors_held(files) == {0, 12}


def test_minor_numbers_come_from_the_driver(tmp_path: Path) -> None:
    folder = tmp_path / "driver" / "nvidia" / "gpus" / "0000:1B:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text("Model: \t\t NVIDIA H200\nDevice Minor: \t 5\n")
    assert holders.device_minors(str(tmp_path)) == {"0000:1b:00.0": 5}
    assert holders.device_minors("/nowhere") == {}


def test_nothing_is_scanned_before_it_is_wanted(processes: Processes, tmp_path: Path) -> None:
    pid = open_device(processes, tmp_path)
    background = holders.HolderScan(prefix=f"{tmp_path}/nvidia", every_s=0.05)
    background.start()
    time.sleep(0.1)
    assert background.holders() is None
    assert background.latest() == {}
    background.want(True)
    wait_until(lambda: pid in background.latest())
    background.want(False)
    background.stop()
    wait_until(lambda: not any(thread.name == "holders" for thread in threading.enumerate()))


def test_the_own_process_is_no_holder(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    with open(tmp_path / "nvidia0"):
        background = holders.HolderScan(prefix=f"{tmp_path}/nvidia", every_s=0.05)
        background.start()
        background.want(True)
        wait_until(lambda: background.holders() is not None)
        assert os.getpid() not in background.latest()
        background.stop()
