"""What /proc/PID/status says, however long it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cockpit import procfs

SLEEP = "import os, signal, time; {}; print('up', flush=True); time.sleep(60)"
GROUPS = "os.setgroups(range(2_000_000_000, 2_000_000_400))"
IGNORES = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"


@pytest.mark.skipif(os.geteuid() != 0, reason="sets groups")
def test_a_user_in_hundreds_of_groups_is_read_to_the_end() -> None:
    code = SLEEP.format(f"{GROUPS}; {IGNORES}")
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = procfs.status("/proc", process.pid)
        process.kill()
    assert isinstance(found, procfs.Status)
    assert found.hangup_ignored is True


def test_what_the_kernel_does_not_say_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text("Name:\tx\nUid:\t5\t5\t5\t5\n")
    found = procfs.status(str(tmp_path), 7)
    assert isinstance(found, procfs.Status)
    assert (found.uid, found.hangup_ignored) == (5, None)
