"""The troubleshoot page: goldens at three sizes, and what its keys do at every prompt."""

from __future__ import annotations

import os
import stat
from contextlib import nullcontext

import pytest
from msgspec.structs import replace

from cockpit.model.flow import FlowAnswer, FlowRequest
from cockpit.model.remedy import BY_HAND, TerminalCommand
from cockpit.tui.screens.gpu import GpuScreen
from cockpit.tui.screens.overview import OverviewScreen
from cockpit.tui.screens.troubleshoot import TroubleshootScreen
from tests.tui import flow_states as flows
from tests.tui.flow_states import answers, cancels, opened, reply, requests, say
from tests.tui.screen_text import stage
from tests.tui.test_screens import assert_golden, utc

__all__ = ["utc"]

SIZES = [(80, 24), (120, 40), (200, 50)]
STATES = {
    "ask": flows.asking(),
    "choose": flows.choosing(),
    "again": flows.choosing(flows.RERUN, flows.SUDO, done=(flows.PATCHED, flows.RAN)),
    "confirm": flows.confirming(flows.RERUN),
    "typed": flows.confirming(flows.PATCH),
    "terminal": flows.in_terminal(),
    "ended": flows.ended(),
}


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("name", ["choose", "again", "confirm"])
async def test_the_page_at_three_sizes(name, size):
    async with stage("stray", size) as play:
        await opened(play, STATES[name])
        assert_golden(f"flow-{name}-{size[0]}x{size[1]}", play.text)


@pytest.mark.parametrize("name", ["ask", "typed", "terminal", "ended"])
async def test_the_other_prompts(name):
    async with stage("stray") as play:
        await opened(play, STATES[name])
        assert_golden(f"flow-{name}", play.text)


@pytest.mark.parametrize("name", STATES)
async def test_every_prompt_in_ascii_without_colour(name):
    async with stage("stray", ascii=True, color=False) as play:
        await opened(play, STATES[name])
        assert play.text.isascii()
        assert "esc" in play.text


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("theme", ["cockpit-light", "terminal", "cockpit-contrast"])
async def test_every_prompt_in_every_theme_says_the_same(name, theme):
    async with stage("stray") as play:
        await opened(play, STATES[name])
        dark = play.text
    async with stage("stray", theme=theme) as play:
        await opened(play, STATES[name])
        assert play.text == dark


async def test_nothing_is_confirmed_in_a_terminal_that_is_too_small_to_read_it():
    async with stage("stray") as play:
        await opened(play, STATES["choose"])
        before = play.text
        await play.pilot.resize_terminal(20, 5)
        await play.pilot.pause()
        assert play.text.strip() == "too small: needs 40"
        await play.pilot.press("1")
        await reply(play, STATES["confirm"])
        await play.pilot.press("enter")
        assert answers(play) == [FlowAnswer(option=0)]
        await play.pilot.resize_terminal(80, 24)
        await play.pilot.pause()
        assert "enter run it" in play.text
        assert play.text != before


# -- opening


async def test_four_keys_lead_to_a_freed_stray():
    async with stage("stray") as play:
        await play.tick(3)
        assert play.text.splitlines()[-1].startswith(" ! fix")
        await play.pilot.press("exclamation_mark")
        asked = (await reply(play, flows.choosing(flows.KILL))).request
        strays = [p for p in play.app.view.snapshot.processes if p.stray is not None]
        worst = max(strays, key=lambda p: p.vram_bytes or 0)
        assert (asked.flow, asked.pid, asked.start_ticks) == (
            "vram-held",
            worst.pid,
            worst.start_ticks,
        )
        assert asked.cwd == os.getcwd()
        await play.pilot.press("enter")
        await reply(play, flows.confirming(flows.KILL))
        await play.pilot.press("enter")
        await reply(play, flows.ended())
        assert answers(play) == [FlowAnswer(option=0), FlowAnswer(confirmed=True)]
        assert "✓ Verified" in play.text
        assert "38.9 GiB  0.5 GiB" in play.text


