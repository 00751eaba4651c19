"""The lines of the memory page: advice only where numbers carry it, nothing too wide or dirty."""

from __future__ import annotations

import unicodedata

import pytest
from hand_made import a_gpu, a_process
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from test_memory_bar import RUN, devices, glyph_sets, segments
from test_widths import hostile, processes

from cockpit.agent.agent import MAX_PROFILE_STEPS, checked_setting
from cockpit.model.memory import (
    AllocationSite,
    AttachPlan,
    BigTensor,
    Census,
    RunOutcome,
    Segments,
    Stacks,
    TensorGroup,
    ThreadStack,
)
from cockpit.model.process import Process
from cockpit.model.run import Run, RunDevice
from cockpit.model.run_history import RunHistory, Trend
from cockpit.model.text import GIB, MIB
from cockpit.tui.line import plain
from cockpit.tui.render.cells import line_width
from cockpit.tui.render.census_lines import census_lines, site_lines
from cockpit.tui.render.fix_lines import (
    attach_lines,
    detach_fix,
    fix_lines,
    fix_rows,
    fixes_of,
    outcome_lines,
)
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.memory_bar import Place, slices_of
from cockpit.tui.render.memory_outlook import advice_of, long_duration, time_until_full
from cockpit.tui.render.memory_page import (
    device_lines,
    driver_bars,
    driver_view_lines,
    facts_line,
    framework_lines,
    memory_title,
    state_lines,
)
from cockpit.tui.render.memory_subject import Subject, place_of, segments_for
from cockpit.tui.render.memory_tabs import tab_line
from cockpit.tui.render.rank_lines import family, rank_lines
from cockpit.tui.render.segment_map import blocks_of, segment_lines
from cockpit.tui.render.stack_lines import stack_lines

UTF8 = Glyphs.unicode()


class FixedHistory(RunHistory):
    """Says what a test wants it to say."""

    def __init__(self, trends=None, retries=None) -> None:
        super().__init__()
        self._fixed, self._retries = trends or {}, retries

    def trend(self, pid, gpu, metric):
        return self._fixed.get(metric)

    def per_minute(self, pid, gpu, metric="retries"):
        return self._retries


KEYS = {"memory.stacks": "t", "memory.census": "c", "memory.fix": "f", "memory.attach": "a"}


def a_subject(device=RUN, *, run=None, process=None, gpu=None, history=None, rows=None) -> Subject:
    gpu = a_gpu(0) if gpu is None else gpu
    run = Run(pid=4711, step=20214, devices=(device,)) if run is None else run
    return Subject(
        pid=4711,
        process=process,
        run=run,
        gpus={0: gpu},
        history=history or RunHistory(),
        segments=rows,
        keys=KEYS,
    )


def advice(subject, device=RUN) -> str:
    place = place_of(subject.gpus[0])
    return " ".join(text for text, _ in advice_of(subject, device, slices_of(device), place))


LEAK = Trend(60 * MIB, 34 * MIB, False, 300.0, 500)
STEADY = Trend(0.0, 0.0, True, 300.0, 500)
HEALTHY = replace(RUN, inactive_split_bytes=GIB // 2, private_pool_bytes=0)


@pytest.mark.parametrize(
    ("device", "history", "gpu", "words"),
    [
        (RUN, None, {}, "27.6 GiB cannot be given back by empty_cache. expandable_segments would"),
        (replace(HEALTHY, ooms=2), None, {}, "out of memory 2 times"),
        (HEALTHY, FixedHistory({"allocated": LEAK}), {}, "Live tensors grow"),
        (HEALTHY, FixedHistory(retries=3.0), {}, "Retries rise"),
        (
            HEALTHY,
            None,
            {"memory_used_bytes": int(138.0 * GIB)},
            "cache that empty_cache gives back",
        ),
        (replace(HEALTHY, requested_bytes=30 * GIB), None, {}, "lost to rounding"),
    ],
)
def test_numbers_that_carry_an_advice_bring_it(device, history, gpu, words):
    assert words in advice(a_subject(device, history=history, gpu=a_gpu(0, **gpu)), device)


@pytest.mark.parametrize(
    ("device", "history"),
    [
        (HEALTHY, None),
        (HEALTHY, FixedHistory({"allocated": STEADY}, retries=0.0)),
        (replace(HEALTHY, inactive_split_bytes=None), None),
        (RunDevice(gpu=0), None),
        (replace(RUN, inactive_split_bytes=900 * MIB, reserved_bytes=80 * GIB), None),
    ],
)
def test_healthy_or_unknown_numbers_bring_none(device, history):
    assert advice(a_subject(device, history=history), device) == ""


def test_a_leak_into_a_large_cache_is_full_only_after_it():
    place = Place(100 * GIB, 80 * GIB)
    device = RunDevice(gpu=0, allocated_bytes=20 * GIB, reserved_bytes=60 * GIB)
    assert time_until_full(LEAK, STEADY, device, place) == pytest.approx(60 * GIB / (60 * MIB))
    assert time_until_full(STEADY, LEAK, device, place) == pytest.approx(20 * GIB / (60 * MIB))
    assert time_until_full(STEADY, STEADY, device, place) is None
    assert time_until_full(LEAK, LEAK, device, Place()) is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(40, "40 s"), (725, "12 min"), (7680, "2 h 08 min"), (3 * 86400, "3 d")],
)
def test_long_durations(seconds, words):
    assert long_duration(seconds) == words


