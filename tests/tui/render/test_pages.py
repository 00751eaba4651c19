"""Pages and dialogs: what they must say."""

from __future__ import annotations

import pytest
from golden import assert_golden
from hand_made import (
    TAKEN_AT,
    a_gpu,
    a_ledger,
    a_process,
    some_events,
    some_relatives,
    ten_processes,
)
from msgspec.structs import replace

from cockpit.model.action import KillPlan, KillResult, PlannedTarget
from cockpit.model.gpu import DriverError, MigInstance, TopologyLink
from cockpit.model.ledger import LedgerProcess
from cockpit.model.process import ProcessDetails, Relative
from cockpit.model.text import GIB, age
from cockpit.model.time import moment
from cockpit.tui.line import plain
from cockpit.tui.render.driver_panel import driver_panel
from cockpit.tui.render.event_rows import event_rows, event_strip
from cockpit.tui.render.gaps import gap_words
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.gpu_page import gpu_page
from cockpit.tui.render.help_lines import help_lines
from cockpit.tui.render.host_line import replay_words, short_model
from cockpit.tui.render.kill_lines import plan_lines, result_lines
from cockpit.tui.render.ledger_lines import ledger_lines, rounded_to, shares_of
from cockpit.tui.render.process_page import environment_lines, process_page
from cockpit.tui.render.times import clock
from cockpit.tui.render.topology_lines import topology_lines

UTF8, ASCII = Glyphs.unicode(), Glyphs.ascii()
NOW = moment(TAKEN_AT)


def page(lines):
    return "\n".join(plain(line) for line in lines)


def test_every_field_of_a_gpu_has_its_value_or_its_reason():
    text = page(
        gpu_page(a_gpu(0, sm_active_pct=None, gaps={"sm_active_pct": "driver_too_old"}), 80, UTF8)
    )
    assert "– driver too old" in text
    assert "GPU-00000000" in text
    assert "power cap" in text
    assert_golden("gpu_page_120", gpu_page(a_gpu(0), 120, UTF8))


def test_mig_instances_have_their_memory_and_the_uuid_that_cuda_takes():
    instance = MigInstance(
        index=0,
        uuid="MIG-95375106-2194-9557-5b7f-53ba81000000",
        gpu_instance=1,
        compute_instance=None,
        profile="3g.40gb",
        memory_total_bytes=40 * GIB,
        memory_used_bytes=10 * GIB,
    )
    text = page(gpu_page(a_gpu(1, mig_enabled=True, mig_instances=(instance,)), 80, UTF8))
    assert "1:0  3g.40gb" in text
    assert "10.0 GiB of 40.0 GiB  GI 1  CI –" in text
    assert "MIG-95375106-2194-9557-5b7f-53ba81000000" in text


def test_a_reason_loses_its_second_half_where_it_does_not_fit():
    assert gap_words("not_supported") == "not supported by this GPU"
    assert gap_words("not_supported", 16) == "not supported"
    assert gap_words("some_new_reason") == "some new reason"
    assert gap_words(None) == "not known"


def shown_tenths(lines):
    tenths = [
        round(10 * float(plain(line).split(" GiB")[0].split()[-1]))
        for line in lines[2:]
        if " GiB" in plain(line) and not plain(line).strip().startswith("!")
    ]
    return tenths[:-1], tenths[-1]


def test_the_lines_of_the_ledger_add_up_to_the_total_they_show():
    odd = replace(
        a_ledger(),
        processes=tuple(LedgerProcess(pid=n, bytes=int(1.04 * GIB)) for n in range(20)),
        unaccounted_bytes=a_ledger().unaccounted_bytes + int(38.4 * GIB) - 20 * int(1.04 * GIB),
    )
    for ledger in (a_ledger(), odd):
        parts, total = shown_tenths(ledger_lines(ledger, ten_processes(), 80, UTF8))
        assert sum(parts) == total


