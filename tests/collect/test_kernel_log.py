"""NVIDIA's lines in the kernel log."""

from __future__ import annotations

import os
import time

import pytest

from cockpit.collect.kernel_log import KernelLog, parse_bus, parse_line

PAGE_FAULT = (
    "NVRM: Xid (PCI:0000:b1:00): 31, pid=13641, name=python, Ch 00000008, intr 00000000. "
    "MMU Fault: ENGINE GRAPHICS faulted @ 0x7fd7_90743000."
)


def test_an_xid_names_gpu_code_and_process():
    line = parse_line(PAGE_FAULT, 5.0)
    assert (line.bus, line.xid, line.pid, line.name) == ((0, 0xB1, 0), 31, 13641, "python")
    assert line.text.startswith("Ch 00000008")
    assert line.at_s == 5.0


@pytest.mark.parametrize(
    ("message", "xid", "pid", "name"),
    [
        ("NVRM: Xid (PCI:0000:03:00): 79, GPU has fallen off the bus.", 79, None, None),
        (
            "NVRM: Xid (PCI:0000:65:00): 92, pid='<unknown>', name=<unknown>, Disabling ECC",
            92,
            None,
            None,
        ),
        (
            "NVRM: Xid (PCI:0000:17:00.0): 45, pid=77120, name=python, Ch 00000008",
            45,
            77120,
            "python",
        ),
        ("NVRM: Xid (PCI:0000:17:00 GPU-I:05): 13, pid=9, name=a b, Graphics", 13, 9, "a b"),
    ],
)
def test_the_other_spellings_of_an_xid_are_understood(message, xid, pid, name):
    line = parse_line(message, 0.0)
    assert (line.xid, line.pid, line.name) == (xid, pid, name)


@pytest.mark.parametrize(
    "message",
    [
        "usb 1-1: new device",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.159.04",
        "Xid (PCI:0000:17:00): 45, somebody else's words",
    ],
)
def test_other_lines_are_left_out(message):
    assert parse_line(message, 0.0) is None


def test_a_gpu_off_the_bus_is_found_without_the_word_xid():
    line = parse_line("NVRM: GPU at PCI:0000:1b:00: GPU has fallen off the bus.", 0.0)
    assert (line.xid, line.bus) == (None, (0, 0x1B, 0))


def test_a_bus_id_is_one_place_in_all_its_spellings():
    spellings = ("0000:1b:00", "00000000:1B:00.0", "1b:00", "0000:1b:00.0")
    assert {parse_bus(text) for text in spellings} == {(0, 0x1B, 0)}
    assert parse_bus("nonsense") is None


def _record(age_s: float, message: str) -> bytes:
    at_us = int((time.monotonic() - age_s) * 1e6)
    return f"3,1,{at_us},-;{message}\n KEY=value\n".encode()


class _Ring:
    """A pipe that is written one record at a time: a read brings one, as from /dev/kmsg."""

    def __init__(self, path) -> None:
        os.mkfifo(path)
        self._keep = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self.log = KernelLog(path)

    def read(self, record: bytes):
        os.write(self._keep, record)
        return self.log.read()


def test_new_lines_and_those_of_the_last_hour_are_read_and_older_ones_are_not(tmp_path):
    ring = _Ring(tmp_path / "kmsg")
    assert [line.xid for line in ring.read(_record(1.0, PAGE_FAULT))] == [31]
    assert ring.read(_record(4000.0, PAGE_FAULT)) == []
    assert ring.read(_record(0.0, "something else")) == []
    assert ring.log.read() == []


def test_the_time_of_a_line_is_told_as_wall_clock(tmp_path):
    (line,) = _Ring(tmp_path / "kmsg").read(_record(60.0, PAGE_FAULT))
    assert line.at_s == pytest.approx(time.time() - 60, abs=2)


def test_a_log_that_is_not_there_has_a_reason_and_no_lines(tmp_path):
    log = KernelLog(tmp_path / "missing")
    assert log.gap == "not_supported"
    assert log.read() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_log_that_may_not_be_read_says_so(tmp_path):
    path = tmp_path / "kmsg"
    path.touch(mode=0o000)
    assert KernelLog(path).gap == "no_permission"
