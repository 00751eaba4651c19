"""The whole program in a real terminal over the simulated library: what a user sees and presses."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.terminal.tmux import cockpit, descendants, terminal

pytestmark = [
    pytest.mark.terminal,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]

GPU_ROW = re.compile(r"^ +\d+ +\d+% ", re.M)


def gpu_rows(screen: str) -> int:
    return len(GPU_ROW.findall(screen))


def test_eight_gpus_and_eight_processes_stand_on_80x24_at_once(simnvml_build: Path) -> None:
    with terminal(80, 24, simnvml_build) as box:
        box.start(cockpit(scenario="h200x8"))
        screen = box.wait_for(lambda s: gpu_rows(s) == 8)
        assert len(re.findall(r"^ [ !] +\d{2,7} (root|1001|1002)", screen, re.M)) >= 8
        assert "? help" in screen


def test_sixteen_gpus_leave_room_for_processes_on_80x24(simnvml_build: Path) -> None:
    with terminal(80, 24, simnvml_build) as box:
        box.start(cockpit(scenario="big"))
        screen = box.wait_for(lambda s: "15 " in s and "PID" in s)
        assert len(re.findall(r"^ [ !] +\d{2,7} (root|1001|1002)", screen, re.M)) >= 8


def test_a_stray_is_killed_with_three_keys_and_the_memory_is_seen_to_come_back(
    simnvml_build: Path,
) -> None:
    with terminal(100, 30, simnvml_build) as box:
        box.start(cockpit(scenario="stray"))
        box.wait_for("launcher gone")
        box.type("/")
        box.wait_for("vram>10")
        box.type("is:stray", "Enter")
        box.wait_for(lambda s: "ipykernel" not in s)
        box.type("x")
        box.wait_for("SIGTERM to 1 process")
        box.type("Enter")
        screen = box.wait_for("freed 14.8 of 14.8 GiB")
        assert "✓" in screen
        box.type("Enter")
        box.wait_for(lambda s: "SIGTERM" not in s)


def test_quitting_leaves_no_process_and_the_old_screen(simnvml_build: Path) -> None:
    with terminal(80, 24, simnvml_build) as box:
        box.start("echo before; " + cockpit("--demo"))
        box.wait_for("DEMO")
        running = descendants(box.pane_pid())
        assert len(running) >= 2
        box.type("q")
        screen = box.wait_for(lambda s: "before" in s and "ready$" in s, 3)
        assert "Traceback" not in screen
        end = time.monotonic() + 2
        while time.monotonic() < end and any(os.path.exists(f"/proc/{pid}") for pid in running):
            time.sleep(0.02)
        assert not [pid for pid in running if os.path.exists(f"/proc/{pid}")]


def test_q_works_at_once_while_a_driver_call_hangs(simnvml_build: Path) -> None:
    with terminal(80, 24, simnvml_build) as box:
        box.start(cockpit(scenario="hang"))
        box.wait_for(lambda s: gpu_rows(s) == 4)
        box.wait_for("stale", 15)
        began = time.monotonic()
        box.type("q")
        box.wait_for("ready$", 5)
        assert time.monotonic() - began < 1.5  # simbox ends its stand-ins meanwhile


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_the_terminal_restored(simnvml_build: Path, how: int) -> None:
    with terminal(80, 24, simnvml_build) as box:
        box.start(cockpit("--demo"))
        box.wait_for("DEMO")
        running = descendants(box.pane_pid())
        os.kill(running[0], how)
        box.wait_for(lambda s: s.rstrip().endswith("ready$"), 5)
        box.start("echo back again")
        screen = box.wait_for("back again", 5)
        assert "Traceback" not in screen
        end = time.monotonic() + 2
        while time.monotonic() < end and any(os.path.exists(f"/proc/{pid}") for pid in running):
            time.sleep(0.02)
        assert not [pid for pid in running if os.path.exists(f"/proc/{pid}")]


def test_a_lost_connection_leaves_no_process_behind(simnvml_build: Path) -> None:
    with terminal(80, 24, simnvml_build) as box:
        box.start(cockpit("--demo"))
        box.wait_for("DEMO")
        running = descendants(box.pane_pid())
        box.close()
        end = time.monotonic() + 3
        while time.monotonic() < end and any(os.path.exists(f"/proc/{pid}") for pid in running):
            time.sleep(0.02)
        assert not [pid for pid in running if os.path.exists(f"/proc/{pid}")]


def test_it_can_be_suspended_and_comes_back_whole(simnvml_build: Path) -> None:
    with terminal(80, 24, simnvml_build) as box:
        box.start(cockpit("--demo"))
        box.wait_for("DEMO")
        box.type("C-z")
        box.wait_for("ready$", 5)
        box.start("fg")
        screen = box.wait_for(lambda s: "DEMO" in s and gpu_rows(s) == 8, 5)
        assert "? help" in screen


def test_a_storm_of_resizes_ends_with_a_whole_screen(simnvml_build: Path) -> None:
    with terminal(80, 24, simnvml_build) as box:
        box.start(cockpit("--demo"))
        box.wait_for("DEMO")
        for cols, rows in [(120, 40), (40, 10), (200, 50), (20, 5), (81, 25), (10, 3)] * 4:
            box.resize(cols, rows)
            time.sleep(0.02)
        box.resize(80, 24)
        screen = box.wait_for(lambda s: gpu_rows(s) == 8 and "? help" in s, 5)
        assert "Traceback" not in screen


def test_a_terminal_that_is_too_small_says_so(simnvml_build: Path) -> None:
    with terminal(30, 6, simnvml_build) as box:
        box.start("clear; " + cockpit("--demo"))
        box.wait_for("too small")
        box.resize(80, 24)
        box.wait_for(lambda s: gpu_rows(s) == 8, 5)


def test_a_locale_without_utf8_gets_ascii_only(simnvml_build: Path) -> None:
    with terminal(80, 24, simnvml_build, LANG="C", LC_ALL="POSIX", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0") as box:  # fmt: skip  # noqa: E501
        box.start(cockpit("--demo"))
        screen = box.wait_for(lambda s: "DEMO" in s and gpu_rows(s) == 8)
        assert screen.isascii()


def test_no_color_sends_no_colour(simnvml_build: Path) -> None:
    with terminal(80, 24, simnvml_build, NO_COLOR="1") as box:
        box.start("clear; " + cockpit("--demo"))
        box.wait_for(lambda s: "DEMO" in s and gpu_rows(s) == 8)
        codes = re.findall(r"\x1b\[([\d;]*)m", box.screen(styled=True))
        parameters = {int(one) for code in codes for one in code.split(";") if one}
        assert not parameters & {*range(30, 39), *range(40, 49), *range(90, 98), *range(100, 108)}


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_dumb_terminal_is_told_of_the_snapshot_command(simnvml_build: Path, term: str) -> None:
    with terminal(80, 24, simnvml_build) as box:
        box.start(f"TERM={term} " + cockpit())
        box.wait_for("cockpit snapshot")


@pytest.mark.parametrize("scenario", ["mismatch", "nodriver", "noperm", "unknown", "nogpu"])
def test_without_a_driver_the_screen_is_up_with_cause_advice_and_processes(
    simnvml_build: Path, scenario: str
) -> None:
    with terminal(80, 24, simnvml_build) as box:
        box.start(cockpit(scenario=scenario))
        # Painted from the top: the key line is the last of it, and rows come with the first tick.
        rows = re.compile(r"^ +\d+ \w+", re.M)
        screen = box.wait_for(
            lambda s: "? help" in s and "PID" in s and "CPU" in s and rows.search(s)
        )
        assert "nvidia" in screen.lower()


def test_a_driver_that_comes_back_is_shown_again_without_a_restart(simnvml_build: Path) -> None:
    with terminal(80, 24, simnvml_build) as box:
        box.start(cockpit(scenario="restart"))
        box.wait_for(lambda s: gpu_rows(s) == 2)
        box.wait_for(lambda s: gpu_rows(s) == 0, 10)
        box.wait_for(lambda s: gpu_rows(s) == 2, 20)


def test_a_lost_gpu_stays_as_a_row_with_the_word(simnvml_build: Path) -> None:
    with terminal(80, 24, simnvml_build) as box:
        box.start(cockpit(scenario="lost"))
        box.wait_for(lambda s: gpu_rows(s) == 4)
        screen = box.wait_for("lost", 12)
        assert gpu_rows(screen) == 3


def test_hostile_names_change_neither_title_nor_colours_nor_lines(simnvml_build: Path) -> None:
    with terminal(120, 30, simnvml_build) as box:
        box.start(cockpit(scenario="hostile"))
        screen = box.wait_for(lambda s: "train.py" in s and gpu_rows(s) == 1)
        assert "print('a')^J" in screen
        assert screen.count("? help") == 1


def test_an_engine_that_dies_is_started_again(simnvml_build: Path) -> None:
    with terminal(80, 24, simnvml_build) as box:
        box.start(cockpit("--demo"))
        box.wait_for("DEMO")
        engine = descendants(box.pane_pid())[-1]
        os.kill(engine, signal.SIGKILL)
        box.wait_for("signal 9", 3)
        box.wait_for(lambda s: "signal 9" not in s, 5)
        assert descendants(box.pane_pid())[-1] != engine


def test_every_page_opens_and_esc_leads_back(simnvml_build: Path) -> None:
    with terminal(100, 30, simnvml_build) as box:
        box.start(cockpit("--demo"))
        box.wait_for("DEMO")
        box.type("j", "j")  # the first process is another user's: its environment is not ours
        for key, seen in [("Enter", "Command"), ("3", "UUID"), ("l", "Events of"), ("n", "NV18"), ("?", "Everywhere"), ("e", "LANG=")]:  # fmt: skip  # noqa: E501
            box.type(key)
            box.wait_for(seen)
            box.type("Escape")
            box.wait_for(lambda s: "DEMO" in s and gpu_rows(s) == 8)