def test_a_run_without_agent_shows_the_drivers_number_and_what_it_is():
    process = a_process(4711, vram_bytes=int(71.2 * GIB))
    subject = Subject(4711, process, None, {0: a_gpu(0)}, RunHistory(), keys=KEYS)
    text = " ".join(plain(line).strip() for line in driver_view_lines(subject, 200))
    assert text == (
        "Driver view only: 71.2 GiB held by pid 4711 (context + cache + NCCL). To split "
        'allocated/reserved, start it with "cockpit run -- …" or press [a] to attach.'
    )


@pytest.mark.parametrize(
    ("framework", "words"),
    [("jax", "75 %"), ("tensorflow", "whole GPU"), ("vllm", "KV cache")],
)
def test_other_frameworks_are_explained_not_measured(framework, words):
    process = a_process(4711, framework=framework)
    subject = Subject(4711, process, None, {0: a_gpu(0)}, RunHistory())
    text = " ".join(plain(line) for line in driver_view_lines(subject, 80))
    assert words in text
    assert "to attach" not in text


def test_vllm_is_not_offered_empty_cache():
    run = Run(pid=4711, devices=(RUN,))
    assert "empty_cache" in [fix.key for fix in fixes_of(run, slices_of(RUN), "pytorch")]
    assert "empty_cache" not in [fix.key for fix in fixes_of(run, slices_of(RUN), "vllm")]


def test_the_live_memory_of_an_attached_vllm_is_called_what_it_is():
    subject = a_subject(process=a_process(4711, framework="vllm"))
    text = " ".join(plain(line) for line in device_lines(subject, RUN, 120, UTF8))
    assert "weights, KV cache 41.2" in text
    assert framework_lines(subject, 80)
    assert not framework_lines(a_subject(process=a_process(4711, framework="pytorch")), 80)


def test_a_run_on_the_cpu_is_offered_nothing_that_calls_cuda():
    run = Run(pid=4711, cuda_initialized=False)
    requests = [fix.request for fix in fixes_of(run, [], "pytorch")]
    assert {one.op for one in requests} == {"gc", "set", "profile"}
    assert {one.name for one in requests} == {None, "matmul_precision"}


@pytest.mark.parametrize(
    ("status", "words"),
    [(None, "has ended"), (3, "has ended with exit status 3"), (143, "was killed by SIGTERM")],
)
def test_the_end_of_a_run_is_told_as_it_was(status, words):
    subject = a_subject(run=Run(pid=4711, state="ended", exit_status=status))
    assert plain(state_lines(subject, 120, "–")[0]) == f" ! pid 4711 {words}."


def test_every_value_that_is_offered_is_one_that_the_agent_takes():
    for fix in fixes_of(Run(pid=1, devices=(RUN,)), slices_of(RUN), None):
        for request in {fix.request, *(one.request for one in fix.choices)}:
            if request.op == "set":
                checked_setting(request.name, request.value)
            elif request.op == "profile":
                assert 1 <= request.steps <= MAX_PROFILE_STEPS


def test_empty_cache_says_beforehand_how_much_is_stuck():
    fixes = {fix.key: fix for fix in fixes_of(Run(pid=1, devices=(RUN,)), slices_of(RUN), None)}
    words = " ".join(fixes["empty_cache"].happens)
    assert "Only 10.8 of 44.3 GiB cached can be returned; 27.6 GiB sit in split blocks" in words


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("no_answer", "does not answer: something holds the GIL; its numbers are from 14:02:11"),
        ("stopped", "is stopped (SIGSTOP); its numbers are from 14:02:11"),
        ("ended", "has ended with exit status 1; its numbers are from 14:02:11"),
    ],
)
def test_a_run_that_says_nothing_is_shown_with_the_moment_of_its_numbers(state, words):
    run = Run(pid=4711, state=state, exit_status=1 if state == "ended" else None, devices=(RUN,))
    subject = a_subject(run=run)
    text = " ".join(plain(line) for line in state_lines(subject, 120, "14:02:11"))
    assert words in text
    body = device_lines(subject, RUN, 100, UTF8)
    assert {role for line in body for _, role in line} <= {"dim", "warn", "error"}
    assert not any("[f]" in plain(line) for line in body)


