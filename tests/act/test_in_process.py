"""Kills and operations in runs as guided fixes: shown, run, compared, taken back."""

from __future__ import annotations

from collections.abc import Callable
from subprocess import CompletedProcess

import pytest
from killing import HELD, IGNORE_TERM, FakeVram, Make, Procs, alive, ask

from cockpit.act import in_process
from cockpit.act.action import Console
from cockpit.act.in_process import InRun, KillProcesses, undo_setting
from cockpit.act.signal import Kills
from cockpit.errors import CockpitError, RefusedError
from cockpit.model.action import KillRequest
from cockpit.model.memory import RunOutcome, RunRequest
from cockpit.model.run import RunDevice

GIB = 1 << 30


def killing(kills: Kills, request: KillRequest) -> KillProcesses:
    return KillProcesses(request, kills.plan, kills.run)


def console() -> Console:
    return Console(say=[].append)


def test_the_preview_names_each_target_and_the_outcome_what_came_back(
    kills_of: Make, procs: Procs
) -> None:
    pid = procs.start()
    fix = killing(kills_of(FakeVram({pid: HELD})), ask(pid))
    preview = fix.preview()
    assert (preview.form, preview.risk, preview.typed) == ("signal", "confirm", None)
    assert preview.title == f"SIGTERM to pid {pid}"
    assert f"pid {pid} (" in preview.lines[0]
    assert "14.3 GiB" in preview.lines[0]
    assert preview.loses
    assert alive(pid)
    outcome = fix.run(console())
    assert not alive(pid)
    assert (outcome.ok, outcome.verified) == (True, True)
    assert "freed 14.3 of 14.3 GiB" in outcome.sentence
    (compared,) = outcome.compared
    assert (compared.before, compared.after) == ("14.3 GiB", "0 B")


def test_who_ignores_sigterm_is_ended_by_sigkill_with_the_pid_typed(
    kills_of: Make, procs: Procs
) -> None:
    pid = procs.start(IGNORE_TERM)
    fix = killing(kills_of(FakeVram({pid: HELD})), ask(pid, grace_s=0.3))
    fix.preview()
    outcome = fix.run(console())
    assert outcome.verified is False
    assert alive(pid)
    harder = killing(kills_of(FakeVram({pid: HELD})), ask(pid, signal="KILL"))
    preview = harder.preview()
    assert (preview.title, preview.typed) == (f"SIGKILL to pid {pid}", str(pid))
    assert harder.run(console()).verified is True
    assert not alive(pid)


def test_memory_that_cannot_be_asked_for_is_neither_helped_nor_not(
    kills_of: Make, procs: Procs
) -> None:
    pid = procs.start()
    vram = FakeVram({pid: HELD})
    fix = killing(kills_of(vram), ask(pid))
    fix.preview()
    vram.answers = False
    outcome = fix.run(console())
    assert not alive(pid)
    assert outcome.verified is None
    assert outcome.compared[0].after == "–"


def test_pid_1_cannot_be_run_but_says_why(kills_of: Make) -> None:
    preview = killing(kills_of(), ask(1)).preview()
    assert preview.refusal is not None
    assert "pid 1" in preview.refusal


def test_nothing_runs_that_was_not_shown(kills_of: Make, procs: Procs) -> None:
    pid = procs.start()
    fix = killing(kills_of(), ask(pid))
    with pytest.raises(RefusedError, match="no plan"):
        fix.run(console())
    fix.preview()
    fix.run(console())
    with pytest.raises(RefusedError, match="no plan"):
        fix.run(console())


ON_A_MACHINE = """
import os, time
from cockpit.act.action import Console
from cockpit.act.in_process import KillProcesses
from cockpit.engine.live import LiveMachine
from cockpit.engine.protocol import EngineOptions
from cockpit.model.action import KillRequest, Target

machine = LiveMachine(EngineOptions(complete=True))
machine.start()
holder, end = None, time.monotonic() + 15
while holder is None and time.monotonic() < end:
    rows = machine.snapshot(0.3).processes
    holder = next((p for p in rows if "finetune.py" in p.command and p.vram_bytes), None)
    time.sleep(0.1)
target = Target(pid=holder.pid, start_ticks=holder.start_ticks)
request = KillRequest(targets=(target,), grace_s=0.5)
fix = KillProcesses(request, machine.plan_kill, machine.run_kill)
print(fix.preview().title == f"SIGTERM to pid {holder.pid}")
print(fix.run(Console(say=lambda line: None)).verified)
request = KillRequest(targets=(target,), signal="KILL")
harder = KillProcesses(request, machine.plan_kill, machine.run_kill)
print(harder.preview().typed == str(holder.pid))
outcome = harder.run(Console(say=lambda line: None))
print(outcome.verified, outcome.compared[0].after)
os._exit(0)
"""