async def test_a_gpu_page_and_a_process_page_are_what_it_is_about():
    async with stage("busy") as play:
        await play.tick(3)
        await play.pilot.press("down", "enter")
        shown = play.app.screen.flow_subject()
        await play.pilot.press("exclamation_mark")
        assert requests(play)[-1].pid == shown.pid
        assert requests(play)[-1].start_ticks == shown.start_ticks is not None
        await reply(play, flows.asking())
        await play.pilot.press("escape", "escape", "1")
        await play.pilot.pause()
        assert isinstance(play.app.screen, GpuScreen)
        assert play.app.screen.flow_subject().gpu == 1
        await play.pilot.press("exclamation_mark")
        assert len(requests(play)) == 2


async def test_a_remapped_key_opens_it():
    async with stage("stray", keys={"app.troubleshoot": "F"}) as play:
        await play.tick(3)
        assert play.text.splitlines()[-1].startswith(" F fix")
        await play.pilot.press("F")
        await reply(play, flows.choosing())
        assert "▸ What to do" in play.text


async def test_an_engine_that_refuses_is_asked_again_by_r():
    async with stage("stray") as play:
        await play.tick(3)
        await play.pilot.press("exclamation_mark")
        assert "Looking at the machine" in play.text
        await reply(play, error="The engine is busy.")
        assert "✗ The engine is busy." in play.text
        await play.pilot.press("r")
        await reply(play, flows.choosing())
        assert "▸ What to do" in play.text
        assert "The engine is busy" not in play.text


# -- questions and choices


async def test_a_digit_answers_a_question():
    async with stage("stray") as play:
        await opened(play, flows.asking("this one", "that one"))
        await play.pilot.press("7", "2")
        await reply(play, flows.choosing())
        assert answers(play) == [FlowAnswer(option=1)]
        assert "step 2" in play.text


async def test_enter_answers_with_the_row_under_the_cursor():
    async with stage("stray") as play:
        await opened(play, flows.asking("this one", "that one", "none of them"))
        await play.pilot.press("down", "down", "enter")
        await reply(play, flows.choosing())
        assert answers(play) == [FlowAnswer(option=2)]


async def test_the_preview_follows_the_cursor():
    async with stage("stray") as play:
        await opened(play, flows.choosing())
        assert "--bs 16" in play.text
        await play.pilot.press("down")
        await play.pilot.pause()
        assert "--bs 16" not in play.text
        assert "torch.autocast" in play.text


async def test_what_cannot_be_run_says_why_and_is_not_chosen():
    async with stage("stray") as play:
        await opened(play, flows.choosing())
        await play.pilot.press("3")
        await play.pilot.pause()
        assert "✗ pid 4711 still runs" in play.text
        assert "You lose" not in play.text
        assert not answers(play)


async def test_readonly_shows_the_options_with_their_refusal():
    options = [replace(p, refusal="Read-only: nothing is run.") for p in flows.OPTIONS]
    async with stage("stray", readonly=True) as play:
        await opened(play, flows.choosing(*options))
        assert "cannot run" in play.text
        assert "Read-only: nothing is run." in play.text
        await play.pilot.press("enter", "2")
        assert not answers(play)


async def test_keys_typed_while_an_answer_is_on_its_way_say_nothing():
    async with stage("stray") as play:
        await opened(play, flows.choosing())
        await play.pilot.press("enter", "enter", "2", "y", "u", "e")
        assert answers(play) == [FlowAnswer(option=0)]


async def test_an_error_leaves_the_question_open_and_the_cursor_where_it_was():
    async with stage("stray", (120, 40)) as play:
        await opened(play, flows.choosing())
        await play.pilot.press("down", "enter")
        await reply(play, error="The engine could not do that.")
        assert "✗ The engine could not do that." in play.text
        assert "torch.autocast" in play.text
        await play.pilot.press("enter")
        assert [one.option for one in answers(play)] == [1, 1]


async def test_e_edits_the_command_and_sends_it_as_words():
    async with stage("stray") as play:
        await opened(play, flows.choosing())
        await play.pilot.press("e")
        await play.pilot.pause()
        assert play.text.splitlines()[-2].startswith(" torchrun --nproc-per-node 4 train.py")
        await play.pilot.press(*"0 'a b'", "enter")
        await reply(play, flows.confirming(flows.RERUN))
        sent = answers(play)[-1]
        assert sent.option == 0
        assert sent.command[-3:] == ("--accum", "20", "a b")