def test_the_ledger_names_holders_and_explains_the_rest():
    text = page(ledger_lines(a_ledger(), ten_processes(), 80, UTF8))
    assert "pid 5233" in text
    assert "jupyter kernel" in text
    assert "holds the device file" in text
    assert_golden("ledger_80", ledger_lines(a_ledger(), ten_processes(), 80, UTF8))


def test_rounding_gives_out_exactly_what_there_is():
    assert sum(rounded_to(10, [3.33, 3.33, 3.34])) == 10
    assert rounded_to(-1, [-0.6, -0.4]) == [-1, 0]
    assert shares_of(10, [0, 0]) == []
    assert shares_of(3, [1, 1, 1]) == [1, 1, 1]


def a_link(a, b, level="SYS", nvlinks=0, p2p="ok"):
    return TopologyLink(a=a, b=b, level=level, nvlinks=nvlinks, p2p=p2p)


def test_topology_is_a_matrix_or_lists_and_names_pairs_without_peer_access():
    gpus = [a_gpu(n) for n in range(3)]
    links = [a_link(0, 1, nvlinks=18), a_link(0, 2), a_link(1, 2, p2p="chipset_not_supported")]
    wide, narrow = (page(topology_lines(links, gpus, w, UTF8)) for w in (80, 20))
    assert "NV18" in wide
    assert "! not between 1-2: chipset not supported" in wide
    assert "NV18 1" in narrow


def test_one_gpu_has_no_topology():
    assert "nothing to connect" in page(topology_lines([], [a_gpu(0)], 80, UTF8))


def details(**changes):
    values = {
        "pid": 4711,
        "start_ticks": 1,
        "ancestors": some_relatives()[::-1],
        "children": (Relative(pid=5000, ppid=4711, name="worker"),),
        "environment": (("CUDA_VISIBLE_DEVICES", "0"), ("HOME", "/root"), ("HF_TOKEN", "***")),
    }
    return ProcessDetails(**(values | changes))


def test_the_page_of_a_process_has_its_family_and_its_whole_command():
    text = page(process_page(a_process(4711), details(), 80, UTF8, NOW))
    assert text.index("tmux") < text.index("bash") < text.index("4711  ml1  python train.py")
    assert "5000" in text
    assert "/opt/conda/bin/python3.11 -u /home/ml1/exp/train.py --bs 32" in text
    assert "3h12 ago" in text


def test_it_can_be_shown_before_the_details_are_there():
    assert "reading the rest" in page(process_page(a_process(4711), None, 80, UTF8, NOW))


def test_a_stray_says_why_in_a_sentence():
    stray = next(process for process in ten_processes() if process.stray)
    assert "! Its parent is gone and it is idle." in page(process_page(stray, None, 80, UTF8))


def test_a_long_value_of_the_environment_is_read_to_its_end():
    path = ":".join(f"/opt/conda/envs/llm-{n}/lib" for n in range(12))
    one = details(environment=(("LD_LIBRARY_PATH", path), ("HOME", "/root")))
    lines = page(environment_lines(one, 80, UTF8)).splitlines()
    assert "".join(line.strip() for line in lines[:-1]) == f"LD_LIBRARY_PATH={path}"
    assert all(len(line) <= 80 for line in lines)
    monster = details(environment=(("LS_COLORS", "x" * 5000),))
    lines = page(environment_lines(monster, 80, UTF8)).splitlines()
    assert len(lines) == 13
    assert lines[-1].strip() == "… 5000 characters in all"


def test_the_environment_can_be_searched_and_its_absence_has_a_reason():
    assert page(environment_lines(details(), 80, UTF8, "cuda")) == " CUDA_VISIBLE_DEVICES=0"
    hidden = details(environment=None, gaps={"environment": "no_permission"})
    words = " ".join(page(environment_lines(hidden, 80, UTF8)).split())
    assert words == (
        "Its environment cannot be read: no permission; only its owner or root can read it "
        "(sudo cockpit)."
    )


