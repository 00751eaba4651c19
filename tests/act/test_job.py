"""Who belongs to a job: on made-up process tables, and on real trees of processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from killing import SLEEP, FakeVram, Procs, alive

from cockpit.act import job
from cockpit.act.identity import Subject, all_stats, look
from cockpit.act.job import Family, Member, is_launcher, run_marks
from cockpit.model.action import KillRequest, Target
from cockpit.procfs import Stat

TORCHRUN = ("/usr/bin/python3", "/opt/venv/bin/torchrun", "--nproc-per-node", "2", "train.py")
TRAIN = ("/usr/bin/python3", "-u", "train.py")


class Table:
    """A made-up process table."""

    def __init__(self) -> None:
        self.subjects: dict[int, Subject] = {}

    def add(
        self,
        pid: int,
        ppid: int,
        command: tuple[str, ...] = TRAIN,
        *,
        uid: int = 1000,
        group: int = 50,
        session: int = 50,
        state: str = "S",
        ticks: int = 100,
    ) -> None:
        name = os.path.basename(command[0]) if command else "python3"
        stat = Stat(pid, name, state, ppid, group, session, start_ticks=ticks)
        self.subjects[pid] = Subject(stat, uid, pid, name, command)

    def family(self) -> Family:
        stats = {pid: subject.stat for pid, subject in self.subjects.items()}
        return Family(stats, self.subjects.get)

    def members(self, pid: int, gpu: tuple[int, ...] = ()) -> list[tuple[int, str]]:
        found = self.family().members(self.subjects[pid], gpu, lambda _subject: True)
        return [(member.pid, member.role) for member in found]


@pytest.fixture
def torchrun() -> Table:
    """bash 50 → torchrun 60 → ranks 71, 72, each with a loader; beside it another run 90."""
    table = Table()
    table.add(50, 1, ("-bash",))
    table.add(60, 50, TORCHRUN)
    table.add(71, 60)
    table.add(72, 60)
    table.add(81, 71)
    table.add(82, 72)
    table.add(90, 50, ("python", "other.py"))
    return table


def test_a_rank_brings_its_launcher_first_then_the_ranks_then_the_children(torchrun: Table):
    members = [(60, "rank"), (72, "rank"), (81, "child"), (82, "child")]
    assert torchrun.members(71, gpu=(71, 72, 90)) == members


def test_the_launcher_brings_its_ranks(torchrun: Table):
    members = [(71, "rank"), (72, "rank"), (81, "child"), (82, "child")]
    assert torchrun.members(60, gpu=(71, 72)) == members


def test_a_loader_worker_brings_the_whole_run(torchrun: Table):
    assert torchrun.members(81, gpu=(71, 72))[0] == (60, "rank")


def test_a_run_without_launcher_is_not_joined_with_its_neighbour(torchrun: Table):
    assert torchrun.members(90, gpu=(71, 72, 90)) == []


def test_a_launcher_behind_a_shell_is_found():
    table = Table()
    table.add(60, 50, ("mpirun", "-n", "2", "./run.sh"))
    for shell, rank in ((61, 71), (62, 72)):
        table.add(shell, 60, ("/bin/bash", "./run.sh"))
        table.add(rank, shell)
    found = table.members(71, gpu=(71, 72))
    assert found[0] == (60, "rank")
    assert (72, "rank") in found
    assert {(61, "child"), (62, "child")} < set(found)


def test_another_users_parent_heads_no_job(torchrun: Table):
    torchrun.add(60, 50, TORCHRUN, uid=1001)
    assert torchrun.members(71, gpu=(71, 72)) == [(81, "child")]


def test_a_parent_that_must_not_be_signalled_heads_no_job(torchrun: Table):
    family, rank = torchrun.family(), torchrun.subjects[71]
    found = family.members(rank, (71, 72), lambda subject: subject.pid != 60)
    assert [member.pid for member in found] == [81]


def test_launchers_are_sorted_before_ranks_and_ranks_before_children():
    members = [Member(1, "child"), Member(2, "rank"), Member(3, "rank", True), Member(4, "holder")]
    assert [m.pid for m in sorted(members, key=lambda member: member.order)] == [3, 2, 1, 4]


@pytest.mark.parametrize(
    "command",
    [
        TORCHRUN,
        ("torchrun", "train.py"),
        ("/usr/bin/python3", "-u", "-m", "torch.distributed.run", "train.py"),
        ("python3.11", "-X", "dev", "-m", "torch.distributed.launch"),
        ("python", "/v/bin/accelerate", "launch", "train.py"),
        ("python", "-m", "accelerate.commands.launch"),
        ("/opt/openmpi/bin/mpirun", "-n", "8", "python", "train.py"),
        ("python", "-m", "deepspeed.launcher.launch"),
    ],
)
def test_launchers_are_known_by_their_command(command: tuple[str, ...]):
    assert is_launcher(command)


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("python",),
        ("python", "-m"),
        ("python", "train.py", "--launcher", "torchrun"),
        ("python", "-c", "import torchrun"),
        ("vim", "torchrun"),
        ("bash", "-c", "torchrun train.py"),
    ],
)
def test_who_only_mentions_a_launcher_is_none(command: tuple[str, ...]):
    assert not is_launcher(command)


def environment(rank: int, port: int = 29500, launch: str = "") -> dict[str, str]:
    found = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": str(port)}
    if launch:
        found["TORCHELASTIC_ERROR_FILE"] = f"/tmp/{launch}/none_x/attempt_0/{rank}/error.json"
    return found


def test_ranks_of_one_session_and_port_belong_together():
    assert run_marks(environment(0), 50) & run_marks(environment(1), 50)


def test_two_runs_from_one_shell_do_not():
    assert not run_marks(environment(0, 29500), 50) & run_marks(environment(0, 29501), 50)


def test_an_orphan_and_the_next_run_on_its_port_do_not():
    old, new = environment(1, launch="torchelastic_a"), environment(0, launch="torchelastic_b")
    assert not run_marks(old, 71) & run_marks(new, 81)


def test_ranks_of_one_torchrun_belong_together_in_sessions_of_their_own():
    first, second = (environment(rank, launch="torchelastic_a") for rank in (0, 1))
    assert run_marks(first, 71) & run_marks(second, 72)


def test_who_is_no_rank_has_no_marks():
    assert run_marks({"MASTER_PORT": "29500", "WORLD_SIZE": "2"}, 50) == frozenset()


def test_heirs_of_a_dead_leader_are_the_living_of_its_session():
    table = Table()
    table.add(60, 50, (), group=60, session=60, state="Z")
    table.add(61, 1, group=60, session=60)
    table.add(62, 1, group=62, session=60)
    table.add(63, 1, group=60, session=60, state="Z")
    table.add(90, 50)
    assert [stat.pid for stat in table.family().holders(60)] == [61, 62]


def test_heirs_of_a_dead_member_of_a_scripts_group_are_only_its_orphans():
    table = Table()
    table.add(50, 40, ("bash", "sweep.sh"), group=50, session=40)
    table.add(60, 50, (), group=50, session=40, state="Z", ticks=100)
    table.add(61, 1, group=50, session=40, ticks=150)
    table.add(70, 50, group=50, session=40, ticks=160)
    table.add(71, 70, group=50, session=40, ticks=170)
    table.add(59, 1, group=50, session=40, ticks=90)
    assert [stat.pid for stat in table.family().holders(60)] == [61]


def test_a_processes_that_started_before_the_leader_is_not_its_heir():
    table = Table()
    table.add(61, 1, group=60, session=60, ticks=90)
    assert table.family().holders(60, since_ticks=100) == ()
    assert [stat.pid for stat in table.family().holders(60)] == [61]


SPAWN = """
import multiprocessing, os, sys, time
def work():
    time.sleep(300)
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    workers = [context.Process(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    print(os.getpid(), *(worker.pid for worker in workers), flush=True)
    time.sleep(300)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_real_multiprocessing_worker_brings_its_parent(procs: Procs, tmp_path: Path, method: str):
    script = tmp_path / "train.py"
    script.write_text(SPAWN)
    parent, first, second = procs.printed([sys.executable, str(script), method])
    family = Family(all_stats())
    found = family.members(look(first), (), lambda subject: subject.pid != os.getpid())
    assert (found[0].pid, found[0].launcher) == (parent, True)
    assert second in [member.pid for member in found]


def test_real_ranks_without_launcher_are_killed_together(kills_of, procs: Procs):
    variables = {**os.environ, "WORLD_SIZE": "2", "MASTER_PORT": "29512"}
    ranks = [procs.start(SLEEP, env={**variables, "RANK": str(rank)}) for rank in (0, 1)]
    other = procs.start(SLEEP, env={**variables, "RANK": "0", "MASTER_PORT": "29513"})
    kills = kills_of(FakeVram(dict.fromkeys([*ranks, other], 1 << 30)))
    plan = kills.plan(KillRequest(targets=(Target(pid=ranks[0]),), job=True))
    assert [(t.pid, t.role) for t in plan.targets] == [(ranks[0], "target"), (ranks[1], "rank")]
    results = kills.run(plan.id, plan.typed, [].append)
    assert [result.outcome for result in results] == ["freed", "freed"]
    assert alive(other)


RESTARTER = """
import os, signal, subprocess, sys, time
def stop(*_):
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
start = lambda: subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(300)"])
child = start()
print(os.getpid(), child.pid, flush=True)
while True:
    child.wait()
    child = start()
"""


def test_a_launcher_that_restarts_its_ranks_is_ended_before_them(
    kills_of, procs: Procs, tmp_path: Path
):
    launcher = tmp_path / "torchrun"
    launcher.write_text(RESTARTER)
    head, rank = procs.printed([sys.executable, str(launcher)])
    kills = kills_of(FakeVram({rank: 1 << 30}))
    plan = kills.plan(KillRequest(targets=(Target(pid=rank),), job=True))
    assert [(t.pid, t.role) for t in plan.targets] == [(head, "rank"), (rank, "target")]
    assert "launcher" in plan.targets[0].note
    results = kills.run(plan.id, plan.typed, [].append)
    assert [(r.pid, r.outcome) for r in results] == [(head, "ended"), (rank, "freed")]
    left = [s.pid for s in job.Family(all_stats()).relatives(head)]
    assert left == []