def test_an_agent_that_was_never_heard_is_not_accused_of_holding_the_gil():
    subject = a_subject(run=Run(pid=4711, state="no_answer"))
    text = " ".join(plain(line) for line in state_lines(subject, 120, "–"))
    assert text == " pid 4711 has not answered yet."


def test_training_on_the_cpu_is_said():
    subject = a_subject(run=Run(pid=4711, cuda_initialized=False))
    text = " ".join(plain(line) for line in state_lines(subject, 200, "14:02:11"))
    assert "pid 4711 trains on CPU: CUDA was never initialised in this process." in text


def a_map(*sizes: tuple[int, int]) -> Segments:
    from cockpit.model.memory import SegmentRow

    return Segments(
        segments=tuple(
            SegmentRow(device=device, address=0, bytes=size, allocated_bytes=0, active_bytes=0)
            for device, size in sizes
        )
    )


@pytest.mark.parametrize(
    ("found", "count"),
    [
        (a_map((0, RUN.reserved_bytes)), 1),
        (a_map((3, RUN.reserved_bytes)), 1),  # one device: whatever number torch gives it
        (a_map((0, RUN.reserved_bytes // 2)), 0),
        (a_map(), 0),
        (None, 0),
    ],
)
def test_a_segment_map_that_disagrees_with_the_allocator_is_not_used(found, count):
    run = Run(pid=1, devices=(RUN,))
    assert len(segments_for(found, run, RUN)) == count


def test_devices_that_the_process_numbers_otherwise_are_matched_in_their_order():
    second = replace(RUN, gpu=3, reserved_bytes=20 * GIB)
    run = Run(pid=1, devices=(replace(RUN, gpu=2), second))
    found = a_map((0, RUN.reserved_bytes), (1, 20 * GIB))
    assert [one.device for one in segments_for(found, run, second)] == [1]


def test_ranks_stand_side_by_side_and_one_without_an_agent_says_so():
    rows = {
        pid: a_process(pid, rank=pid - 10, ppid=4, world_size=2, user="ml1") for pid in (10, 11)
    }
    kin = family(10, (Run(pid=10, devices=(RUN,)),), rows)
    text = "\n".join(plain(line) for line in rank_lines(kin, 10, 120, UTF8))
    assert "▸" in text
    assert "no agent" in text
    assert rank_lines(kin[:1], 10, 120, UTF8) == []


def test_a_segment_picture_keeps_what_was_left_out_apart():
    from cockpit.model.memory import SegmentRow

    row = SegmentRow(
        device=0,
        address=0,
        bytes=100,
        allocated_bytes=40,
        active_bytes=40,
        pool="large",
        runs=(("active", 40), ("inactive", 20)),
    )
    assert [tuple(block) for block in blocks_of(row)] == [("live", 40), ("stuck", 20), ("?", 40)]


def test_before_and_after_are_shown_only_where_something_moved():
    after = replace(RUN, reserved_bytes=int(74.8 * GIB))
    moved = outcome_lines(
        RunOutcome(ok=True, sentence="x", before=(RUN,), after=(after,)), 80, UTF8
    )
    same = outcome_lines(RunOutcome(ok=True, sentence="x", before=(RUN,), after=(RUN,)), 80, UTF8)
    assert any("85.6     74.8    −10.8" in plain(line) for line in moved)
    assert len(same) == 1


counts = st.integers(0, 1 << 40)
tensors = st.builds(
    BigTensor,
    shape=st.lists(st.integers(0, 1 << 40), max_size=9).map(tuple),
    dtype=hostile,
    device=hostile,
    bytes=counts,
    kind=st.none() | hostile,
    holder=st.none() | hostile,
)
groups = st.builds(
    TensorGroup, kind=hostile, device=hostile, dtype=hostile, count=counts, bytes=counts
)
censuses = st.builds(
    Census,
    groups=st.lists(groups, max_size=3).map(tuple),
    biggest=st.lists(tensors, max_size=3).map(tuple),
    deep=st.booleans(),
    complete=st.booleans(),
    sentence=st.none() | hostile,
)
sites = st.builds(
    AllocationSite,
    device=st.integers(0, 9),
    bytes=counts,
    count=counts,
    frames=st.lists(hostile, max_size=6).map(tuple),
)
threads = st.builds(
    ThreadStack,
    name=hostile,
    is_training=st.booleans(),
    frames=st.lists(hostile, max_size=3).map(tuple),
)
runs = st.builds(
    Run,
    pid=st.just(4711),
    name=st.none() | hostile,
    state=st.sampled_from(["running", "no_answer", "stopped", "ended"]),
    exit_status=st.none() | st.integers(-64, 255),
    attached_by=st.none() | st.sampled_from(["launch", "import", "ptrace", "remote_exec"]),
    torch_version=st.none() | hostile,
    step=st.none() | counts,
    step_age_s=st.none() | st.floats(0, 1e6),
    steps_per_s=st.none() | st.floats(0, 1e6),
    cuda_initialized=st.none() | st.booleans(),
    devices=st.lists(devices, max_size=2).map(tuple),
    gaps=st.dictionaries(st.just("devices"), hostile, max_size=1),
)
trends = st.none() | st.builds(
    Trend,
    st.floats(-1e11, 1e11),
    st.none() | st.floats(-1e11, 1e11),
    st.booleans(),
    st.floats(0, 1e6),
    st.none() | st.integers(0, 10**9),
)
widths = st.integers(40, 250)


def assert_clean(lines, width, glyphs):
    for line in lines:
        text = plain(line)
        assert line_width(line) <= width, (width, text)
        assert not any(unicodedata.category(char) in ("Cc", "Cs") for char in text), repr(text)
        assert not glyphs.ascii_only or text.isascii(), repr(text)


@settings(deadline=None)
@given(censuses, st.lists(sites, max_size=3), widths, glyph_sets)
def test_census_and_sites_fit_and_are_clean(census, some, width, glyphs):
    assert_clean(census_lines(census, width, glyphs, "[C]"), width, glyphs)
    assert_clean(site_lines(some, width, glyphs), width, glyphs)


@settings(deadline=None)
@given(st.lists(threads, max_size=3), st.none() | hostile, segments, widths, glyph_sets)
def test_stacks_and_segments_fit_and_are_clean(some, sentence, rows, width, glyphs):
    stacks = Stacks(threads=tuple(some), read_by="py-spy", sentence=sentence)
    assert_clean(stack_lines(stacks, width, glyphs), width, glyphs)
    assert_clean(segment_lines(Segments(segments=tuple(rows)), width, glyphs), width, glyphs)


@settings(deadline=None, max_examples=150)
@given(runs, st.none() | processes, segments, trends, widths, glyph_sets)
def test_the_page_fits_and_is_clean(run, process, rows, trend, width, glyphs):
    history = FixedHistory({"allocated": trend, "reserved": trend}, retries=2.0)
    found = Segments(segments=tuple(rows))
    subject = a_subject(run=run, process=process, history=history, rows=found)
    lines = [memory_title(subject, width, glyphs), *driver_bars(subject, width, glyphs)]
    lines += [tab_line(("bar", "segments", "stacks"), "bar", width, glyphs)]
    for device in run.devices:
        lines += device_lines(subject, device, width, glyphs)
    lines += rank_lines([(run, process), (None, process)], 4711, width, glyphs)
    assert_clean(lines, width, glyphs)
    finished = [facts_line(subject, width), *state_lines(subject, width, "14:02:11")]
    finished += driver_view_lines(subject, width)
    assert_clean([glyphs.finish(line) for line in finished], width, glyphs)


@settings(deadline=None)
@given(hostile, st.none() | hostile, st.lists(hostile, max_size=3), widths, glyph_sets)
def test_dialogs_fit_and_are_clean(sentence, path, more, width, glyphs):
    outcome = RunOutcome(ok=False, sentence=sentence, path=path, lines=tuple(more))
    assert_clean(outcome_lines(outcome, width, glyphs), width, glyphs)
    for way in ("agent", "ptrace", None):
        plan = AttachPlan(pid=1, start_ticks=None, way=way, sentence=sentence)
        assert_clean(attach_lines(plan, width, glyphs), width, glyphs)
    fixes = [*fixes_of(Run(pid=1, devices=(RUN,)), slices_of(RUN), None), detach_fix(Run(pid=1))]
    assert_clean([row.line for row in fix_rows(fixes, width, glyphs)], width, glyphs)
    for fix in fixes:
        assert_clean(fix_lines(fix, 1, width, glyphs), width, glyphs)


def test_a_process_that_cannot_be_seen_is_not_offered_to_be_attached_to():
    process = Process(pid=7, visible=False, gaps={"pid": "other_namespace"})
    subject = Subject(7, process, None, {}, RunHistory())
    lines = driver_view_lines(subject, 80)
    words = " ".join(text for line in lines for text, _ in line)
    assert "to attach" not in words
    assert "how much pid 7 holds is not known" in words
    assert "cannot be attached to from here" in words
