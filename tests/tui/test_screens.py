"""The pages as a whole: goldens at three sizes, and what keys do."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.binding import Binding

from cockpit.engine.protocol import AskKillPlan, Tick, Watch
from cockpit.model.action import KillPlan, KillResult, PlannedTarget
from cockpit.model.process import Relative
from cockpit.tui import bindings
from cockpit.tui.filter import parse
from cockpit.tui.key_names import why_not
from cockpit.tui.screens.kill import KillDialog
from cockpit.tui.screens.overview import OverviewScreen
from tests.tui.screen_text import Stage, stage

GOLDENS = Path(__file__).parent / "goldens"
SIZES = [(80, 24), (120, 40), (200, 50)]


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    import time

    time.tzset()


def assert_golden(name: str, text: str) -> None:
    path = GOLDENS / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDENS"):
        GOLDENS.mkdir(exist_ok=True)
        path.write_text(text + "\n")
    assert text + "\n" == path.read_text()


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("scenario", ["busy", "stray", "big", "nodriver"])
async def test_the_overview(scenario, size):
    async with stage(scenario, size) as play:
        await play.tick(5)
        assert_golden(f"overview-{scenario}-{size[0]}x{size[1]}", play.text)


async def test_the_overview_in_ascii_without_colour():
    async with stage("stray", ascii=True, color=False) as play:
        await play.tick(5)
        assert play.text.isascii()
        assert_golden("overview-stray-ascii", play.text)


@pytest.mark.parametrize(
    ("key", "name"), [("3", "gpu"), ("n", "links"), ("l", "events"), ("question_mark", "help")]
)
async def test_a_page(key, name):
    async with stage("throttle", (120, 40)) as play:
        await play.tick(5)
        await play.pilot.press(key)
        await play.tick()
        assert_golden(f"page-{name}", play.text)
        await play.pilot.press("escape")
        assert isinstance(play.app.screen, OverviewScreen)


async def test_two_digits_typed_at_once_are_one_gpu(monkeypatch):
    monkeypatch.setattr("cockpit.tui.app.DIGITS_WITHIN_S", 5.0)  # a loaded machine types slowly
    async with stage("big", (120, 40)) as play:
        await play.tick(2)
        await play.pilot.press("1", "2")
        await play.tick()
        assert play.text.startswith(" GPU 12 ")


async def test_digits_typed_at_once_beyond_the_last_gpu_are_single_ones(monkeypatch):
    monkeypatch.setattr("cockpit.tui.app.DIGITS_WITHIN_S", 5.0)
    for scenario, keys, shown in (("busy", "12", 2), ("big", "123", 3), ("big", "112", 2)):
        async with stage(scenario, (120, 40)) as play:
            await play.tick(2)
            gpus = {one.index for one in play.app.view.snapshot.gpus}
            assert (12 in gpus) == (scenario == "big")
            await play.pilot.press(*keys)
            await play.tick()
            assert play.text.startswith(f" GPU {shown} "), keys
            assert "There is no GPU" not in play.text


@pytest.mark.parametrize(
    ("start", "key", "then"),
    [
        (0.1, "minus", 0.1),
        (0.2, "minus", 0.2),
        (0.2, "plus", 0.5),
        (3.0, "plus", 5.0),
        (3.0, "minus", 2.0),
        (10.0, "plus", 10.0),
        (30.0, "plus", 30.0),
        (60.0, "minus", 10.0),
    ],
)
async def test_plus_is_never_shorter_and_minus_never_longer(start, key, then):
    async with stage("busy", interval_s=start) as play:
        await play.tick(2)
        await play.pilot.press(key)
        assert play.app.view.interval_s == then


async def test_the_traces_of_a_held_picture_stand_still_when_it_is_drawn_anew():
    async with stage("busy") as play:
        await play.tick(4)
        await play.pilot.press("p")
        await play.pilot.pause()
        held = [line for line in play.text.splitlines() if "%" in line]
        await play.tick(9)
        await play.pilot.press("question_mark", "escape")
        await play.pilot.pause()
        assert [line for line in play.text.splitlines() if "%" in line] == held
        await play.pilot.press("p")
        await play.pilot.pause()
        assert [line for line in play.text.splitlines() if "%" in line] != held


async def test_another_interval_or_a_dead_engine_leaves_the_held_picture_of_its_moment():
    async with stage("busy", (120, 40)) as play:
        await play.tick(3)
        await play.pilot.press("p")
        held = play.app.view.snapshot
        await play.tick(5)
        await play.pilot.press("plus")
        assert play.app.view.snapshot is held
        assert play.app.view.interval_s == 2.0
        play.app._on_trouble("The engine was ended by signal 9.")
        await play.pilot.pause()
        assert "ended by signal 9" in play.text
        assert play.app.view.snapshot is held
        await play.tick()  # of the next engine
        assert "ended by signal 9" not in play.text
        assert play.app.view.snapshot is held
        await play.pilot.press("p")
        assert play.app.view.snapshot is not held


async def test_axes_and_traces_reach_as_far_back_as_their_samples_whatever_the_interval_is_now():
    async with stage("busy", (120, 50)) as play:
        await play.tick(61)
        (reach,) = re.findall(r"last \d+ s", play.text)
        await play.pilot.press("plus", "plus", "plus")
        assert play.app.view.interval_s == 10.0
        assert reach in play.text
        await play.pilot.press("1")
        await play.pilot.pause()
        assert "-60 s" in play.text
        assert "min" not in play.text.split("UUID")[0]


async def test_a_digit_without_a_gpu_says_so():
    async with stage("stray") as play:
        await play.tick(2)
        await play.pilot.press("9")
        await play.pilot.pause(0.2)
        assert "There is no GPU 9" in play.text


async def test_pause_holds_the_picture_but_not_the_history():
    async with stage("busy") as play:
        await play.tick(2)
        await play.pilot.press("p")
        held = play.text
        assert "PAUSED" in held or "held" in held
        await play.tick(3)
        assert play.text == held
        await play.pilot.press("p")
        assert play.text != held
        assert play.app.view is not None
        assert play.app.view.history.count == 5


async def test_the_filter_hides_what_does_not_match_and_esc_shows_all():
    async with stage("stray", (100, 30)) as play:
        await play.tick(2)
        before = play.text.count(" ml1 ")
        await play.pilot.press("slash", *"is:stray")
        await play.tick()
        assert 0 < play.text.count(" ml1 ") < before
        await play.pilot.press("enter", "escape")
        await play.tick()
        assert play.text.count(" ml1 ") == before


async def test_a_wrong_filter_value_is_explained_while_the_rest_works():
    async with stage("stray", (100, 30)) as play:
        await play.tick(2)
        await play.pilot.press("slash", *"vram>abc")
        await play.tick()
        assert "vram" in play.text.split("PID")[0]


async def test_tags_stay_on_their_process_and_x_takes_all_of_them():
    async with stage("stray", (100, 30)) as play:
        await play.tick(2)
        await play.pilot.press("space", "space")
        await play.tick()
        assert play.text.count("•") == 2
        await play.pilot.press("x")
        await play.pilot.pause()
        asked = [one for one in play.app._session._link.sent if isinstance(one, AskKillPlan)]
        assert len(asked[-1].request.targets) == 2
        assert all(one.start_ticks is not None for one in asked[-1].request.targets)


async def test_the_tag_of_a_process_that_has_ended_is_gone_with_it():
    async with stage("stray", (100, 30)) as play:
        await play.tick(2)
        await play.pilot.press("space")
        (tagged,) = play.app.screen._tags.values()
        snapshot = play.app.view.snapshot
        rest = tuple(one for one in snapshot.processes if one.pid != tagged.pid)
        later = replace(snapshot, taken_at="2026-11-30T12:10:00.000Z", processes=rest)
        play.app._on_tick(Tick(snapshot=later))
        await play.pilot.pause()
        under = play.app.screen._under_cursor().pid
        await play.pilot.press("x")
        await play.pilot.pause()
        asked = [one for one in play.app._session._link.sent if isinstance(one, AskKillPlan)]
        assert [one.pid for one in asked[-1].request.targets] == [under]


async def test_readonly_offers_no_kill_at_all():
    async with stage("stray", readonly=True) as play:
        await play.tick(2)
        await play.pilot.press("x", "space")
        await play.pilot.pause()
        assert not isinstance(play.app.screen, KillDialog)
        assert "kill" not in play.text
        assert "READONLY" in play.text.upper()


async def test_the_tree_is_asked_for_only_while_it_is_shown():
    async with stage("busy") as play:
        await play.tick(2)
        await play.pilot.press("t")
        await play.pilot.press("t")
        watches = [one.tree for one in play.app._session._link.sent if isinstance(one, Watch)]
        assert watches == [True, False]


async def test_keys_can_be_remapped():
    async with stage("stray", (100, 30), keys={"kill": "K"}) as play:
        await play.tick(2)
        await play.pilot.press("x")
        await play.pilot.pause()
        assert not isinstance(play.app.screen, KillDialog)
        assert "K kill" in play.text
        await play.pilot.press("K")
        await play.pilot.pause()
        assert isinstance(play.app.screen, KillDialog)


def many_targets() -> tuple[PlannedTarget, ...]:
    """More than a dialog shows at once."""
    return tuple(
        PlannedTarget(pid=5000 + n, start_ticks=n, user="ml1", command="python", vram_bytes=1 << 30)
        for n in range(30)
    )


def answer_plan(play: Stage, **fields) -> None:
    """The engine's answer to the newest question for a plan."""
    asked = [one for one in play.app._session._link.sent if isinstance(one, AskKillPlan)][-1]
    target = asked.request.targets[0]
    planned = PlannedTarget(
        pid=target.pid,
        start_ticks=target.start_ticks,
        user="ml1",
        command="python train.py",
        vram_bytes=15 << 30,
    )
    plan = KillPlan(
        **{
            "id": "plan-1",
            "signal": asked.request.signal,
            "grace_s": 10.0,
            "targets": (planned,),
            "loses": ("What was computed since the last checkpoint.",),
            **fields,
        }
    )
    play.app._session._waiting[asked.id].set_result(reply(asked.id, plan=plan))