@pytest.mark.parametrize(("key", "where"), [("t", "tmux"), ("o", "terminal")])
async def test_a_run_may_be_started_elsewhere_and_is_asked_about_all_the_same(key, where):
    async with stage("stray", size=(140, 40)) as play:
        await opened(play, flows.choosing())
        assert "t in tmux" in play.text
        await play.pilot.press(key)
        await reply(play, flows.confirming(flows.RERUN))
        assert answers(play) == [FlowAnswer(option=0, where=where)]


async def test_a_command_that_no_shell_could_read_stays_in_its_field():
    async with stage("stray") as play:
        await opened(play, flows.choosing())
        await play.pilot.press("e", "'", "enter")
        await play.pilot.pause()
        assert "No closing quotation" in play.text
        assert not answers(play)
        await play.pilot.press("escape")
        await play.pilot.pause()
        assert "No closing quotation" not in play.text
        assert "enter choose" in play.text


async def test_a_command_with_control_characters_is_not_put_into_a_field():
    hostile = replace(flows.RERUN, lines=("cockpit run -- python \x1b]0;owned\x07 train.py",))
    async with stage("stray") as play:
        await opened(play, flows.choosing(hostile, flows.RERUN))
        await play.pilot.press("e")
        await play.pilot.pause()
        assert play.app.screen.mode == "choose"
        assert "It holds control characters: it can be run, but not edited here." in play.text
        assert "\x1b" not in play.text
        await play.pilot.press("down", "e")
        assert play.app.screen.mode == "edit"


async def test_a_diff_cannot_be_edited():
    async with stage("stray") as play:
        await opened(play, flows.choosing(flows.PATCH))
        assert "e edit" not in play.text
        await play.pilot.press("e", "enter")
        assert answers(play) == [FlowAnswer(option=0)]


async def test_u_lists_what_can_be_taken_back_with_what_ran():
    async with stage("stray") as play:
        await opened(play, STATES["again"])
        await play.pilot.press("u")
        await play.pilot.pause()
        assert "Take back which?" in play.text
        assert "with torch.autocast" in play.text
        assert not answers(play)
        await play.pilot.press("enter")
        await play.pilot.pause()
        assert "Running: undo: compute in bf16: train.py" in play.text
        await reply(play, flows.choosing())
        assert answers(play) == [FlowAnswer(undo=0)]


@pytest.mark.parametrize("mode", ["undo", "choose"])
async def test_another_text_begins_at_its_beginning_and_has_to_be_seen_to_its_end(mode):
    many = [tuple(f"+{name} line {n}" for n in range(60)) for name in ("first", "second")]
    fixes = [replace(flows.PATCH, title=f"patch {n}", lines=one) for n, one in enumerate(many)]
    done = [
        replace(flows.PATCHED, lines=one, undo=replace(flows.PATCHED.undo, title=f"patch {n}"))
        for n, one in enumerate(many)
    ]
    async with stage("stray") as play:
        await opened(play, flows.choosing(*fixes, done=tuple(done)))
        await play.pilot.press(*["u"] * (mode == "undo"))
        await play.pilot.pause()
        for _ in range(20):
            await play.pilot.press("pagedown")
        await play.pilot.pause()
        assert "line 59" in play.text
        await play.pilot.press("down")
        await play.pilot.pause()
        await play.pilot.pause()
        assert "line 0" in play.text
        assert "line 59" not in play.text
        if mode == "undo":
            await play.pilot.press("enter")
            await play.pilot.pause()
            assert answers(play) == []


async def test_u_without_anything_to_take_back_does_nothing():
    async with stage("stray") as play:
        await opened(play, flows.choosing())
        await play.pilot.press("u", "enter")
        assert answers(play) == [FlowAnswer(option=0)]


async def test_c_copies_what_would_run_without_what_a_terminal_would_obey():
    hostile = replace(flows.RERUN, lines=("echo \x1b]0;x\x07 a\tb",))
    async with stage("stray") as play:
        await opened(play, flows.choosing(hostile))
        await play.pilot.press("c")
        assert play.app.clipboard == "echo ^[]0;x^G a\tb\n"


