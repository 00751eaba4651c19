"""When a relaunched run counts as helped, by looks that are given to it; and what faster means."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cockpit.act.relaunch_check import Check, Terms, compared
from cockpit.act.step_times import compare_step_times, spread
from cockpit.model.run_command import RunMeasure, SeenRun

RUNS = SeenRun(directory="/d", name="t.py", pid=7, start_ticks=1, state="running")
ENDED = replace(RUNS, state="ended")
TERMS = Terms(steps=20, settle_s=100.0)


def check(**before: object) -> Check:
    return Check(RunMeasure(**before), TERMS, 0.0)  # type: ignore[arg-type]


def test_status_0_is_help_and_any_other_is_none() -> None:
    good = check().take(replace(ENDED, exit_status=0), 1.0)
    assert good is not None
    assert good.verified is True
    bad = check(step=3).take(replace(ENDED, exit_status=1, ooms=1), 1.0)
    assert bad is not None
    assert bad.verified is False
    assert "ran out of GPU memory" in bad.sentence
    killed = check().take(replace(ENDED, exit_status=137, signal="SIGKILL"), 1.0)
    assert killed is not None
    assert killed.verified is False


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_run_that_somebody_ended_says_nothing(name: str) -> None:
    answer = check().take(replace(ENDED, exit_status=130, signal=name), 1.0)
    assert answer is not None
    assert answer.verified is None


def test_it_has_to_pass_the_step_at_which_the_old_one_failed() -> None:
    watching = check(step=140)
    assert watching.take(replace(RUNS, step=139), 500.0) is None
    assert watching.take(replace(RUNS, step=140), 501.0) is None
    answer = watching.take(replace(RUNS, step=141), 502.0)
    assert answer is not None
    assert answer.verified is True
    assert "passed step 140" in answer.sentence


def test_twenty_steps_suffice_where_the_failing_one_is_not_known() -> None:
    watching = check()
    assert watching.take(replace(RUNS, step=5), 1.0) is None
    assert watching.take(replace(RUNS, step=24), 2.0) is None
    answer = watching.take(replace(RUNS, step=25), 3.0)
    assert answer is not None
    assert answer.verified is True


def test_without_steps_it_has_to_live_longer_than_the_old_one_did() -> None:
    assert check().take(RUNS, 99.0) is None
    assert check().take(RUNS, 100.0).verified is True  # type: ignore[union-attr]
    assert check(lasted_s=1000.0).take(RUNS, 1199.0) is None
    assert check(lasted_s=1000.0).take(RUNS, 1200.0).verified is True  # type: ignore[union-attr]


def test_of_a_run_that_hung_silence_is_no_sign_that_it_works() -> None:
    watching = Check(RunMeasure(), Terms(settle_s=100.0, hangs=True), 0.0)
    assert watching.take(RUNS, 99.0) is None
    answer = watching.take(RUNS, 100.0)
    assert answer is not None
    assert answer.verified is None
    assert "whether it stands still again cannot be told" in answer.sentence
    steps = Check(RunMeasure(step=3), Terms(settle_s=100.0, hangs=True), 0.0)
    assert steps.take(replace(RUNS, step=3), 500.0) is None, "it stands where it stood"
    answer = steps.take(replace(RUNS, step=4), 501.0)
    assert answer is not None
    assert answer.verified is True


@pytest.mark.parametrize(
    ("before", "after", "failure", "verified", "words"),
    [
        ("oom", "oom", "too large", False, "failed again with status 1"),
        ("oom", "unknown", "ValueError: x", None, "of something else (ValueError: x)"),
        ("oom", "unknown", "", None, "and does not say of what"),
        ("oom", "kernel-fault", "an assert", None, "of something else (an assert)"),
        (None, "oom", "too large", False, "failed again with status 1"),
    ],
)
def test_what_fails_of_something_else_says_nothing_of_the_change(
    before: str | None, after: str, failure: str, verified: bool | None, words: str
) -> None:
    answer = check(family=before, exit_status=1).take(
        replace(ENDED, exit_status=1, family=after, failure=failure), 1.0
    )
    assert answer is not None
    assert answer.verified is verified
    assert words in answer.sentence


def test_a_run_that_had_not_failed_does_not_fail_again() -> None:
    answer = check(step=3).take(replace(ENDED, exit_status=1), 1.0)
    assert answer is not None
    assert answer.sentence == "t.py failed with status 1"


def test_a_run_whose_end_nobody_saw_is_not_called_help() -> None:
    watching, lost = check(), replace(RUNS, state="lost")
    assert watching.take(lost, 1.0) is None, "its keeper may be about to write it"
    assert watching.take(lost, 3.0) is None
    answer = watching.take(lost, 6.5)
    assert answer is not None
    assert answer.verified is None


def test_an_end_that_is_written_a_moment_late_counts() -> None:
    watching = check()
    assert watching.take(replace(RUNS, state="lost"), 1.0) is None
    answer = watching.take(replace(ENDED, exit_status=0), 1.1)
    assert answer is not None
    assert answer.verified is True


FAST = Terms(faster=True)


def paced(before: tuple[float, ...], per_s: list[float], **end: object) -> tuple[object, str]:
    """The answer, after so many looks at a run that does so many steps a second."""
    watching = Check(RunMeasure(step_times_s=before), FAST, 0.0)
    for at, rate in enumerate(per_s):
        seen = replace(RUNS, step=at + 1, steps_per_s=rate)
        if (answer := watching.take(seen, float(at))) is not None:
            return answer.verified, answer.sentence
    if not end:
        return "undecided", ""
    answer = watching.take(replace(ENDED, **end), 99.0)
    assert answer is not None
    return answer.verified, answer.sentence


SLOW = (0.26, 0.27, 0.26, 0.25, 0.26)


def test_a_trainer_is_faster_only_when_its_steps_are() -> None:
    verified, sentence = paced(SLOW, [2.0, 3.0, *[6.0] * 6])
    assert verified is True
    assert "faster a step" in sentence
    assert paced(SLOW, [4.0, *[3.8] * 8])[0] is False, "the same, within the noise"
    assert paced(SLOW, [2.0] * 8)[0] is False
    assert paced(SLOW, [6.0] * 4)[0] == "undecided"


def test_a_run_that_works_but_was_not_measured_is_not_called_faster() -> None:
    verified, sentence = paced(SLOW, [6.0] * 3, exit_status=0)
    assert verified is None
    assert "too few steps were seen" in sentence
    assert paced((), [6.0] * 30)[0] is None, "nothing to compare with"
    assert paced(SLOW, [6.0] * 3, exit_status=1)[0] is False


def test_a_run_that_was_ended_on_purpose_had_not_failed() -> None:
    ended = check(step=3, exit_status=143, signal="SIGTERM")
    answer = ended.take(replace(RUNS, step=4), 1.0)
    assert answer is not None
    assert "the last one of before" in answer.sentence


def test_before_and_after_have_only_what_is_known_of_one() -> None:
    watching = check(step=3)
    watching.take(replace(RUNS, step=4, allocated_peak_bytes=1 << 30, steps_per_s=10.0), 1.0)
    rows = {
        row.what: (row.before, row.after)
        for row in compared(
            RunMeasure(step=3, exit_status=1, allocated_peak_bytes=2 << 30),
            watching.measure(RUNS, 2.0),
        )
    }
    assert rows["end"] == ("status 1", "–")
    assert rows["last step seen"] == ("3", "4")
    assert rows["peak memory allocated"] == ("2.0 GiB", "1.0 GiB")
    assert "peak memory reserved" not in rows
    assert rows["time a step"] == ("–", "100 ms (100 to 100)")


def test_a_difference_inside_the_noise_is_no_gain() -> None:
    noisy = [0.10, 0.12, 0.08, 0.11, 0.09, 0.13]
    assert compare_step_times(noisy, [t * 0.95 for t in noisy]).verdict == "same"
    steady = [0.100, 0.101, 0.099, 0.100, 0.100]
    assert compare_step_times(steady, [t * 0.98 for t in steady]).verdict == "same"
    faster = compare_step_times(steady, [t * 0.9 for t in steady])
    assert (faster.verdict, faster.sentence) == ("faster", "10 % faster a step")
    assert compare_step_times(steady, [t * 1.5 for t in steady]).verdict == "slower"
    assert compare_step_times(steady, steady[:4]).verdict == "unknown"
    assert compare_step_times([0.0] * 9, steady).verdict == "unknown"
    assert spread(()) == "–"