def reply(id_, **fields):
    from cockpit.engine.protocol import Reply

    return Reply(id=id_, **fields)


def runs(play: Stage) -> list:
    from cockpit.engine.protocol import RunKill

    return [one for one in play.app._session._link.sent if isinstance(one, RunKill)]


async def test_nothing_is_signalled_before_the_plan_is_shown_and_confirmed():
    async with stage("stray", (100, 30)) as play:
        await play.tick(2)
        await play.pilot.press("x", "enter", "enter", "y")
        assert not runs(play)
        answer_plan(play)
        await play.pilot.pause()
        await play.pilot.pause()
        assert "You lose" in play.text
        assert not runs(play)
        await play.pilot.press("enter")
        assert [one.plan for one in runs(play)] == ["plan-1"]


async def test_keys_that_were_typed_ahead_neither_change_nor_repeat_what_was_confirmed():
    async with stage("stray", (100, 30)) as play:
        await play.tick(2)
        await play.pilot.press("x")
        answer_plan(play)
        await play.pilot.pause()
        await play.pilot.pause()
        dialog = play.app.screen
        dialog.action_confirm()
        dialog.action_confirm()
        dialog.action_signal(1)
        dialog.action_job()
        await play.pilot.pause()
        assert [one.plan for one in runs(play)] == ["plan-1"]
        asked = [one for one in play.app._session._link.sent if isinstance(one, AskKillPlan)]
        assert len(asked) == 1