async def test_d_shows_a_long_diff_over_the_whole_page_and_d_takes_it_away():
    long = replace(flows.PATCH, lines=(*flows.DIFF_LINES[:3], *(f"+line {n}" for n in range(60))))
    async with stage("stray") as play:
        await opened(play, flows.choosing(long))
        assert "You lose" in play.text
        assert "d whole" in play.text
        few = play.text.count("+line")
        await play.pilot.press("d")
        await play.pilot.pause()
        assert play.text.count("+line") > few
        assert "What failed?" not in play.text
        await play.pilot.press("pagedown", "pagedown", "pagedown", "pagedown")
        assert "+line 59" in play.text
        await play.pilot.press("d")
        await play.pilot.pause()
        assert "What failed?" in play.text


async def test_f_shows_all_that_was_found_and_done():
    async with stage("stray", (80, 60)) as play:
        await opened(play, STATES["again"])
        await play.pilot.press("f")
        await play.pilot.pause()
        assert "0.8 GiB reserved but unused" in play.text
        assert "torch.OutOfMemoryError" in play.text
        assert "▸ What to do" not in play.text
        await play.pilot.press("escape")
        await play.pilot.pause()
        assert "▸ What to do" in play.text
        assert not answers(play)


# -- confirming and running


async def test_escape_declines_and_the_choice_is_there_again():
    async with stage("stray") as play:
        await opened(play, flows.confirming(flows.RERUN))
        await play.pilot.press("escape")
        await reply(play, flows.choosing())
        assert answers(play) == [FlowAnswer(declined=True)]
        assert "▸ What to do" in play.text


@pytest.mark.parametrize("key", ["enter", "y"])
async def test_nothing_runs_before_its_end_was_on_screen(key):
    long = replace(flows.PATCH, typed=None, lines=tuple(f"+line {n}" for n in range(60)))
    async with stage("stray") as play:
        await opened(play, flows.confirming(long))
        assert "see the rest first" in play.text
        await play.pilot.press(key)
        assert not answers(play)
        for _ in range(6):
            await play.pilot.press("pagedown")
        assert "run it" in play.text
        await play.pilot.press("home", key)
        assert answers(play) == [FlowAnswer(confirmed=True)]


async def test_another_width_has_to_be_seen_to_its_end_anew():
    async with stage("stray", (120, 40)) as play:
        await opened(play, flows.confirming(replace(flows.PATCH, typed=None)))
        assert "enter run it" in play.text
        await play.pilot.resize_terminal(60, 12)
        await play.pilot.pause()
        await play.pilot.press("enter")
        assert not answers(play)
        assert "see the rest first" in play.text


async def test_what_has_to_be_typed_is_typed():
    async with stage("stray") as play:
        await opened(play, flows.confirming(flows.PATCH))
        await play.pilot.press("enter", *"other.py", "enter", "y", "enter")
        assert not answers(play)
        await play.pilot.press(*"train.py", "enter")
        assert answers(play) == [FlowAnswer(typed="train.py")]


async def test_a_typed_confirmation_needs_the_end_seen_too():
    long = replace(flows.PATCH, lines=tuple(f"+line {n}" for n in range(60)))
    async with stage("stray") as play:
        await opened(play, flows.confirming(long))
        await play.pilot.press(*"train.py", "enter")
        assert not answers(play)
        await play.pilot.press(*["pagedown"] * 6, "enter")
        assert answers(play) == [FlowAnswer(typed="train.py")]


async def test_progress_streams_and_x_cancels_once():
    async with stage("stray") as play:
        await opened(play, flows.confirming(flows.RERUN))
        await play.pilot.press("enter")
        await play.pilot.pause()
        assert "Running: halve the batch" in play.text
        assert "x cancel" in play.text
        await say(play, "started as pid 4711", "\x1b[2Jstep\t1", *(f"step {n}" for n in range(40)))
        assert "step 39" in play.text
        assert "\x1b" not in play.text
        await play.pilot.press("x", "x")
        assert cancels(play) == ["f1"]
        await play.pilot.pause()
        assert "stopping as soon as that is safe" in play.text
        await reply(play, flows.choosing(done=(flows.RAN,)))
        assert "It ran out of memory again at step 3." in play.text