def a_plan(**changes):
    def target(pid, **more):
        values = {"pid": pid, "start_ticks": 1, "user": "ml1", "command": "python t.py"}
        return PlannedTarget(**(values | {"vram_bytes": 14 * GIB} | more))

    values = {
        "id": "1",
        "signal": "TERM",
        "grace_s": 10.0,
        "targets": (
            target(4711),
            target(4712, role="rank", note="It is not the leader."),
            target(1, refusal="protected", refusal_sentence="PID 1 is never signalled."),
        ),
        "loses": ("What was not saved since the last checkpoint.",),
    }
    return KillPlan(**(values | changes))


def test_the_plan_says_what_is_signalled_what_is_lost_and_what_is_left_alone():
    text = page(plan_lines(a_plan(), 80, UTF8))
    assert "SIGTERM to 2 processes, 28.0 GiB" in text
    assert "(rank) python t.py" in text
    assert "It is not the leader." in text
    assert "✗       1" in text
    assert "PID 1 is never signalled." in text
    assert "last checkpoint" in text
    assert "Type" not in text
    assert "Type 4711" in page(plan_lines(a_plan(signal="KILL", typed="4711"), 80, UTF8))


def test_a_plan_in_which_all_is_refused_promises_nothing():
    refused = a_plan(targets=a_plan().targets[2:], typed="1")
    text = page(plan_lines(refused, 80, UTF8))
    assert "Nothing can be signalled." in text
    assert "You lose" not in text
    assert "Type" not in text


def test_results_have_a_sign_and_a_sum_and_the_offer_that_remains():
    results = [
        KillResult(pid=1, outcome="freed", sentence="freed 14.2 of 14.3 GiB", freed_bytes=14 * GIB),
        KillResult(pid=2, outcome="ended", sentence="ended", freed_bytes=0),
        KillResult(pid=3, outcome="survived", sentence="ignores SIGTERM", offer_kill=True),
    ]
    text = page(result_lines(results, 80, UTF8))
    assert "✓       1  freed 14.2 of 14.3 GiB" in text
    assert "✗       3  ignores SIGTERM" in text
    assert "14.0 GiB of GPU memory came back in all." in text
    assert "SIGKILL would end it" in text
    assert page(result_lines(results, 80, ASCII)).isascii()


@pytest.mark.parametrize(
    "code", ["lib_rm_version_mismatch", "driver_not_loaded", "library_not_found", "what_is_this"]
)
def test_the_panel_of_a_broken_driver_has_cause_and_next_steps(code):
    text = page(driver_panel(DriverError(code=code, message="It says so."), 80, UTF8))
    assert "It says so." in text
    assert code in text
    assert "What to do" in text
    assert "   1  " in text


def test_the_engines_own_advice_wins():
    error = DriverError(code="unknown", message="m", advice=("Reboot the box.",))
    assert "Reboot the box." in page(driver_panel(error, 80, UTF8))


def test_events_come_newest_first_and_the_strip_keeps_to_one_line():
    text = page(row.line for row in event_rows(some_events(), 80, UTF8, NOW))
    assert text.index("Xid 79") < text.index("slowed by heat") < text.index("Process 4711")
    strip = plain(event_strip(some_events(), 80, UTF8))
    assert strip.startswith(" 14:01:30 ! Xid 79")
    assert plain(event_strip((), 80, UTF8)) == " no events yet"


def test_help_has_keys_filter_and_signs():
    text = page(help_lines([("Moving", [("j k", "down and up")])], 80, UTF8))
    for word in ("down and up", "vram>10", "stray", "power brake", "UTIL"):
        assert word in text


def test_ages_clocks_and_names():
    assert [age(s) for s in (None, 5, 59.9, 60, 3599, 11530, 187000, 1e9)] == [
        "–", "5s", "59s", "1m", "59m", "3h12", "2d03", "11574d",
    ]  # fmt: skip
    assert clock(TAKEN_AT) == "14:02:11"
    assert clock(TAKEN_AT, 3600.0) == "15:02:11"
    assert clock("nonsense") == "–"
    assert short_model("NVIDIA A100-SXM4-80GB") == "A100 80GB"
    assert replay_words(65, 600, 2.0) == "1:05/10:00 ×2"