async def test_sigkill_runs_only_after_the_pid_was_typed():
    async with stage("stray", (100, 30)) as play:
        await play.tick(2)
        await play.pilot.press("x")
        answer_plan(play, signal="KILL", typed="4711")
        await play.pilot.pause()
        await play.pilot.pause()
        await play.pilot.press("enter", "enter")
        assert not runs(play)
        await play.pilot.press(*"4712", "enter")
        assert not runs(play)
        await play.pilot.press(*"4711", "enter")
        assert [one.typed for one in runs(play)] == ["4711"]


async def test_every_signal_and_the_whole_job_are_reached_past_the_field_for_the_pid():
    async with stage("stray", (100, 30)) as play:
        await play.tick(2)
        await play.pilot.press("x")
        seen = []
        for keys in (["right"], ["4", "7", "right"], ["right"], ["left"], ["1", "j"], []):
            asked = [one for one in play.app._session._link.sent if isinstance(one, AskKillPlan)]
            seen.append((asked[-1].request.signal, asked[-1].request.job))
            typed = "4711" if asked[-1].request.signal == "KILL" else None
            answer_plan(play, typed=typed)
            await play.pilot.pause()
            await play.pilot.pause()
            if len(seen) == 1:  # one before SIGKILL
                for _ in range(3):
                    await play.pilot.press("right")
                    answer_plan(play)
                    await play.pilot.pause()
                    await play.pilot.pause()
            await play.pilot.press(*keys)
            await play.pilot.pause()
        assert [signal for signal, _ in seen] == ["TERM", "KILL", "STOP", "CONT", "STOP", "STOP"]
        assert [job for _, job in seen] == [False] * 5 + [True]
        assert not runs(play)