async def test_what_runs_goes_on_when_the_page_is_left_and_is_there_again():
    async with stage("stray") as play:
        await opened(play, flows.confirming(flows.RERUN))
        await play.pilot.press("enter", "escape")
        await play.pilot.pause()
        assert isinstance(play.app.screen, OverviewScreen)
        await say(play, "step 1")
        await play.pilot.press("exclamation_mark")
        await play.pilot.pause()
        assert "Running: halve the batch" in play.text
        assert "step 1" in play.text
        assert len(requests(play)) == 1
        await play.pilot.press("escape")
        await reply(play, flows.ended())
        await play.pilot.pause(0.1)
        assert "! shows how" in play.text
        await play.pilot.press("exclamation_mark")
        await play.pilot.pause()
        assert "✓ Verified" in play.text
        await play.pilot.press("escape", "exclamation_mark")
        assert len(requests(play)) == 2


@pytest.mark.parametrize("name", ["ask", "choose", "confirm", "ended"])
async def test_0_opens_no_gpu_over_a_flow(name):
    async with stage("stray") as play:
        await opened(play, STATES[name])
        await play.pilot.press("0")
        await play.pilot.pause()
        assert isinstance(play.app.screen, TroubleshootScreen)


async def test_only_a_fix_is_said_to_have_ended():
    async with stage("stray") as play:
        await play.tick(3)
        await play.pilot.press("exclamation_mark", "escape")
        await reply(play, flows.choosing())
        await play.pilot.pause(0.1)
        assert "has ended" not in play.text


async def test_the_key_brings_it_back_from_the_pages_above_it():
    async with stage("stray", (120, 60)) as play:
        await opened(play, flows.choosing())
        await play.pilot.press("question_mark")
        await play.pilot.pause()
        assert "Take back what was done here" in play.text
        assert "Choose that one" in play.text
        await play.pilot.press("exclamation_mark")
        await play.pilot.pause()
        assert isinstance(play.app.screen, TroubleshootScreen)
        assert len(requests(play)) == 1


# -- the user's own terminal


def touching(path) -> TerminalCommand:
    return TerminalCommand(
        argv=("sh", "-c", 'pwd > out; printf %s "$FLOW_WORD" >> out; exit 3'),
        cwd=str(path),
        environment={"FLOW_WORD": "secret-word"},
    )


async def test_a_command_runs_in_the_terminal_with_its_directory_and_variables(
    tmp_path, monkeypatch, capsys
):
    preview = replace(flows.SUDO, terminal=touching(tmp_path))
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115
    async with stage("stray") as play:
        await opened(play, flows.in_terminal(preview))
        assert "FLOW_WORD" in play.text
        assert "secret-word" not in play.text
        assert not (tmp_path / "out").exists()
        monkeypatch.setattr(play.app, "suspend", nullcontext)
        await play.pilot.press("enter")
        await play.pilot.pause()
        assert (tmp_path / "out").read_text() == f"{tmp_path}\nsecret-word"
        assert answers(play) == [FlowAnswer(exit_status=3)]


async def test_a_program_that_is_not_there_is_127_as_in_a_shell(monkeypatch):
    command = TerminalCommand(argv=("/nonexistent/program",))
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115
    async with stage("stray") as play:
        await opened(play, flows.in_terminal(replace(flows.SUDO, terminal=command)))
        monkeypatch.setattr(play.app, "suspend", nullcontext)
        await play.pilot.press("enter")
        assert answers(play) == [FlowAnswer(exit_status=127)]


async def test_a_terminal_that_cannot_be_given_away_says_so_and_the_prompt_stays():
    async with stage("stray") as play:  # a pilot's terminal is of that kind
        await opened(play, flows.in_terminal())
        await play.pilot.press("enter")
        await play.pilot.pause()
        assert "cannot be given to another program" in play.text
        assert not answers(play)


async def test_c_copies_instead_of_running_in_the_terminal():
    async with stage("stray") as play:
        await opened(play, flows.in_terminal())
        await play.pilot.press("c")
        assert play.app.clipboard == "sudo nvidia-smi -pm 1\n"
        assert answers(play) == [FlowAnswer(declined=True)]