def test_a_holder_of_a_simulated_gpu_is_ended_and_nvml_says_that_its_memory_is_back(
    simbox: Callable[..., CompletedProcess[str]],
) -> None:
    """The one that ignores SIGTERM: the real binding, a real process, real signals."""
    ended = simbox("stray", ["-u", "-c", ON_A_MACHINE])
    assert ended.stdout.split() == ["True", "False", "True", "True", "0", "B"], ended.stderr


# -- in a run


def rows(reserved: int, allocated: int) -> tuple[RunDevice, ...]:
    return (RunDevice(gpu=0, reserved_bytes=reserved, allocated_bytes=allocated),)


class FakeRun:
    """The engine's ``in_run.do``, with a setting and a cache."""

    def __init__(self) -> None:
        self.value: object = "False"
        self.reserved = 10 * GIB
        self.ended = False

    def do(self, request: RunRequest, say: object) -> RunOutcome:
        if self.ended:
            raise CockpitError("pid 7 has ended.")
        if request.op == "set":
            old, self.value = self.value, request.value
            undo = RunRequest(pid=7, op="set", name=request.name, value=old)
            return RunOutcome(ok=True, sentence=f"now {self.value}.", undo=undo)
        before, self.reserved = self.reserved, 4 * GIB
        return RunOutcome(
            ok=True,
            sentence="emptied.",
            before=rows(before, 4 * GIB),
            after=rows(self.reserved, 4 * GIB),
        )


def test_an_operation_compares_what_the_allocator_held() -> None:
    run = FakeRun()
    fix = InRun(RunRequest(pid=7, op="empty_cache"), run.do)
    assert fix.preview().form == "operation"
    outcome = fix.run(console())
    assert outcome.verified is True
    assert [(c.what, c.before, c.after) for c in outcome.compared] == [
        ("GPU 0 reserved", "10.0 GiB", "4.0 GiB"),
        ("GPU 0 allocated", "4.0 GiB", "4.0 GiB"),
    ]
    assert fix.run(console()).verified is False  # nothing was left to give back


def test_a_setting_is_set_and_set_back() -> None:
    run = FakeRun()
    request = RunRequest(pid=7, op="set", name="expandable_segments", value="True")
    outcome = InRun(request, run.do).run(console())
    assert (run.value, outcome.undo.kind) == ("True", "setting")
    assert outcome.verified is None
    undo_setting(run.do)(outcome.undo, console())
    assert run.value == "False"
    run.ended = True
    with pytest.raises(CockpitError, match="ended"):
        undo_setting(run.do)(outcome.undo, console())


@pytest.mark.parametrize(
    ("after", "verified", "words"),
    [
        ((0.06,) * 6, True, "40 % faster a step."),
        ((0.101,) * 6, False, "No difference beyond the noise (+1.0 %)."),
        ((0.2,) * 6, False, "100 % slower a step."),
        ((0.05,), None, "Too few steps were seen to compare their times."),
    ],
)
def test_a_setting_that_is_to_make_it_faster_is_judged_by_the_time_of_a_step(
    after: tuple[float, ...], verified: bool | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_process, "SETTLE_S", 0.0)
    times = iter([(0.1,) * 6, after])
    request = RunRequest(pid=7, op="set", name="matmul_precision", value="high")
    run = FakeRun()
    fix = InRun(request, run.do, pace=lambda _pid, _console: next(times))
    outcome = fix.run(console())
    assert outcome.verified is verified
    assert outcome.sentence == f"now high. {words}"
    assert outcome.compared[0].before == "100 ms (100 to 100)"
    assert outcome.undo is not None


@pytest.mark.parametrize("op", ["history", "snapshot", "profile", "detach", "set"])
def test_no_operation_promises_a_comparison_that_it_does_not_make(op: str) -> None:
    fix = InRun(RunRequest(pid=7, op=op, name="matmul_precision", value="high"), FakeRun().do)
    assert "allocator" not in fix.preview().verify
    assert fix.preview().verify
    paced = InRun(RunRequest(pid=7, op=op), FakeRun().do, pace=lambda _pid, _console: ())
    assert ("before and after" in paced.preview().verify) == (op == "set")


@pytest.mark.parametrize("op", ["gc", "history", "snapshot", "profile", "detach", "free_frames"])
def test_every_operation_has_words(op: str) -> None:
    preview = InRun(RunRequest(pid=7, op=op), FakeRun().do).preview()
    assert "pid 7" in preview.title
    assert preview.loses
    assert preview.risk == "confirm"