async def test_a_survivor_is_offered_sigkill_which_is_planned_anew():
    async with stage("stray", (100, 30)) as play:
        await play.tick(2)
        await play.pilot.press("x")
        answer_plan(play)
        await play.pilot.pause()
        await play.pilot.pause()
        await play.pilot.press("enter")
        run = runs(play)[-1]
        target = play.app.screen._plan.targets[0]
        result = KillResult(
            pid=target.pid,
            outcome="survived",
            sentence=f"pid {target.pid} is still there after 10 s",
            offer_kill=True,
        )
        play.app._session._waiting[run.id].set_result(reply(run.id, results=(result,)))
        await play.pilot.pause()
        await play.pilot.pause()
        assert "still there" in play.text
        await play.pilot.press("k")
        await play.pilot.pause()
        asked = [one for one in play.app._session._link.sent if isinstance(one, AskKillPlan)][-1]
        assert asked.request.signal == "KILL"
        assert asked.request.targets[0].start_ticks == target.start_ticks
        assert len(runs(play)) == 1


async def test_a_refused_plan_cannot_be_confirmed():
    async with stage("stray", (100, 30)) as play:
        await play.tick(2)
        await play.pilot.press("x")
        refused = PlannedTarget(
            pid=1,
            start_ticks=1,
            user="root",
            command="init",
            vram_bytes=None,
            refusal="protected",
            refusal_sentence="pid 1 is PID 1: all else here ends with it",
        )
        answer_plan(play, targets=(refused,))
        await play.pilot.pause()
        await play.pilot.pause()
        await play.pilot.press("enter", "y")
        assert "PID 1" in play.text
        assert not runs(play)


async def test_another_signal_makes_the_shown_plan_worthless_until_the_new_one_is_there():
    async with stage("stray", (100, 30)) as play:
        await play.tick(2)
        await play.pilot.press("x")
        answer_plan(play)
        await play.pilot.pause()
        await play.pilot.pause()
        await play.pilot.press("right", "enter", "enter")
        assert not runs(play)
        answer_plan(play, id="plan-2")
        await play.pilot.pause()
        await play.pilot.pause()
        await play.pilot.press("enter")
        assert [one.plan for one in runs(play)] == ["plan-2"]


