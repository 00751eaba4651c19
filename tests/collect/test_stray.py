"""What is stray, by which of the four reasons, and above all what is not."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from real_processes import Processes, state_of, use, wait_until

from cockpit import procfs
from cockpit.collect.process_table import ProcessTable
from cockpit.collect.stray import Parent, Suspect, judge, minutes, pid_list
from cockpit.model.gpu import Gpu
from cockpit.model.process import Process, Stray

INIT = Parent(1, "systemd", ("/sbin/init",))
SHELL = Parent(900, "bash", ("-bash",))
ORPHAN = Suspect(pid=50, group=50, session=40, name="python", command=("python", "train.py"),
                 parent=INIT, idle_s=720.0, age_s=9000.0, cpu_s=4000.0)  # fmt: skip
SPAWNED = (
    "python",
    "-c",
    "from multiprocessing.spawn import spawn_main; spawn_main(pipe_handle=7)",
)
WORKER = Suspect(pid=50, group=40, session=40, name="python", command=SPAWNED, parent=INIT)
RANK = Suspect(pid=50, group=50, session=50, command=("python", "t.py"), parent=INIT, local_rank=3,
               launched=True)  # fmt: skip
BY_HAND = replace(RANK, launched=False, local_rank=0, rank=0, age_s=9000.0)
ZOMBIE = Suspect(pid=50, group=50, session=50, state="Z", survivors=(51,))

STRAY = {
    "an orphan that idles": (ORPHAN, "orphan_idle"),
    "the same below the user's own systemd": (
        replace(ORPHAN, parent=Parent(700, "systemd", ("/usr/lib/systemd/systemd", "--user"))),
        "orphan_idle",
    ),
    "at first sight: hardly any CPU in its life": (
        replace(ORPHAN, idle_s=0.0, age_s=7200.0, cpu_s=11.0),
        "orphan_idle",
    ),
    "in a container, when its parent was seen to go": (
        replace(ORPHAN, contained=True, first_ppid=30),
        "orphan_idle",
    ),
    "a multiprocessing worker": (WORKER, "launcher_gone"),
    "a DataLoader worker": (
        replace(WORKER, name="pt_data_worker", command=("python", "train.py")),
        "launcher_gone",
    ),
    "a vLLM worker": (replace(WORKER, command=("VLLM::Worker_TP1",)), "launcher_gone"),
    "a worker in a container whose init only adopts": (
        replace(WORKER, contained=True, parent=Parent(1, "tini", ("tini", "--", "serve"))),
        "launcher_gone",
    ),
    "a rank": (RANK, "launcher_gone"),
    "a rank under nohup": (replace(RANK, hangup_ignored=True, age_s=90.0), "launcher_gone"),
    "a young rank under nohup whose launcher was seen to go": (
        replace(RANK, hangup_ignored=True, age_s=5.0, first_ppid=30),
        "launcher_gone",
    ),
    "a young rank": (replace(RANK, age_s=3.0), "launcher_gone"),
    "a young worker in its own session": (
        replace(WORKER, session=50, group=50, age_s=3.0),
        "launcher_gone",
    ),
    "a rank by hand that nobody detached": (replace(BY_HAND, session=40), "launcher_gone"),
    "a rank whose launcher was seen to go": (
        replace(RANK, parent=Parent(33, "python"), first_ppid=30, contained=True),
        "launcher_gone",
    ),
    "a rank that computed long ago": (replace(RANK, quiet_s=600.0), "launcher_gone"),
    "a zombie whose child lives": (ZOMBIE, "leader_gone"),
    "a pid that is gone, whose child lives": (replace(ZOMBIE, state=None), "leader_gone"),
    "a main thread that ended before its threads": (
        replace(ZOMBIE, survivors=(), threads=5),
        "leader_gone",
    ),
    "a forked worker whose group leader is gone": (
        replace(WORKER, command=("python", "train.py"), leader="gone"),
        "leader_gone",
    ),
    "a deleted directory": (
        replace(ORPHAN, parent=SHELL, directory_deleted=True),
        "directory_deleted",
    ),
}

NOT_STRAY = {
    "an orphan that computes": replace(ORPHAN, computes=True),
    "an orphan that was busy lately": replace(ORPHAN, idle_s=300.0),
    "a young orphan": replace(ORPHAN, idle_s=0.0, age_s=500.0, cpu_s=0.0),
    "an orphan that burns CPU": replace(ORPHAN, cpu_pct=80.0),
    "an orphan with a terminal": replace(ORPHAN, has_terminal=True),
    "a nohup job": replace(ORPHAN, hangup_ignored=True),
    "a setsid job, or a systemd service": replace(ORPHAN, session=50),
    "a tmux job": replace(ORPHAN, multiplexed=True),
    "a child of init in a container": replace(ORPHAN, contained=True),
    "an idle child of a shell": replace(ORPHAN, parent=SHELL),
    "an idle notebook": replace(ORPHAN, command=("python", "-m", "ipykernel_launcher", "-f", "k")),
    "a desktop program": replace(ORPHAN, graphics_only=True),
    "an MPS server": replace(ORPHAN, name="nvidia-cuda-mps"),
    "an orphan whose parent is hidden": replace(ORPHAN, parent=None),
    "an orphan without samples (MIG)": replace(ORPHAN, samples_known=False),
    "a worker with its launcher": replace(WORKER, parent=Parent(30, "python", ("python", "t.py"))),
    "a worker whose launcher is the container's pid 1": replace(
        WORKER, contained=True, parent=Parent(1, "python", ("python", "serve.py"))
    ),
    "a rank started by a script that is pid 1": replace(
        RANK, contained=True, parent=Parent(1, "bash", ("/bin/bash", "/entrypoint.sh"))
    ),
    "a pod's first process, to which Kubernetes gave RANK": replace(
        RANK, contained=True, local_rank=None, rank=0
    ),
    "a rank by hand under nohup": replace(BY_HAND, hangup_ignored=True),
    "a rank by hand under setsid": BY_HAND,
    "a rank by hand in tmux": replace(BY_HAND, session=40, multiplexed=True),
    "a rank by hand under nohup whose shell was seen to go": replace(
        BY_HAND, hangup_ignored=True, first_ppid=30
    ),
    "a young rank by hand": replace(BY_HAND, session=40, age_s=5.0),
    "a young rank under nohup": replace(RANK, hangup_ignored=True, age_s=5.0),
    "a young worker under nohup": replace(WORKER, hangup_ignored=True, age_s=5.0),
    "a rank that computes": replace(RANK, computes=True),
    "a rank that computed half a minute ago": replace(RANK, quiet_s=30.0),
    "a rank that writes a checkpoint": replace(RANK, cpu_pct=95.0),
    "a zombie that nobody survives": replace(ZOMBIE, survivors=()),
    "a zombie whose child computes": replace(ZOMBIE, computes=True),
    "the rest of a pipeline": replace(WORKER, command=("cat",), leader="gone", parent=SHELL),
    "a script's nohup job": replace(
        WORKER, command=("python", "t.py"), leader="gone", hangup_ignored=True
    ),
    "a deleted directory under a job that computes": replace(
        ORPHAN, parent=SHELL, directory_deleted=True, computes=True
    ),
    "a deleted directory under a busy job": replace(
        ORPHAN, parent=SHELL, directory_deleted=True, idle_s=10.0
    ),
    "a deleted directory under a tmux job": replace(
        ORPHAN, directory_deleted=True, multiplexed=True
    ),
}


@pytest.mark.parametrize("case", STRAY)
def test_is_stray(case: str) -> None:
    suspect, reason = STRAY[case]
    verdict = judge(suspect)
    assert verdict is not None
    assert verdict.reason == reason


@pytest.mark.parametrize("case", NOT_STRAY)
def test_is_not_stray(case: str) -> None:
    assert judge(NOT_STRAY[case]) is None


def test_sentences_say_why_with_figures() -> None:
    assert sentence(replace(RANK, first_ppid=4711, idle_s=725.0)) == (
        "rank 3: its launcher (pid 4711) is gone, and it has computed nothing for 12 min"
    )
    assert sentence(replace(ORPHAN, idle_s=0.0, age_s=7260.0, cpu_s=2.5)) == (
        "its parent is gone, it has no terminal, and it computes nothing: "
        "2.5 s of CPU in the 2 h 1 min of its life"
    )
    assert sentence(replace(ZOMBIE, survivors=(51, 52))) == (
        "it has ended (zombie), but pids 51, 52 of its session hold on to its memory"
    )


def sentence(suspect: Suspect) -> str:
    verdict = judge(suspect)
    assert verdict is not None
    return verdict.sentence


def test_words_for_times_and_pids() -> None:
    assert [minutes(s) for s in (61, 3600, 180000)] == ["1 min", "1 h 0 min", "2 days"]
    assert pid_list((7,)) == "pid 7"
    assert pid_list(range(1, 8)) == "pids 1, 2, 3, 4 and 3 more"


# -- the same with real processes


def row_at(table: ProcessTable, pid: int, now: float, sm: float | None = None) -> Process:
    (row,) = table.read([use(pid, sm=sm)], now).processes
    return row


def stray_at(table: ProcessTable, pid: int, now: float, sm: float | None = None) -> Stray | None:
    return row_at(table, pid, now, sm).stray


def test_a_real_multiprocessing_worker_whose_launcher_ends(processes: Processes) -> None:
    launched = processes.launched("spawn")
    table = ProcessTable()
    assert stray_at(table, launched.pid, 0.0) is None
    launched.end_launcher()
    assert stray_at(table, launched.pid, 3.0, sm=40.0) is None
    assert stray_at(table, launched.pid, 6.0) is None
    verdict = stray_at(table, launched.pid, 70.0)
    assert verdict is not None
    assert verdict.reason == "launcher_gone"
    assert f"(pid {launched.launcher.pid})" in verdict.sentence


def test_a_real_orphan_is_stray_after_ten_idle_minutes(processes: Processes) -> None:
    launched = processes.launched("group")
    table = ProcessTable()
    assert stray_at(table, launched.pid, 0.0) is None
    launched.end_launcher()
    assert stray_at(table, launched.pid, 300.0) is None
    verdict = stray_at(table, launched.pid, 610.0)
    assert verdict is not None
    assert verdict.reason == "orphan_idle"
    assert "10 min" in verdict.sentence
    assert stray_at(table, launched.pid, 620.0, sm=1.0) is None
    assert stray_at(table, launched.pid, 900.0) is None


@pytest.mark.parametrize("kind", ["nohup", "setsid"])
def test_a_real_job_that_was_detached_on_purpose_is_not_stray(
    processes: Processes, kind: str
) -> None:
    launched = processes.launched(kind)
    table = ProcessTable()
    row_at(table, launched.pid, 0.0)
    launched.end_launcher()
    assert stray_at(table, launched.pid, 700.0) is None
    assert stray_at(table, launched.pid, 1400.0) is None


def test_a_real_rank_by_hand_under_nohup_is_not_stray(processes: Processes) -> None:
    by_hand = ("env", "RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=1", "sleep", "60")
    launched = processes.launched("nohup", *by_hand)
    wait_until(lambda: procfs.command("/proc", launched.pid) == ("sleep", "60"))
    launched.end_launcher()
    table = ProcessTable()
    row = row_at(table, launched.pid, 0.0)
    assert (row.rank, row.stray) == (0, None)
    assert stray_at(table, launched.pid, 700.0) is None


def test_a_real_rank_of_a_launcher_under_nohup_is_stray_after_a_minute(
    processes: Processes,
) -> None:
    by_torchrun = ("env", "RANK=1", "LOCAL_RANK=1", "TORCHELASTIC_RUN_ID=none", "sleep", "60")
    launched = processes.launched("nohup", *by_torchrun)
    wait_until(lambda: procfs.command("/proc", launched.pid) == ("sleep", "60"))
    table = ProcessTable()
    row_at(table, launched.pid, 0.0)
    launched.end_launcher()
    verdict = stray_at(table, launched.pid, 3.0)
    assert verdict is not None
    assert verdict.reason == "launcher_gone"


def test_a_real_job_in_a_living_tmux_is_not_stray(processes: Processes) -> None:
    server = processes.sleeper()
    around = f"TMUX=/tmp/tmux-0/default,{server},0"
    launched = processes.launched("group", "env", around, "TMUX_PANE=%1", "sleep", "60")
    wait_until(lambda: procfs.command("/proc", launched.pid) == ("sleep", "60"))
    assert row_at(ProcessTable(), launched.pid, 0.0).tmux == "%1"
    launched.end_launcher()
    table = ProcessTable()
    row_at(table, launched.pid, 0.0)
    assert stray_at(table, launched.pid, 700.0) is None


def test_a_real_zombie_leader_with_a_living_child(processes: Processes) -> None:
    zombie, child = processes.zombie_leader()
    row = row_at(ProcessTable(), zombie, 0.0)
    assert (row.state, row.command, row.visible) == ("Z", (), True)
    assert row.name
    assert row.stray is not None
    assert row.stray.reason == "leader_gone"
    assert f"pid {child} " in row.stray.sentence
    wait_until(lambda: state_of(child) == "S")


def test_a_leader_that_is_gone_but_still_listed(processes: Processes) -> None:
    zombie, child = processes.zombie_leader()
    table = ProcessTable()
    row_at(table, zombie, 0.0)
    processes.kill(zombie)  # reaps it
    row = row_at(table, zombie, 10.0)
    assert not row.visible
    assert row.gaps["pid"] == "gone"
    assert row.stray is not None
    assert f"pid {child} " in row.stray.sentence


def test_a_real_deleted_directory(processes: Processes, tmp_path: Path) -> None:
    folder = tmp_path / "run1"
    folder.mkdir()
    pid = processes.sleeper(cwd=folder)
    table = ProcessTable()
    assert row_at(table, pid, 0.0).cwd == str(folder)
    shutil.rmtree(folder)
    assert stray_at(table, pid, 300.0) is None
    verdict = stray_at(table, pid, 610.0)
    assert verdict is not None
    assert verdict.reason == "directory_deleted"


def test_nobody_is_stray_on_a_gpu_that_does_not_answer(processes: Processes) -> None:
    launched = processes.launched("spawn")
    table = ProcessTable()
    row_at(table, launched.pid, 0.0)
    launched.end_launcher()
    lost = (Gpu(index=0, state="lost"),)
    (row,) = table.read([use(launched.pid)], 70.0, gpus=lost).processes
    assert row.stray is None