# -- the end


async def test_leaving_with_nothing_done_says_that_nothing_was_changed():
    async with stage("stray") as play:
        await opened(play, flows.choosing())
        assert "leave, nothing was changed" in play.text
        await play.pilot.press("escape")
        await play.pilot.pause(0.1)
        assert isinstance(play.app.screen, OverviewScreen)
        assert answers(play) == [FlowAnswer(leave=True)]
        assert "Left; nothing was changed." in play.text
        assert flows.waiting(play) is None


async def test_leaving_after_a_fix_shows_the_report_first():
    async with stage("stray") as play:
        await opened(play, STATES["again"])
        await play.pilot.press("escape")
        await reply(play, flows.ended(verified=False, done=(flows.RAN,)))
        assert "Not verified" in play.text
        await play.pilot.press("escape")
        await play.pilot.pause()
        assert isinstance(play.app.screen, OverviewScreen)


async def test_leaving_after_a_look_alone_does_not_call_it_a_fix_that_failed():
    look = replace(flows.RAN, verified=None, is_look=True)
    async with stage("stray") as play:
        await opened(play, flows.choosing(done=(look,)))
        await play.pilot.press("escape")
        await reply(play, flows.ended(verified=False, done=(look,)))
        assert look.sentence in play.text
        assert "erified" not in play.text


async def test_a_dead_engine_does_not_hold_the_user():
    async with stage("stray") as play:
        await opened(play, STATES["again"])
        await play.pilot.press("escape")
        await reply(play, error="This flow is over; start it again.")
        assert "This flow is over" in play.text
        await play.pilot.press("escape")
        await play.pilot.pause()
        assert isinstance(play.app.screen, OverviewScreen)


@pytest.mark.parametrize("name", ["confirm", "typed", "terminal"])
async def test_a_restarted_engine_does_not_hold_the_user_at_a_confirmation(name):
    async with stage("stray") as play:
        await opened(play, STATES[name])
        await play.pilot.press("escape")
        await reply(play, error="This flow is over; start it again.")
        assert "This flow is over" in play.text
        await play.pilot.press("escape")
        await play.pilot.pause()
        assert isinstance(play.app.screen, OverviewScreen)
        await play.pilot.press("exclamation_mark")
        assert len(requests(play)) == 2  # the dead one does not come back


async def test_a_leave_that_failed_once_is_tried_anew_after_the_flow_went_on():
    async with stage("stray") as play:
        await opened(play, STATES["again"])
        await play.pilot.press("escape")
        await reply(play, error="The engine is busy.")
        await play.pilot.press("enter")
        await reply(play, flows.choosing(done=(flows.RAN, flows.PATCHED)))
        await play.pilot.press("escape")
        await play.pilot.pause()
        assert isinstance(play.app.screen, TroubleshootScreen)
        await reply(play, flows.ended(verified=False, done=(flows.RAN, flows.PATCHED)))
        assert "Not verified" in play.text


async def test_the_report_is_read_copied_and_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda *_: "20261130-120000")
    async with stage("stray") as play:
        await opened(play, flows.ended(report=flows.REPORT + "\x1b[2J\n"))
        await play.pilot.press("r")
        await play.pilot.pause()
        assert "# Out of memory" in play.text
        await play.pilot.press("r", "c", "w")
        await play.pilot.pause(0.1)
        file = tmp_path / "cockpit-report-oom-20261130-120000.md"
        assert file.read_text() == flows.REPORT + "^[[2J\n"
        assert play.app.clipboard == file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        file.write_text("mine")
        play.app.clear_notifications()
        await play.pilot.press("w")
        await play.pilot.pause()
        assert "is there already: it is not written over." in " ".join(play.text.split())
        assert file.read_text() == "mine"


# -- cockpit fix


@pytest.mark.parametrize(("verified", "status"), [(True, 0), (False, 1)])
async def test_a_flow_that_was_asked_for_ends_the_app_with_its_result(verified, status):
    async with stage("stray") as play:
        play.app.asked_flow = FlowRequest(flow="oom", pid=7)
        await play.tick(2)
        await play.pilot.pause()
        assert requests(play) == [FlowRequest(flow="oom", pid=7)]
        await reply(play, flows.ended(verified=verified, done=()))
        await play.pilot.press("escape")
        await play.pilot.pause()
        assert play.app._exit
        assert play.app.exit_status == status