async def test_a_plan_longer_than_the_dialog_runs_only_after_its_end_was_seen():
    async with stage("stray", (80, 24)) as play:
        await play.tick(2)
        await play.pilot.press("x")
        answer_plan(play, targets=many_targets())
        await play.pilot.pause()
        await play.pilot.pause()
        await play.pilot.pause(0.1)
        assert "see the rest first" in play.text
        await play.pilot.press("enter")
        assert not runs(play)
        for _ in range(6):
            await play.pilot.press("pagedown")
        await play.pilot.pause(0.1)
        assert "You lose" in play.text
        await play.pilot.press("enter")
        assert len(runs(play)) == 1


async def test_beside_the_typed_pid_the_other_keys_of_the_dialog_still_work():
    async with stage("stray", (80, 24)) as play:
        await play.tick(2)
        await play.pilot.press("x")
        answer_plan(play, signal="KILL", typed="4711")
        await play.pilot.pause()
        await play.pilot.pause()
        assert "type 4711" in play.text
        await play.pilot.press("4", "z", "7")
        assert play.app.screen._typed.value == "47"
        await play.pilot.press("left")
        answer_plan(play)
        await play.pilot.pause()
        await play.pilot.press("j")
        asked = [one for one in play.app._session._link.sent if isinstance(one, AskKillPlan)]
        assert len(asked) == 3
        assert asked[-1].request.job


@pytest.mark.parametrize("height", [24, 40])
async def test_a_plan_that_the_screen_has_room_for_is_whole_and_says_what_enter_does(height):
    async with stage("stray", (80, height)) as play:
        await play.tick(2)
        await play.pilot.press("x")
        target = PlannedTarget(
            pid=4711,
            start_ticks=1,
            user="ml1",
            command="python train.py --config configs/a-name-longer-than-the-line.yaml --bs 32",
            vram_bytes=1 << 30,
            note="its memory is held by pid 5617",
        )
        loses = ("A sentence that is longer than one line of a narrow dialog, as they are.",) * 2
        answer_plan(play, signal="KILL", typed="4711", targets=(target,), loses=loses)
        await play.pilot.pause()
        await play.pilot.pause()
        assert "Type 4711 to go on" in play.text
        assert "--bs 32" in play.text
        assert "see the rest first" not in play.text
        assert "scroll" not in play.text


async def test_what_textual_draws_by_itself_is_ascii_too():
    async with stage("stray", ascii=True) as play:
        await play.tick(2)
        play.app.notify("Left; nothing was changed.", severity="warning")
        await play.pilot.pause(0.1)
        assert "Left; nothing" in play.text
        assert play.text.isascii()
        await play.pilot.press("x")
        answer_plan(play)
        await play.pilot.pause()
        await play.pilot.pause()
        assert "SIGTERM" in play.text
        assert play.text.isascii()
        await play.pilot.press("escape", "ctrl+p")
        await play.pilot.pause(0.3)
        assert "Help" in play.text
        assert play.text.isascii()


@pytest.mark.parametrize("key", ["i", "l", "n", "question_mark"])
async def test_a_page_does_not_offer_the_key_that_opened_it(key):
    async with stage("stray", (160, 30)) as play:
        await play.tick(2)
        words = {"i": "i findings", "l": "l events", "n": "n links", "question_mark": "? help"}
        assert words[key] in play.text.splitlines()[-1]
        await play.pilot.press(key)
        await play.tick()
        assert words[key] not in play.text.splitlines()[-1]
        await play.pilot.press("escape")
        await play.tick()
        assert words[key] in play.text.splitlines()[-1]


