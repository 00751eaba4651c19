"""The memory page: goldens at three sizes, and what its keys and dialogs do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cockpit.engine.protocol import AskRun, DoInRun, Reply, RunAttach, Tick
from cockpit.model.memory import AttachPlan, RunOutcome
from cockpit.tui.line import plain
from cockpit.tui.messages import RowChosen
from cockpit.tui.render.memory_plot import highest_of
from cockpit.tui.screens.attach import AttachDialog
from cockpit.tui.screens.fixes import FixDialog, FixMenu
from cockpit.tui.screens.memory import MemoryScreen
from tests.tui.run_answers import answer
from tests.tui.screen_text import Stage, stage
from tests.tui.test_screens import assert_golden, utc

__all__ = ["utc"]

SIZES = [(80, 24), (120, 40), (200, 50)]


async def opened(play: Stage, pid: int, ticks: int = 20) -> MemoryScreen:
    """The page of one process, after so many seconds."""
    await play.tick(ticks)
    rows = play.app.view.snapshot.processes
    process = next((one for one in rows if one.pid == pid), None)
    page = MemoryScreen(process, pid)
    await play.app.push_screen(page)
    await answer(play)
    return page


def sent(play: Stage, kind: type) -> list:
    return [one for one in play.app._session._link.sent if isinstance(one, kind)]


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize(
    ("scenario", "pid", "name"),
    [("busy", 4711, "ranks"), ("oom", 9120, "leak"), ("busy", 12044, "vllm")],
)
async def test_the_bar(scenario, pid, name, size):
    async with stage(scenario, size) as play:
        await opened(play, pid)
        assert_golden(f"memory-{name}-{size[0]}x{size[1]}", play.text)


@pytest.mark.parametrize(
    ("key", "name"), [("s", "segments"), ("c", "census"), ("C", "deep"), ("t", "threads")]
)
async def test_a_part(key, name):
    async with stage("busy") as play:
        await opened(play, 4711, 5)
        await play.pilot.press(key)
        await answer(play)
        assert_golden(f"memory-{name}", play.text)


async def test_everything_in_ascii_without_colour():
    async with stage("busy", ascii=True, color=False) as play:
        await opened(play, 4711)
        for key in ("b", "s", "c", "h", "t"):
            await play.pilot.press(key)
            await answer(play)
            assert play.text.isascii()
            if key == "b":
                assert_golden("memory-ascii", play.text)


async def test_attach_asks_first_and_the_run_is_seen_afterwards():
    async with stage("busy") as play:
        await opened(play, 4714, 3)
        assert "Driver view only" in play.text
        await play.pilot.press("a")
        await answer(play)
        assert isinstance(play.app.screen, AttachDialog)
        assert "Its main thread is paused about 1 ms" in play.text
        assert not sent(play, RunAttach)
        await play.pilot.press("enter")
        await answer(play)
        assert "Attached to pid 4714" in play.text
        assert sent(play, RunAttach)[-1].start_ticks is not None
        await play.pilot.press("enter")
        await play.tick()
        assert "allocated" in play.text
        assert "attached by ptrace" in play.text


async def test_a_refused_attach_says_why_and_cannot_be_confirmed():
    async with stage("busy") as play:
        await opened(play, 9120, 3)
        await play.pilot.press("a")
        await answer(play)
        assert "belongs to ml2; you are ml1" in play.text
        await play.pilot.press("enter", "y")
        await answer(play)
        assert not sent(play, RunAttach)


async def test_empty_cache_says_what_is_stuck_asks_once_and_shows_before_and_after():
    async with stage("busy") as play:
        await opened(play, 4711, 5)
        await play.pilot.press("f")
        assert isinstance(play.app.screen, FixMenu)
        await play.pilot.press("down", "enter")
        assert isinstance(play.app.screen, FixDialog)
        assert "27.6 GiB sit in" in play.text
        assert not sent(play, DoInRun)
        await play.pilot.press("enter")
        await answer(play)
        assert [one.request.op for one in sent(play, DoInRun)] == ["empty_cache"]
        assert "−10.8" in play.text
        await play.pilot.press("enter")
        await play.tick()
        assert "reserved 74.8 ≤ driver 77.2" in play.text


async def test_a_setting_is_undone_by_u_after_another_question():
    async with stage("busy") as play:
        await opened(play, 4711, 3)
        await play.pilot.press("f", "down", "down", "enter", "enter")
        await answer(play)
        await play.pilot.press("u")
        assert len(sent(play, DoInRun)) == 1
        assert "back to False" in play.text
        await play.pilot.press("enter")
        await answer(play)
        assert [one.request.value for one in sent(play, DoInRun)] == [True, False]


async def test_a_fix_is_for_the_process_that_was_shown():
    async with stage("busy", (120, 40)) as play:
        page = await opened(play, 4711, 5)
        born = page._run_now().start_ticks
        assert born is not None
        await play.pilot.press("f", "enter", "enter")
        await answer(play)
        await play.pilot.press("enter", "d", "enter")
        await answer(play)
        requests = [one.request for one in sent(play, DoInRun)]
        assert [(one.op, one.start_ticks) for one in requests] == [("gc", born), ("detach", born)]


async def test_a_value_is_chosen_within_its_bounds_and_undone():
    async with stage("busy", (120, 40)) as play:
        await opened(play, 4711, 5)
        await play.pilot.press("f", *["down"] * 7, "enter")
        assert "0.7  [0.8]  0.9   default" in play.text
        assert "← → another value" in play.text
        await play.pilot.press("left", "enter")
        await answer(play)
        (request,) = [one.request for one in sent(play, DoInRun)]
        assert (request.name, request.value) == ("garbage_collection_threshold", 0.7)
        await play.pilot.press("left")  # not any more
        assert "default → 0.7" in play.text
        await play.pilot.press("u", "enter")
        await answer(play)
        assert sent(play, DoInRun)[-1].request.value == "default"
        assert "0.7 → default" in play.text


async def test_a_profile_of_the_chosen_steps_is_shown_with_its_lines():
    async with stage("busy", (120, 40)) as play:
        await opened(play, 4711, 5)
        await play.pilot.press("f", *["down"] * 9, "enter")
        assert "profile some steps" in play.text
        await play.pilot.press(*["right"] * 9, "enter")
        await answer(play)
        assert [one.request.steps for one in sent(play, DoInRun)] == [20]
        assert "Profile of 20 steps taken." in play.text
        assert "backward: 243.9 ms" in play.text


async def test_nothing_is_offered_in_a_run_that_has_ended():
    async with stage("busy") as play:
        page = await opened(play, 4711, 5)
        snapshot = play.app.view.snapshot
        runs = tuple(
            replace(one, state="ended", exit_status=137) if one.pid == 4711 else one
            for one in snapshot.runs
        )
        play.app._on_tick(Tick(snapshot=replace(snapshot, runs=runs)))
        await play.pilot.pause()
        assert "pid 4711 was killed by SIGKILL; its numbers are from" in play.text
        await play.pilot.press("f", "d", "a")
        assert play.app.screen is page
        keys = play.text.splitlines()[-1]
        assert not any(word in keys for word in ("f fix", "d detach", "a attach"))


async def test_a_process_that_is_no_python_is_not_offered_an_attach():
    async with stage("busy") as play:
        await play.tick(3)
        process = next(p for p in play.app.view.snapshot.processes if p.pid == 4714)
        sentence = "pid 4714 is no Python process: the driver's view is all there is to see."
        play.machine.attach_plan = lambda pid, ticks: AttachPlan(
            pid=pid, start_ticks=ticks, way=None, sentence=sentence, code="not_python"
        )
        page = MemoryScreen(process, 4714)
        await play.app.push_screen(page)
        await answer(play)
        assert sentence in " ".join(play.text.split())
        assert "to attach" not in play.text
        await play.pilot.press("a")
        assert play.app.screen is page


async def test_with_history_on_allocations_are_shown_by_stack():
    async with stage("busy") as play:
        await opened(play, 4711, 3)
        await play.pilot.press("h")
        await answer(play)
        assert "known only while they are recorded" in play.text
        await play.pilot.press("f", *["down"] * 4, "enter", "enter")
        await answer(play)
        assert "Recording allocations" in play.text
        await play.pilot.press("enter")
        await answer(play)
        assert "model.py:88 forward" in play.text


async def test_detach_asks_and_the_driver_view_remains():
    async with stage("busy") as play:
        await opened(play, 4711, 3)
        await play.pilot.press("d")
        await play.pilot.pause()
        assert "You lose" in play.text
        await play.pilot.press("enter")
        await answer(play)
        await play.pilot.press("enter")
        await play.tick()
        assert "Driver view only" in play.text


async def test_left_and_right_go_to_the_other_runs_and_forget_the_answers():
    async with stage("busy") as play:
        await opened(play, 4711, 3)
        await play.pilot.press("t")
        await answer(play)
        await play.pilot.press("right")
        await answer(play)
        assert play.text.startswith(" pid 4712 ")
        assert sent(play, AskRun)[-1].pid == 4712
        await play.pilot.press("left", "left")
        await answer(play)
        assert play.text.startswith(" pid 4713 ")


async def test_readonly_asks_but_offers_no_action():
    async with stage("busy", readonly=True) as play:
        await opened(play, 4711, 3)
        await play.pilot.press("f", "d", "a")
        await answer(play)
        assert isinstance(play.app.screen, MemoryScreen)
        assert "f fix" not in play.text
        await play.pilot.press("t")
        await answer(play)
        assert "MainThread" in play.text


async def test_threads_of_a_process_without_agent_are_read_from_outside():
    async with stage("busy") as play:
        await opened(play, 4714, 3)
        await play.pilot.press("t")
        await answer(play)
        assert "py-spy" in play.text


async def test_a_question_that_fails_says_so_and_the_bar_stays():
    async with stage("busy") as play:
        await opened(play, 4714, 3)
        await play.pilot.press("c")
        await answer(play)
        assert "has no agent: press a to attach" in play.text
        await play.pilot.press("b")
        assert "Driver view only" in play.text


async def test_a_run_that_ends_while_it_is_looked_at_says_so():
    async with stage("oom") as play:
        await opened(play, 9120, 3)
        await play.tick(90)
        assert "does not exist any more" in play.text or "no GPU memory any more" in play.text


async def test_an_answer_for_another_run_is_not_shown():
    async with stage("busy") as play:
        page = await opened(play, 4711, 3)
        await play.pilot.press("c")
        page.choose(4714)
        await answer(play)
        assert page._census is None


async def test_a_held_picture_does_not_cost_the_history():
    async with stage("busy") as play:
        await opened(play, 4711, 5)
        await play.pilot.press("p")
        await play.tick(5)
        await play.pilot.press("t", "b")
        await answer(play)
        assert play.app.view.run_history.count == 5
        await play.pilot.press("p")
        await play.tick()
        assert play.app.view.run_history.count == 11


async def test_a_held_picture_is_drawn_anew_as_it_was():
    async with stage("busy") as play:
        await opened(play, 4711, 30)
        await play.pilot.press("p")
        held = play.text
        await play.tick(40)
        await play.pilot.press("t", "b")
        assert play.text == held


async def test_m_and_a_on_the_overview_open_them():
    async with stage("busy") as play:
        await play.tick(3)
        await play.pilot.press("m")
        assert isinstance(play.app.screen, MemoryScreen)
        await play.pilot.press("escape", "a")
        assert isinstance(play.app.screen, AttachDialog)


async def test_another_process_with_the_same_pid_is_not_taken_for_it():
    async with stage("busy") as play:
        await play.tick(2)
        row = next(p for p in play.app.view.snapshot.processes if p.pid == 4714)
        await play.app.push_screen(MemoryScreen(replace(row, start_ticks=1), 4714))
        await play.tick()
        assert "pid 4714 has ended; another process has its number now." in play.text


@pytest.mark.parametrize(
    ("values", "group", "expected"),
    [
        ([1, 2, 3], 1, [1, 2, 3]),
        ([1, 9, 3, 4, None], 2, [1, 9, 4]),
        ([None, None, 5, 1], 2, [None, 5]),
        ([], 3, []),
    ],
)
def test_a_thinned_plot_keeps_its_peaks(values, group, expected):
    assert highest_of(values, group) == expected


async def test_a_long_outcome_is_scrolled_and_its_keys_stay():
    async with stage("busy") as play:
        await opened(play, 4711, 3)
        await play.pilot.press("d", "enter")
        await play.pilot.pause()
        asked = sent(play, DoInRun)[-1]
        outcome = RunOutcome(ok=True, sentence="done", lines=tuple(f"line {n}" for n in range(60)))
        play.app._session._waiting[asked.id].set_result(Reply(id=asked.id, outcome=outcome))
        await play.pilot.pause()
        await play.pilot.pause()
        assert "enter close" in play.text
        assert "line 59" not in play.text
        await play.pilot.press(*["pagedown"] * 8)
        assert "line 59" in play.text


async def test_a_second_enter_in_the_fix_menu_closes_nothing_else():
    async with stage("busy", (100, 40)) as play:
        page = await opened(play, 4711, 5)
        await play.pilot.press("f")
        menu = play.app.screen
        assert isinstance(menu, FixMenu)
        row = menu.query_one("#fixes")
        menu.post_message(RowChosen(row, row.cursor))
        menu.post_message(RowChosen(row, row.cursor))
        await play.pilot.pause(0.2)
        assert isinstance(play.app.screen, FixDialog)
        await play.pilot.press("escape")
        await play.pilot.pause()
        assert play.app.screen is page
        await play.tick(2)
        assert "pid 4711" in play.text


async def test_a_fix_on_a_low_terminal_is_confirmed_only_after_its_end_was_seen():
    async with stage("busy", (40, 12)) as play:
        await opened(play, 4711, 5)
        await play.pilot.press("f", "down", "enter")
        await play.pilot.pause(0.2)
        assert isinstance(play.app.screen, FixDialog)
        await play.pilot.press("enter")
        assert not sent(play, DoInRun)
        for _ in range(8):
            await play.pilot.press("pagedown")
        await play.pilot.pause(0.1)
        await play.pilot.press("enter")
        await play.pilot.pause(0.1)
        assert len(sent(play, DoInRun)) == 1


async def test_the_page_stays_in_sight_behind_its_dialogs():
    async with stage("busy", (120, 40)) as play:
        await opened(play, 4711, 5)
        title = play.text.splitlines()[0]
        await play.pilot.press("f")
        assert play.text.splitlines()[0] == title
        await play.pilot.press("enter")
        await play.pilot.pause()
        assert isinstance(play.app.screen, FixDialog)
        assert play.text.splitlines()[0] == title


async def test_a_run_with_the_pid_of_an_ended_one_is_not_shown_and_not_acted_on_under_its_name():
    async with stage("busy", (100, 40)) as play:
        page = await opened(play, 4711, 5)
        snapshot = play.app.view.snapshot
        old = next(one for one in snapshot.processes if one.pid == 4711)
        runs = tuple(
            replace(one, start_ticks=1, name="other.py") if one.pid == 4711 else one
            for one in snapshot.runs
        )
        processes = tuple(
            replace(one, start_ticks=1, command=("python", "other.py")) if one is old else one
            for one in snapshot.processes
        )
        later = replace(
            snapshot, taken_at="2026-11-30T12:10:00.000Z", runs=runs, processes=processes
        )
        play.app._on_tick(Tick(snapshot=later))
        await play.pilot.pause()
        assert "pid 4711 has ended; another process has its number now." in play.text
        assert "other.py" not in play.text
        assert "≤ driver" not in play.text
        await play.pilot.press("d", "f")
        assert play.app.screen is page
        asked = len(sent(play, AskRun))
        await play.pilot.press("t")
        await answer(play)
        assert len(sent(play, AskRun)) == asked
        assert "MainThread" not in play.text


async def test_a_run_without_gpu_memory_is_known_by_its_start_as_well():
    async with stage("busy", (100, 40)) as play:
        await play.tick(2)
        page = MemoryScreen(None, 4711)
        await play.app.push_screen(page)
        snapshot = replace(play.app.view.snapshot, processes=())
        for minute, ticks in ((10, 7), (11, 8)):
            runs = tuple(
                replace(one, start_ticks=ticks) if one.pid == 4711 else one for one in snapshot.runs
            )
            at = f"2026-11-30T12:{minute}:00.000Z"
            page._process, page._born = (None, None) if ticks == 7 else (None, page._born)
            play.app._on_tick(Tick(snapshot=replace(snapshot, taken_at=at, runs=runs)))
            await play.pilot.pause()
        assert "pid 4711 has ended; another process has its number now." in play.text
        assert page._living() is None


async def test_each_part_has_its_own_moment():
    async with stage("busy", (100, 40)) as play:
        await opened(play, 4711, 5)
        await play.pilot.press("c")
        await answer(play)
        assert "as of 12:00:05" in play.text
        await play.tick(60)
        await play.pilot.press("t")
        await answer(play)
        assert "as of 12:01:05" in play.text
        await play.pilot.press("c")  # asked anew; the answer is on its way
        await play.pilot.pause()
        assert "as of 12:00:05" in play.text
        await answer(play)
        assert "as of 12:01:05" in play.text


async def test_what_failed_for_one_part_does_not_stand_on_the_next_one():
    async with stage("busy", (100, 40)) as play:
        await opened(play, 4714, 3)
        await play.pilot.press("c")
        await answer(play)
        assert "has no agent" in play.text
        await play.pilot.press("t")
        await play.pilot.pause()
        assert "has no agent" not in play.text
        assert "asking pid 4714" in play.text


async def test_r_on_the_bar_of_a_process_without_an_agent_says_that_there_is_nothing_to_read():
    async with stage("busy", (100, 40)) as play:
        await opened(play, 4714, 3)
        await play.pilot.press("r")
        await play.pilot.pause(0.1)
        assert "No agent is in this process" in play.text
        assert not [one for one in sent(play, AskRun) if one.pid == 4714]


async def test_the_menu_of_fixes_scrolls_on_a_low_terminal_and_keeps_its_keys():
    async with stage("busy", (60, 16)) as play:
        await opened(play, 4711, 5)
        await play.pilot.press("f", "G")
        await play.pilot.pause(0.1)
        fixes = play.app.screen.query_one("#fixes")
        assert fixes.top > 0
        assert plain(fixes.cursor_row.line).strip()[:20] in play.text
        assert "enter look at it" in play.text


@pytest.mark.parametrize("readonly", [True, False])
async def test_no_sentence_names_the_key_of_the_fixes_where_it_is_off(readonly):
    async with stage("busy", (120, 60), readonly=readonly) as play:
        await opened(play, 4711, 30)
        shown = play.text
        assert "cannot be given back by empty_cache" in shown
        await play.pilot.press("h")
        await answer(play)
        assert "known only while they are recorded" in play.text
        assert ("[f]" in shown, "[f]" in play.text) == (not readonly, not readonly)


async def test_the_keys_in_sentences_are_those_that_are_bound():
    keys = {"memory.fix": "F", "memory.attach": "A", "memory.deep": "D", "memory.again": "R"}
    async with stage("busy", (120, 60), keys=keys) as play:
        await opened(play, 4711, 30)
        assert "see [F]" in play.text
        await play.pilot.press("h")
        await answer(play)
        assert "recorded: [F], record" in play.text
        assert "[R] reads again" in play.text
        await play.pilot.press("c")
        await answer(play)
        assert "[D] looks at every object" in play.text
    async with stage("busy", (120, 60), keys=keys) as play:
        await opened(play, 4714, 3)
        assert "press [A] to attach" in play.text


async def test_answers_and_troubles_of_another_run_are_not_shown_whatever_was_asked():
    async with stage("busy") as play:
        page = await opened(play, 4711, 3)
        for key, question in (("c", "census"), ("t", "stacks"), ("s", "segments")):
            await play.pilot.press(key)
            await play.pilot.pause()
            session = play.app._session
            asked = [one for one in sent(play, AskRun) if one.question == question][-1]
            page._pid = 4712  # as choose() has it, with the answer on its way
            page._forget()
            answer_ = play.machine.ask_run(4711, question, False)
            session._dispatch(Reply(id=asked.id, **{question: answer_}))
            await play.pilot.pause()
            assert (page._census, page._stacks, page._segments) == (None, None, None)
            page._pid = 4711
            await play.pilot.press("b", key)
            await play.pilot.pause()
            asked = [one for one in sent(play, AskRun) if one.question == question][-1]
            page._pid = 4712
            session._dispatch(Reply(id=asked.id, error="no"))
            await play.pilot.pause()
            assert page._troubles == {}
            page._pid = 4711


async def test_a_question_that_changes_has_to_be_seen_to_its_end_anew():
    async with stage("busy", (40, 12)) as play:
        await opened(play, 4711, 5)
        await play.pilot.press("f", *["down"] * 7, "enter")
        await play.pilot.pause(0.2)
        for _ in range(12):
            await play.pilot.press("pagedown")
        await play.pilot.pause(0.1)
        assert play.app.screen.seen_whole
        for _ in range(12):
            await play.pilot.press("pageup")
        await play.pilot.press("left")
        await play.pilot.pause(0.1)
        assert not play.app.screen.seen_whole
        await play.pilot.press("enter")
        assert not sent(play, DoInRun)