async def test_quitting_it_in_between_is_not_verified():
    async with stage("stray") as play:
        play.app.asked_flow = FlowRequest()
        await play.tick(2)
        await reply(play, flows.choosing())
        await play.pilot.press("q")
        assert play.app.exit_status == 1


async def test_without_a_flow_asked_for_the_status_is_0():
    async with stage("stray") as play:
        await opened(play, flows.choosing())
        await play.pilot.press("q")
        assert play.app.exit_status == 0


# -- what comes from outside


async def test_hostile_text_moves_no_cursor_and_breaks_no_line():
    evil = "\x1b[2J\x1b]0;t\x07a\tb\r\n‮x​" + "漢字" * 60
    preview = replace(
        flows.RERUN, title=evil, lines=(evil, f"+ {evil}"), because=evil, loses=evil, verify=evil
    )
    found = (flows.Found(mark="bad", what=evil, sentence=evil),)
    done = (replace(flows.RAN, title=evil, sentence=evil, output=(evil,), path=evil),)
    states = [
        flows.choosing(preview, found=found, done=done, subject=evil, cause=evil),
        flows.confirming(replace(preview, typed=evil), found=found, title=evil),
        flows.asking(evil, evil),
        flows.in_terminal(replace(preview, terminal=TerminalCommand(argv=(evil,), cwd=evil))),
        flows.ended(report=evil, done=done),
    ]
    for size in ((80, 24), (40, 12)):
        for one in states:
            async with stage("stray", size) as play:
                await opened(play, one)
                for key in ("f", "f", "r"):
                    await play.pilot.press(key)
                    await play.pilot.pause()
                    assert not any(c in play.text for c in "\x1b\x07\t\r‮​")
                    strips = play.app.screen._compositor.render_strips()
                    assert {strip.cell_length for strip in strips} == {size[0]}


async def test_a_tick_draws_nothing_anew():
    async with stage("stray") as play:
        await opened(play, flows.choosing())
        pane = play.app.screen.query_one("#preview")
        shown = pane.rows
        await play.tick(3)
        assert pane.rows is shown


# -- what is only told


async def test_what_is_done_by_hand_is_copied_by_enter_and_is_no_error():
    told = replace(flows.SUDO, form="text", refusal=BY_HAND, risk="confirm", terminal=None)
    async with stage("stray") as play:
        await opened(play, flows.choosing(told, found=()))
        assert "by hand" in play.text
        assert "cannot run" not in play.text
        assert "✗" not in play.text
        assert "enter copy it" in play.text
        await play.pilot.press("enter")
        await play.pilot.pause()
        assert play.app.clipboard == "sudo nvidia-smi -pm 1\n"
        assert "Copied" in play.text
        assert answers(play) == []


async def test_many_checks_leave_the_first_bad_one_three_lines():
    long = "NCCL timed out after 600 s in ALLREDUCE of rank 3 on gpu-box: " + "its peer hung " * 12
    found = tuple(
        flows.Found(mark="bad", what=f"What failed {number}?", sentence=long) for number in range(4)
    )
    async with stage("stray", (80, 24)) as play:
        await opened(play, flows.choosing(found=found))
        lines = play.text.splitlines()
        first = next(n for n, line in enumerate(lines) if "What failed 0?" in line)
        assert next(n for n, line in enumerate(lines) if "What failed 1?" in line) == first + 3
        assert lines[first + 2].rstrip().endswith("…")
        assert "What failed 3?" in lines[first + 5]


async def test_a_long_patch_is_confirmed_in_few_pages_and_says_how_to_page():
    lines = tuple(f"+    line_{number} = 1" for number in range(60))
    async with stage("stray") as play:
        await opened(play, flows.confirming(replace(flows.PATCH, lines=lines)))
        assert sum("line_" in line for line in play.text.splitlines()) >= 5
        keys = play.text.splitlines()[-1]
        assert "see the rest first" in keys
        assert "PgUp PgDn scroll" in keys