async def test_help_begins_with_the_page_that_was_asked_from():
    async with stage("stray") as play:
        await play.tick(2)
        await play.pilot.press("l", "question_mark")
        await play.tick()
        assert play.text.splitlines()[1] == " On this page"
        assert "esc esc" not in play.text


async def test_a_page_that_goes_on_below_the_edge_says_so():
    async with stage("throttle") as play:
        await play.tick(3)
        await play.pilot.press("0")
        await play.tick()
        assert "PgDn more" in play.text.splitlines()[-1]
        await play.pilot.press("escape", "n")
        await play.tick()
        assert "PgDn" not in play.text


async def test_the_alert_names_the_kill_key_only_on_the_row_that_it_means():
    async with stage("stray", (100, 30)) as play:
        await play.tick(2)
        assert "w: go there" in play.text
        assert "x: kill it" not in play.text
        await play.pilot.press("w")
        await play.tick()
        assert "x: kill it" in play.text
        assert play.app.screen._under_cursor().stray is not None


async def test_an_engine_that_falls_silent_is_told_and_its_values_are_called_old():
    async with stage("busy") as play:
        await play.tick(2)
        play.app._heard_at -= 60
        play.app._watch_silence()
        await play.pilot.pause()
        assert "has not answered" in play.text
        await play.tick()
        assert "has not answered" not in play.text


async def test_an_unknown_theme_or_key_is_a_sentence_not_a_traceback():
    from cockpit.errors import UsageError

    with pytest.raises(UsageError, match="cockpit-dark"):
        async with stage("busy", theme="nosuch"):
            pass
    with pytest.raises(UsageError, match="kill"):
        async with stage("busy", keys={"nosuch": "x"}):
            pass


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("ctrl+shift+nonsense+", "nothing follows the last plus"),
        ("ctrl+shift+nonsense", "there is none named `nonsense`"),
        ("strg+x", "`strg` is not one of alt, ctrl"),
        ("shift+ctrl+f5", "it is written `ctrl+shift+f5`"),
        ("F9", "it is written `f9`"),
        ("f9,,k", "an empty key between its commas"),
        ("solidus", "there is none named `solidus`"),
    ],
)
async def test_a_key_that_no_terminal_sends_is_a_sentence(keys, words):
    from cockpit.errors import UsageError

    with pytest.raises(UsageError, match=re.escape(words)) as raised:
        async with stage("busy", keys={"kill": keys}):
            pass
    assert str(raised.value).startswith(f"In [keys], kill = {keys!r}: ")


@pytest.mark.parametrize(
    "keys", ["f9, K", "ctrl+k", "question_mark,?", "slash", "ctrl+shift+up", "ä", "plus", "alt+x"]
)
def test_keys_that_terminals_send_are_taken(keys):
    assert why_not(keys) is None


def test_every_key_of_our_own_is_one():
    for node in bindings.nodes():
        for parent in node.__mro__:
            for binding in vars(parent).get("BINDINGS", ()):
                keys = binding.key if isinstance(binding, Binding) else binding[0]
                assert why_not(keys) is None, keys


async def test_a_click_on_a_heading_sorts_and_a_second_one_turns_round():
    async with stage("stray", (100, 30)) as play:
        await play.tick(2)
        view = play.app.screen.query_one("#processes")
        await play.pilot.click(view, offset=(8, 0))
        await play.pilot.pause()
        assert "PID▲" in play.text
        await play.pilot.click(view, offset=(8, 0))
        await play.pilot.pause()
        assert "PID▼" in play.text


async def test_without_events_the_page_says_so():
    async with stage("nodriver") as play:
        await play.tick(2)
        await play.pilot.press("l")
        await play.pilot.pause()
        assert "Nothing has happened since the cockpit looks." in play.text
        assert "WHAT" not in play.text


async def test_without_a_driver_the_cause_stands_once_and_the_way_through_it_comes_first():
    async with stage("nodriver", (80, 24)) as play:
        await play.tick(2)
        assert play.text.count("not loaded") == 1
        assert "no driver: ! leads through it" in play.text
        assert play.text.splitlines()[-1].startswith(" ! fix")


