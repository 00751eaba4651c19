"""Guided fixes by a person at a real terminal: from a crash or a bad state to a run that ends well.

Each prints one line: ``flow | keys | seconds | outcome``. Keys are all answers with their Enter;
seconds run from the Enter behind ``cockpit fix`` to the end of the repaired run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pytest

from cockpit.attach.run_record import RunRecord, list_runs
from tests.gpu import smi
from tests.terminal.fix import Walk, desk
from tests.terminal.tmux import Terminal, cockpit, descendants

PROGRAMS = Path(__file__).parent / "programs" / "flows"
GIB = 1 << 30
SEQUENCE_MIB = 384
"""What one sequence of oom_batch.py keeps for the backward pass."""
CONTEXT_MIB = 1500
"""A card with less in use than this has nobody's run on it."""

pytestmark = [
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
    pytest.mark.timeout(240),
]


class Desk:
    """A person's terminal, a folder with a copy of the program, and records of its own."""

    def __init__(self, box: Terminal, folder: Path) -> None:
        self.box, self.folder = box, folder
        self.state = str(folder / "state" / "cockpit")
        assert Walk(box, f"cd {shlex.quote(str(folder))}").status == 0

    def line(self, program: str, *words: str) -> str:
        """The user's command line for one of the programs, which is copied here first."""
        copy = self.folder / program
        if not copy.exists():
            shutil.copy(PROGRAMS / program, copy)
        return shlex.join([sys.executable, program, *words])

    def crash(self, line: str) -> Walk:
        """The run that fails, in the foreground."""
        walk = Walk(self.box, cockpit("run", "--", line), within_s=90)
        assert walk.status not in (0, None), walk.screen
        return walk

    def start(self, line: str) -> RunRecord:
        """The run that goes on in the background, once it has printed something."""
        assert Walk(self.box, cockpit("run", "--background", "--", line)).status == 0
        until(lambda: self.newest().output(1), 60, "no output")
        return self.newest()

    def fix(self, flow: str, *words: str) -> Walk:
        """``cockpit fix FLOW --plain``, up to its first question."""
        return Walk(self.box, cockpit("fix", flow, *words, "--plain"), within_s=120)

    def fix_failed(self, flow: str) -> Walk:
        """The same, of the run that has just failed: it asks which one."""
        walk = self.fix(flow)
        walk.choose("status" if "status" in walk.options[1] else "SIG", within_s=120)
        return walk

    def newest(self) -> RunRecord:
        """The record of the run that was started last."""
        return list_runs(self.state)[0]

    def ended(self, within_s: float = 60.0) -> RunRecord:
        """The newest run, which has ended with status 0 and has trained."""
        until(lambda: self.newest().exit, within_s, "the repaired run does not end")
        run = self.newest()
        assert run.exit is not None
        assert run.exit.status == 0, "\n".join(run.output(40))
        said = run.output(40)
        assert any(line.endswith("trained") for line in said), "\n".join(said)
        return run

    def told(self, flow: str, walk: Walk) -> None:
        """The line of this flow, once the repaired run has ended with status 0."""
        assert walk.status == 0, walk.screen
        print(f"\n{flow} | {walk.keys} keys | {walk.seconds:.0f} s | {walk.last_words}", flush=True)


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Desk]:
    """A desk beside an empty card; whatever its runs leave is ended."""
    until(lambda: smi.used_bytes() < CONTEXT_MIB * smi.MIB, 20, "the card is in use")
    environment = {"XDG_STATE_HOME": str(tmp_path / "state"), "EDITOR": str(tmp_path / "vi")}
    with desk(**environment) as box:
        found = Desk(box, tmp_path)
        yield found
    for run in list_runs(found.state):
        if run.state == "running":
            end([run.meta.pid, *descendants(run.meta.pid)])


def until(holds: Callable[[], object], within_s: float, what: str) -> None:
    """Waits for it, or fails with these words."""
    limit = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < limit, f"{what} within {within_s:g} s"
        time.sleep(0.1)


def end(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def line_of(file: Path, text: str) -> int:
    """Number of the first line with this text."""
    return next(n for n, line in enumerate(file.read_text().splitlines(), 1) if text in line)


def editor(folder: Path, old: str, new: str) -> None:
    """An editor for $EDITOR that changes one text in the line that it is told, and only there."""
    script = folder / "vi"
    script.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "line, file = int(sys.argv[1].removeprefix('+')) - 1, sys.argv[2]\n"
        "lines = open(file).read().splitlines(keepends=True)\n"
        f"assert {old!r} in lines[line], lines[line]\n"
        f"lines[line] = lines[line].replace({old!r}, {new!r})\n"
        "open(file, 'w').write(''.join(lines))\n"
    )
    script.chmod(0o755)


