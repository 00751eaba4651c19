"""One row a process, cached and re-read as it must be; pids that cannot be looked up stay rows."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from real_processes import MIB, Processes, as_other_user, use, wait_until

from cockpit import procfs
from cockpit.collect.process_table import ProcessTable
from cockpit.collect.readings import ProcessUse
from cockpit.model.gpu import Gpu
from cockpit.model.process import Process

Simbox = Callable[..., "subprocess.CompletedProcess[str]"]

UNDER_SIMBOX = textwrap.dedent(
    """
    import os, sys, time, msgspec
    from cockpit.collect.process_table import ProcessTable
    from cockpit.collect.readings import ProcessUse
    uses = []
    for line in open(os.environ["SIMNVML_STATE"]):
        if line.startswith("proc "):
            kv = dict(word.split("=", 1) for word in line.split()[1:])
            vram = None if kv["vram"] == "N/A" else int(kv["vram"]) << 20
            uses.append(ProcessUse(int(kv["pid"]), int(kv["gpu"]), "compute", vram,
                                   float(kv["sm"]) or None, gap=None if vram else "not_supported"))
    table = ProcessTable()
    table.read(uses, 0.0)
    rows = table.read(uses, 1.0).processes
    sys.stdout.buffer.write(msgspec.json.encode(rows))
    """
)


def rows_of(simbox: Simbox, scenario: str) -> list[Process]:
    done = simbox(scenario, ["-c", UNDER_SIMBOX])
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(done.stdout, type=list[Process])


def one(table: ProcessTable, pid: int, now: float = 0.0, **options: object) -> Process:
    (row,) = table.read([use(pid)], now, **options).processes  # type: ignore[arg-type]
    return row


def test_all_gpus_of_a_process_are_one_row(processes: Processes) -> None:
    pid = processes.sleeper()
    uses = [
        use(pid, 10, gpu=1, sm=4.0),
        use(pid, 20, gpu=0),
        ProcessUse(pid, 2, "graphics", MIB, 1.0),
    ]
    (row,) = ProcessTable().read(uses, 0.0).processes
    assert [device.gpu for device in row.devices] == [0, 1, 2]
    assert row.vram_bytes == 31 * MIB
    assert row.kind == "both"
    assert row.command == ("sleep", "60")
    assert row.uid == os.geteuid()


def test_a_share_that_is_not_known_is_no_zero(processes: Processes) -> None:
    pid = processes.sleeper()
    unknown = ProcessUse(pid, 0, "compute", None, None, gap="wsl")
    (row,) = ProcessTable().read([unknown], 0.0).processes
    assert row.vram_bytes is None
    assert row.gaps["vram_bytes"] == "wsl"
    (row,) = ProcessTable().read([unknown, use(pid, 5, gpu=1)], 0.0).processes
    assert (row.vram_bytes, row.gaps["vram_bytes"]) == (5 * MIB, "partial")


def test_cpu_is_not_known_at_first_and_then_measured(processes: Processes) -> None:
    pid = processes.popen(["sh", "-c", "while :; do :; done"]).pid
    table = ProcessTable()
    begin = time.monotonic()
    first = one(table, pid, begin)
    assert first.cpu_pct is None
    assert first.gaps["cpu_pct"] == "not_read_yet"
    time.sleep(0.4)
    row = one(table, pid, time.monotonic())
    assert row.cpu_pct is not None
    assert row.cpu_pct > 5  # of a machine that is busy with other tests
    assert "cpu_pct" not in row.gaps


def test_an_unchanged_row_is_the_same_object(processes: Processes) -> None:
    pid = processes.sleeper()
    table = ProcessTable()
    rows = [one(table, pid, float(now)) for now in range(3)]
    assert rows[1] is rows[2]


def test_what_is_expensive_comes_a_few_processes_at_a_time(processes: Processes) -> None:
    pids = [processes.sleeper() for _ in range(4)]
    table = ProcessTable(owners_per_read=2)
    waiting = [
        sum("rank" in row.gaps for row in table.read([use(pid) for pid in pids], now).processes)
        for now in (0.0, 1.0)
    ]
    assert waiting == [2, 0]
    fresh = ProcessTable(owners_per_read=0).read([use(pid) for pid in pids], 0.0, complete=True)
    assert not any("rank" in row.gaps for row in fresh.processes)


def test_foreign_bytes_in_argv_can_be_encoded(processes: Processes) -> None:
    argv = [b"\xff\xfe\xed\xa0\x80", b"60"]
    pid = processes.popen(argv, executable="/bin/sleep", text=False).pid
    row = one(ProcessTable(), pid)
    assert row.command == ("\\xff\\xfe\\xed\\xa0\\x80", "60")
    assert json.loads(msgspec.json.encode(row))["command"][0].startswith("\\xff")


def test_a_very_long_argv_is_cut_and_says_so(processes: Processes) -> None:
    pid = processes.popen(["sh", "-c", "sleep 60; :", "x" * 9000]).pid
    row = one(ProcessTable(), pid)
    assert sum(map(len, row.command)) < 4200
    assert row.command[-1].endswith("x…")


def test_an_argv_read_amid_an_exec_is_read_again_at_once(
    processes: Processes, tmp_path: Path
) -> None:
    pid = processes.sleeper()
    folder = tmp_path / str(pid)
    folder.mkdir()
    for name in ("stat", "status", "environ"):
        (folder / name).write_bytes(Path(f"/proc/{pid}/{name}").read_bytes())
    (folder / "cmdline").write_bytes(b"")
    table = ProcessTable(str(tmp_path))
    assert one(table, pid, 0.0).command == ()
    (folder / "cmdline").write_bytes(b"vllm\0serve\0")
    row = one(table, pid, 1.0)
    assert (row.command, row.framework) == (("vllm", "serve"), "vllm")
    (folder / "cmdline").write_bytes(b"")  # its memory is gone, it is not yet
    assert one(table, pid, 40.0).command == ("vllm", "serve")


def test_another_argv_is_noticed_within_half_a_minute(processes: Processes, tmp_path: Path) -> None:
    go = tmp_path / "go"
    pid = processes.popen(
        ["sh", "-c", f"until [ -e {go} ]; do sleep 0.02; done; exec sleep 61"]
    ).pid
    table = ProcessTable()
    assert one(table, pid, 0.0).command[0] == "sh"
    go.touch()
    wait_until(lambda: procfs.command("/proc", pid) == ("sleep", "61"))
    assert one(table, pid, 31.0).command == ("sleep", "61")


def test_a_reused_pid_is_another_process(tmp_path: Path) -> None:
    def pretend(start: int, name: str) -> None:
        (tmp_path / "7").mkdir(exist_ok=True)
        fields = f"7 ({name}) S 1 7 7 0 -1 0 0 0 0 0 5 5 0 0 20 0 1 0 {start} 0 10 0"
        (tmp_path / "7" / "stat").write_text(fields)

    table = ProcessTable(str(tmp_path))
    pretend(100, "old")
    assert one(table, 7, 0.0).start_ticks == 100
    pretend(200, "a) new (one")
    reading = table.read([use(7)], 1.0)
    assert reading.processes[0].name == "a) new (one"
    assert [row.start_ticks for row in reading.started] == [200]
    assert [row.start_ticks for row in reading.ended] == [100]


def test_a_run_without_gpu_memory_is_a_row_that_neither_starts_nor_ends(
    processes: Processes,
) -> None:
    trains, idles = processes.sleeper(), processes.sleeper()
    table = ProcessTable()
    table.read([use(trains)], 0.0)
    reading = table.read([use(trains)], 1.0, also=[idles, trains, 2**22 + 1])
    assert [row.pid for row in reading.processes] == [trains, idles]
    row = reading.processes[1]
    assert (row.devices, row.vram_bytes, row.name) == ((), None, "sleep")
    assert row.gaps["vram_bytes"] == "not_listed"
    assert (reading.started, reading.ended) == ((), ())
    reading = table.read([use(trains), use(idles)], 2.0, also=[idles])
    assert [row.pid for row in reading.started] == [idles]  # it began to use a GPU
    assert "vram_bytes" not in reading.processes[1].gaps


def test_starts_and_ends_are_told_once(processes: Processes) -> None:
    first, second = processes.sleeper(), processes.sleeper()
    table = ProcessTable()
    assert not table.read([use(first)], 0.0).started
    assert [row.pid for row in table.read([use(first), use(second)], 1.0).started] == [second]
    processes.kill(first)
    still_listed = table.read([use(first), use(second)], 2.0)
    assert not still_listed.ended
    assert not still_listed.started
    assert still_listed.processes[0].gaps["pid"] == "gone"
    (ended,) = table.read([use(second)], 3.0).ended
    assert (ended.pid, ended.name) == (first, "sleep")
    assert not table.read([use(second)], 4.0).ended


SLOW_START = textwrap.dedent(
    """
    import json, time
    from cockpit.collect.sampler import Sampler
    sampler, late = Sampler(None), None
    sampler.start()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        snapshot = sampler.sample(0.3)
        listed = {use.gpu for row in snapshot.processes for use in row.devices}
        if listed and late is None:
            late = 2 not in listed
        if 2 in listed:
            break
        time.sleep(0.3)
    kinds = [event.kind for event in snapshot.events]
    print(json.dumps([late, sorted(listed), kinds]))
    """
)


def test_what_a_late_gpu_lists_first_has_not_started(simbox: Simbox) -> None:
    done = simbox("slow", ["-c", SLOW_START])
    assert done.returncode == 0, done.stderr
    was_late, listed, kinds = json.loads(done.stdout)
    assert was_late  # else this test shows nothing
    assert listed == [0, 1, 2, 3]
    assert "process_started" not in kinds


def test_a_gpu_that_was_idle_when_it_answered_first_has_starts(processes: Processes) -> None:
    first, second = processes.sleeper(), processes.sleeper()
    table, gpus = ProcessTable(), [Gpu(index=0), Gpu(index=1)]
    table.read([use(first)], 0.0, gpus=gpus)
    reading = table.read([use(first), use(second, gpu=1)], 1.0, gpus=gpus)
    assert [row.pid for row in reading.started] == [second]


def test_processes_of_a_lost_gpu_neither_end_nor_start_again(processes: Processes) -> None:
    pid = processes.sleeper()
    table = ProcessTable()
    table.read([use(pid)], 0.0)
    assert not table.read([], 1.0).ended
    assert not table.read([use(pid)], 2.0).started
    assert not table.read([], 3.0).ended
    processes.kill(pid)
    assert [row.pid for row in table.read([], 4.0).ended] == [pid]


def test_a_pid_that_nobody_has_is_a_row_with_its_reason() -> None:
    row = one(ProcessTable(), 4194303)
    assert not row.visible
    assert row.gaps["pid"] in ("other_namespace", "hidepid")
    assert row.vram_bytes == 1000 * MIB
    assert row.stray is None
    of_proc = ("start_ticks", "started_at", "user", "uid", "name", "state", "ppid", "cpu_pct")
    for field in (*of_proc, "rss_bytes", "cwd"):
        assert getattr(row, field) is None
        assert row.gaps[field] == row.gaps["pid"]


def test_a_gone_process_keeps_its_name_while_the_driver_lists_it(processes: Processes) -> None:
    pid = processes.sleeper()
    table = ProcessTable()
    one(table, pid, 0.0)
    processes.kill(pid)
    row = one(table, pid, 1.0)
    assert (row.visible, row.name, row.gaps["pid"], row.state) == (False, "sleep", "gone", None)


def test_without_a_driver_the_biggest_processes_are_the_rows(processes: Processes) -> None:
    pid = processes.sleeper()
    table = ProcessTable()
    rows = table.read([], 0.0, fallback=True, holders={pid: ("/dev/nvidia0",)}).processes
    assert rows[0].pid == pid
    assert rows[0].vram_bytes is None
    assert rows[0].gaps["vram_bytes"] == "no_driver"
    assert rows[0].gaps["kind"] == "no_driver"
    own = {os.getpid(), os.getppid(), 1}
    assert not own & {row.pid for row in rows}, "the cockpit's own line is no news"


def test_relatives_are_the_ancestors_that_hold_no_memory(processes: Processes) -> None:
    launched = processes.launched("same")
    table = ProcessTable()
    row = one(table, launched.pid)
    found = {relative.pid: relative for relative in table.relatives([row])}
    assert launched.pid not in found
    assert found[launched.launcher.pid].ppid == os.getpid()
    assert os.getpid() in found


def test_stray_holders_of_the_simulated_machine(simbox: Simbox) -> None:
    rows = rows_of(simbox, "stray")
    verdicts = {" ".join(row.command) or row.state: row.stray for row in rows}
    reasons = {line: stray.reason for line, stray in verdicts.items() if stray}
    assert len(rows) == 6
    assert sorted(reasons.values()) == ["launcher_gone", "launcher_gone", "leader_gone"]
    assert reasons["Z"] == "leader_gone"
    zombie = next(row for row in rows if row.state == "Z")
    assert zombie.name == "python"
    assert not zombie.command


def test_rows_of_a_container_say_why_they_are_empty(simbox: Simbox) -> None:
    rows = rows_of(simbox, "container")
    assert [row.gaps["pid"] for row in rows] == ["other_namespace"] * 2
    assert not any(row.visible for row in rows)


def test_hostile_names_come_through_as_data(simbox: Simbox) -> None:
    rows = rows_of(simbox, "hostile")
    assert len(rows) == 7
    assert any("\x1b[31m" in " ".join(row.command) for row in rows)
    assert any("训练.py" in row.command for row in rows)
    assert rows[-1].vram_bytes is None


def test_another_user_sees_rows_of_processes_that_it_may_not_read(processes: Processes) -> None:
    pid = processes.sleeper()
    row = as_other_user(lambda: one(ProcessTable(), pid), Process)
    assert (row.command, row.uid, row.visible) == (("sleep", "60"), os.geteuid(), True)
    fields = ("rank", "conda_env", "tmux", "framework", "cwd")
    assert {row.gaps[field] for field in fields} == {"no_permission"}