async def test_the_alert_offers_to_end_no_process_that_nobody_can_see():
    async with stage("stray") as play:
        await play.tick(2)
        await play.pilot.press("w")
        await play.pilot.pause()
        page = play.app.screen
        assert "x: kill it" in play.text
        one = page._under_cursor()
        for hidden in (replace(one, visible=False), replace(one, user=None, uid=None)):
            page._under_cursor = lambda hidden=hidden: hidden
            page.redraw()
            await play.pilot.pause()
            assert "kill it" not in play.text


@pytest.mark.parametrize("pane", ["processes", "gpus"])
async def test_the_keys_work_again_when_a_terminal_was_too_small_for_a_moment(pane):
    async with stage("busy", (100, 40)) as play:
        await play.tick(2)
        await play.pilot.press(*["tab"] * (pane == "gpus"))
        assert play.app.focused.id == pane
        await play.pilot.resize_terminal(30, 8)
        await play.pilot.pause()
        assert play.text.strip() == "too small: needs 40x10"
        await play.pilot.resize_terminal(100, 40)
        await play.pilot.pause()
        await play.pilot.pause()
        rows = play.app.screen.query_one(f"#{pane}")
        before = rows.cursor
        await play.pilot.press("j")
        assert rows.cursor != before


async def test_a_narrow_terminal_shows_no_traces_under_the_line_that_says_so():
    async with stage("busy", (100, 40)) as play:
        await play.tick(5)
        await play.pilot.resize_terminal(38, 20)
        await play.pilot.pause()
        await play.tick()
        assert play.text.strip() == "too small: needs 40x10"


async def test_the_lowest_terminal_shows_the_gpu_in_trouble_and_the_others_in_one_line():
    async with stage("stray", (80, 10)) as play:
        await play.tick(5)
        assert "reading the GPUs" not in play.text
        rows = play.text.splitlines()[2:4]
        assert rows[0].startswith("   2   0%")
        assert rows[1] == " 0-1,3  3 more, 217.8 GiB in use"


@pytest.mark.parametrize("key", ["3", "n", "l", "i", "m", "question_mark"])
async def test_every_page_says_that_a_terminal_is_too_small(key):
    async with stage("busy", (80, 24)) as play:
        await play.tick(2)
        await play.pilot.press(key)
        await play.tick()
        before = play.text
        await play.pilot.resize_terminal(20, 5)
        await play.tick()
        assert play.text.strip() == "too small: needs 40"
        await play.pilot.resize_terminal(80, 24)
        await play.pilot.pause()
        assert play.text.splitlines()[-1] == before.splitlines()[-1]


async def test_more_is_offered_only_while_more_follows():
    async with stage("throttle", (80, 24)) as play:
        await play.tick(2)
        await play.pilot.press("3")
        await play.tick()
        assert "PgDn more" in play.text
        await play.pilot.press("G")
        await play.tick()
        assert "PgDn more" not in play.text


@pytest.mark.parametrize("away", ["tab", "click"])
async def test_a_filter_that_was_left_does_not_lie_over_the_keys(away):
    async with stage("stray", (100, 30)) as play:
        await play.tick(2)
        await play.pilot.press("slash", "m")
        if away == "tab":
            await play.pilot.press("tab")
        else:
            await play.pilot.click("#processes", offset=(5, 3))
        await play.pilot.pause()
        assert "? help  / filter" in play.text.splitlines()[-1]
        await play.pilot.press("slash", "l")
        assert play.app.screen._filter.describe() == parse("ml").describe()