def total_mib() -> int:
    return int(smi.query("gpu", ["memory.total"])[0]["memory.total"] or 0)


# -- out of memory


def test_a_batch_that_is_too_large_is_halved(at: Desk) -> None:
    batch = 2 * round(0.55 * total_mib() / SEQUENCE_MIB)
    crash = at.crash(at.line("oom_batch.py", "--batch-size", str(batch)))
    assert "OutOfMemoryError" in crash.screen
    walk = at.fix_failed("oom")
    walk.choose("halve the batch")
    assert f"--batch-size {batch // 2} --accum-steps 2" in walk.screen
    walk.consent(within_s=90)
    assert str(batch // 2) in at.ended().meta.command
    at.told("oom: batch too large", walk)


def test_a_stray_that_holds_the_card_is_ended_and_the_run_started_again(
    at: Desk, make_stray: Callable[[float], int]
) -> None:
    stray = make_stray(total_mib() / 1024 - 32)
    crash = at.crash(at.line("oom_batch.py", "--batch-size", "120"))
    assert "OutOfMemoryError" in crash.screen
    walk = at.fix_failed("oom")
    walk.do(f"end the stray {stray}")
    assert stray not in smi.apps()
    walk.do("start the run again as it was", within_s=90)
    at.ended()
    at.told("oom: a stray holds the card", walk)


def test_memory_in_pieces_becomes_whole_with_expandable_segments(at: Desk) -> None:
    crash = at.crash(at.line("oom_fragmentation.py"))
    assert "reserved by PyTorch but unallocated" in crash.screen.replace("\n", "")
    walk = at.fix_failed("oom")
    walk.do("let segments grow", within_s=90)
    environment = at.ended().meta.environment
    assert any("expandable_segments:True" in value for value in environment.values())
    at.told("oom: fragmentation", walk)


# -- on the CPU by mistake


def test_a_batch_that_was_left_on_the_cpu_is_brought_to_the_model(at: Desk) -> None:
    crash = at.crash(at.line("cpu_data.py"))
    assert crash.says("Expected all tensors to be on the same device")
    walk = at.fix_failed("no-cuda")
    walk.choose("bring model and batch to the same device")
    assert "+            x, y = x.to(device), y.to(device)" in walk.screen
    walk.consent(within_s=120)
    walk.do("run it again", within_s=90)
    at.ended()
    assert "x, y = x.to(device), y.to(device)" in (at.folder / "cpu_data.py").read_text()
    at.told("no-cuda: batch left on the CPU", walk)


# -- faults of a kernel


def test_an_index_out_of_range_is_located_to_its_line_and_corrected(at: Desk) -> None:
    words = ("--device", "cuda")
    new = "tokens.clamp(max=VOCABULARY - 1)"
    located_and_corrected(at, "index_assert.py", words, "self.table(tokens)", "tokens", new)


def test_an_illegal_access_is_located_to_its_launch_and_corrected(at: Desk) -> None:
    located_and_corrected(at, "illegal_access.py", (), "scale(grid=", "page", "0")


def located_and_corrected(
    at: Desk, program: str, words: tuple[str, ...], guilty: str, old: str, new: str
) -> None:
    """The first traceback names another line: only the reruns name the one that is to blame."""
    crash = at.crash(at.line(program, *words))
    number = line_of(at.folder / program, guilty)
    named = re.findall(rf'{re.escape(program)}", line (\d+)', crash.screen)
    assert named, crash.screen
    assert str(number) not in named
    editor(at.folder, old, new)
    walk = at.fix_failed("kernel-fault")
    walk.do("ways, until one names the line", within_s=150)
    assert f"{program}:{number}" in walk.screen, walk.screen
    walk.choose("in the editor")
    assert re.search(rf"^ +> +{number} ", walk.screen, re.M), walk.screen
    walk.consent()
    assert walk.says(f"{program} was changed in 1 line")
    walk.do("run it again", within_s=90)
    at.ended()
    at.told(f"kernel-fault: {program}, line {number}", walk)


# -- slow


def test_a_trainer_that_waits_for_its_data_gets_workers_and_is_faster(at: Desk) -> None:
    slow = at.start(at.line("starved.py", "--num-workers", "0"))
    walk = found_live(at, slow, "waits for data")
    walk.do("end the whole job")
    walk.do(r"load data in \d+ workers", within_s=90)
    new = at.ended()
    assert new.meta.command[-1] != "0"
    before, after = step_s(slow), step_s(new)
    assert before / after > 1.5
    at.told(f"slow: no workers ({before / after:.1f} times faster)", walk)


def test_a_loop_that_reads_every_loss_reads_it_once(at: Desk) -> None:
    slow = at.start(at.line("sync.py"))
    walk = found_live(at, slow, "wait for the GPU less often")
    number = line_of(at.folder / "sync.py", "total += loss.item()")
    assert f"sync.py:{number}" in walk.screen
    walk.do("wait for the GPU less often")
    walk.do("end the whole job")
    walk.do("run it again", within_s=120)
    new = at.ended(90)
    before, after = step_s(slow), step_s(new)
    assert after < before
    at.told(f"slow: reads each loss ({before / after:.1f} times faster)", walk)


def found_live(at: Desk, run: RunRecord, cause: str) -> Walk:
    """The flow of a run that goes on: it looks at it until it knows."""
    walk = at.fix("slow", "--pid", str(run.meta.pid))
    assert walk.says(cause), walk.screen
    return walk


def step_s(run: RunRecord) -> float:
    """Seconds a step, as the program itself measures them; its warming up does not count."""
    values = [float(one) for one in re.findall(r"([\d.]+) s a step", "\n".join(run.output()))]
    assert values, run.output(20)
    return median(values[1:] or values)


# -- memory that nobody gives back


def test_the_ranks_of_a_killed_launcher_are_ended_and_the_next_run_has_room(at: Desk) -> None:
    share = f"{0.3 * total_mib() / 1024:.1f}"  # of two runs, four ranks do not fit
    line = at.line("orphans.py", "--gib", share)
    launcher = subprocess.Popen(shlex.split(line), cwd=at.folder, stdout=subprocess.DEVNULL)
    try:
        until(lambda: len(smi.apps()) == 2, 60, "the ranks do not come")
        until(lambda: smi.used_bytes() > 0.59 * total_mib() * smi.MIB, 60, "memory is not taken")
    finally:
        ranks = descendants(launcher.pid)
        launcher.kill()
        launcher.wait()
    try:
        held = smi.used_bytes()
        time.sleep(5)  # who computed in the last second is not idle; nobody is quicker than this
        walk = at.fix("vram-held")
        walk.do("end all 2 strays")
        assert not set(ranks) & set(smi.apps())
        freed = held - smi.used_bytes()
        assert freed > 0.58 * total_mib() * smi.MIB
        (at.folder / "data").touch()
        again = Walk(at.box, cockpit("run", "--", line), within_s=90)
        assert again.status == 0, again.screen
        at.ended()
        at.told(f"vram-held: orphaned ranks ({freed / GIB:.0f} GiB came back)", walk)
    finally:
        end([pid for pid in ranks if is_ours(pid, "orphans.py")])


def is_ours(pid: int, word: str) -> bool:
    try:
        return word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


# -- ranks


def test_the_rank_that_stays_away_is_shown_with_its_line_and_the_job_starts_anew(at: Desk) -> None:
    backend = "nccl" if len(smi.query("gpu", ["index"])) > 1 else "gloo"
    program = "hang_two_gpus.py"
    at.line(program)
    stuck = at.folder / "stuck"
    stuck.touch()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    words = ["2", program, "--stuck", str(stuck), "--backend", backend]
    run = at.start(shlex.join([*torchrun, *words]))
    until(lambda: "step 10" in "\n".join(run.output()), 60, "the ranks do not meet")
    time.sleep(3)  # the others have come to the collective by then
    number = line_of(at.folder / program, "this rank stays away")
    waiting = next(pid for pid in smi.apps() if rank_of(pid) == "0")
    walk = at.fix("multi-gpu", "--pid", str(waiting))
    said = " ".join(walk.screen.split())
    assert re.search(rf"rank 1 \(pid \d+\) is at \S*{program}:{number} main", said), walk.screen
    stuck.unlink()  # what had kept it
    walk.do("end the whole job", within_s=60)
    walk.do("start it again with the diagnostics on", within_s=120)
    at.ended()
    at.told(f"multi-gpu ({backend}): rank 1 stays away at line {number}", walk)


def rank_of(pid: int) -> str | None:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    found = re.search(rb"(?:^|\0)RANK=(\d+)", raw)
    return found[1].decode() if found else None