async def test_without_a_driver_a_tick_lays_nothing_out_anew(monkeypatch):
    async with stage("nodriver", (100, 30)) as play:
        await play.tick(3)
        page, laid_out = play.app.screen, []
        old = page._refresh_layout
        monkeypatch.setattr(page, "_refresh_layout", lambda *a: (laid_out.append(1), old(*a)))
        await play.tick(5)
        assert laid_out == []


async def test_a_key_that_finds_no_process_says_so():
    async with stage("busy", (100, 40)) as play:
        await play.tick(3)
        snapshot = play.app.view.snapshot
        ppid = next(one.ppid for one in snapshot.processes if one.ppid)
        await play.pilot.press("t")
        parent = Relative(pid=ppid, ppid=1, name="torchrun", command=("torchrun", "x.py"))
        later = replace(snapshot, taken_at="2026-11-30T12:10:00.000Z")
        play.app._on_tick(Tick(snapshot=later, relatives=(parent,)))
        await play.pilot.pause()
        rows = play.app.screen._processes
        for key in ("m", "a", "e", "enter", "x", "space"):
            rows.cursor = ("relative", ppid)
            await play.pilot.press(key)
            await play.pilot.pause(0.05)
            assert "Only a parent is under the cursor" in play.text, key
            assert len(play.app.screen_stack) == 2
            play.app.clear_notifications()
            await play.pilot.pause(0.05)


@pytest.mark.parametrize("key", ["m", "a", "e", "x"])
async def test_a_key_over_an_empty_table_says_so(key):
    async with stage("nodriver", (100, 30)) as play:
        await play.tick(2)
        later = replace(play.app.view.snapshot, taken_at="2026-11-30T12:10:00.000Z", processes=())
        play.app._on_tick(Tick(snapshot=later))
        await play.pilot.pause()
        await play.pilot.press(key)
        await play.pilot.pause(0.1)
        assert "No process is under the cursor." in play.text


async def test_the_tree_says_that_it_waits_for_the_filter():
    async with stage("busy", (100, 30)) as play:
        await play.tick(2)
        await play.pilot.press("slash", *"ml", "enter", "t")
        await play.pilot.pause(0.1)
        assert "The tree is shown when the filter is off." in play.text


async def test_the_kill_dialog_names_its_keys_as_they_are_bound():
    keys = {"kill.job": "J", "kill.confirm": "f2", "kill.leave": "f3", "kill.next_signal": "n"}
    async with stage("stray", (100, 30), keys=keys) as play:
        await play.tick(2)
        await play.pilot.press("x")
        answer_plan(play)
        await play.pilot.pause()
        await play.pilot.pause(0.2)
        for hint in ("f2 send SIGTERM", "f3 leave it alone", "J the whole job", "← n another"):
            assert hint in play.text
        await play.pilot.press("enter")
        assert not runs(play)
        await play.pilot.press("f2")
        assert len(runs(play)) == 1


async def test_a_plan_for_a_signal_that_is_not_asked_for_any_more_is_not_shown():
    async with stage("stray", (100, 30)) as play:
        await play.tick(2)
        await play.pilot.press("x")
        dialog = play.app.screen
        first = [one for one in play.app._session._link.sent if isinstance(one, AskKillPlan)][-1]
        dialog._request = replace(first.request, signal="INT")  # while the answer is on its way
        answer_plan(play)
        await play.pilot.pause()
        await play.pilot.pause()
        assert dialog._plan is None
        await play.pilot.press("enter")
        assert not runs(play)


async def test_a_typed_pid_is_for_the_plan_below_whose_end_was_seen():
    async with stage("stray", (80, 24)) as play:
        await play.tick(2)
        await play.pilot.press("x")
        answer_plan(play, signal="KILL", typed="30", targets=many_targets())
        await play.pilot.pause()
        await play.pilot.pause()
        await play.pilot.press("3", "0", "enter")
        assert not runs(play)
        for _ in range(8):
            await play.pilot.press("pagedown")
        await play.pilot.press("enter")
        assert [one.typed for one in runs(play)] == ["30"]
