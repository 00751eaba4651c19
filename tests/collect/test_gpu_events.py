"""One Xid, two sources; and what shows only between two ticks."""

from __future__ import annotations

import pytest

from cockpit.collect.gpu_changes import ChangeWatch
from cockpit.collect.gpu_events import XidMerger
from cockpit.collect.kernel_log import KernelLine
from cockpit.model.event import Event
from cockpit.model.gpu import DriverError, Gpu

BUS = (0, 0x1B, 0)
NOW = 1_000_000.0


def _line(at_s: float = NOW, code: int = 31, pid: int | None = 4711, name: str = "python", **more):
    return KernelLine(at_s, BUS, code, pid, name, **more)


def _events(merger: XidMerger, now_s: float) -> list[Event]:
    return [event for _, event in merger.ready(now_s)]


def test_an_xid_seen_by_both_is_one_event_with_the_process_in_it():
    merger = XidMerger(waits_for_kernel=True)
    merger.from_nvml(0, 31, NOW)
    assert _events(merger, NOW + 0.1) == []
    merger.from_kernel(0, _line(NOW - 0.5))
    (event,) = _events(merger, NOW + 0.2)
    assert event.sentence == (
        "GPU 0: Xid 31, memory page fault: usually the program read or wrote outside its memory "
        "(python, pid 4711)"
    )
    assert _events(merger, NOW + 5) == []


def test_the_kernel_may_be_first():
    merger = XidMerger(waits_for_kernel=True)
    merger.from_kernel(0, _line(NOW))
    merger.from_nvml(0, 31, NOW + 1.5)
    assert len(_events(merger, NOW + 1.5)) == 1
    assert _events(merger, NOW + 9) == []


def test_an_xid_that_only_nvml_saw_is_told_after_a_second():
    merger = XidMerger(waits_for_kernel=True)
    merger.from_nvml(0, 79, NOW)
    assert _events(merger, NOW + 0.9) == []
    (event,) = _events(merger, NOW + 1.1)
    assert (event.xid, event.severity) == (79, "error")


def test_without_a_kernel_log_an_xid_is_told_at_once():
    merger = XidMerger(waits_for_kernel=False)
    merger.from_nvml(0, 79, NOW)
    assert len(_events(merger, NOW)) == 1


def test_the_same_code_later_or_on_another_gpu_is_another_event():
    merger = XidMerger(waits_for_kernel=False)
    merger.from_nvml(0, 31, NOW)
    merger.from_nvml(0, 31, NOW + 3)
    merger.from_nvml(1, 31, NOW)
    assert len(_events(merger, NOW + 3)) == 3


def test_one_line_a_channel_is_one_event_and_two_processes_are_two():
    merger = XidMerger(waits_for_kernel=True)
    for pid in (4711, 4711, 4711, 4712):
        merger.from_kernel(0, _line(NOW, code=45, pid=pid))
    assert len(_events(merger, NOW)) == 2


def test_a_process_name_cannot_reach_the_terminal():
    merger = XidMerger(waits_for_kernel=True)
    merger.from_kernel(0, _line(name="\x1b[31mred\x07"))
    (event,) = _events(merger, NOW)
    assert event.sentence.isprintable()


def test_a_recommendation_is_told_in_the_drivers_words():
    text = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    merger = XidMerger(waits_for_kernel=True)
    merger.from_kernel(None, _line(code=154, text=text))
    (event,) = _events(merger, NOW)
    assert "GPU Reset Required" in event.sentence
    assert event.sentence.startswith("GPU at 0000:1b:00")


# -- changes between ticks


def _told(watch: ChangeWatch, ticks: list[tuple[float, Gpu]]) -> list[tuple[float, Event]]:
    return [(at, event) for at, gpu in ticks for event in watch.look([gpu], at, NOW + at)]


def _throttled(*reasons: str, **more) -> Gpu:
    return Gpu(index=0, throttle_reasons=reasons, **more)


def test_a_reason_of_one_tick_is_no_event():
    ticks = [(0, _throttled()), (1, _throttled("sw_thermal_slowdown")), (2, _throttled())]
    assert _told(ChangeWatch(), ticks) == []


def test_heat_is_one_warning_whatever_names_it_has_and_its_end_is_told_after_five_seconds():
    hot = _throttled("hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", temperature_c=91)
    ticks = [(t, hot) for t in range(5)] + [(t, _throttled()) for t in range(5, 15)]
    told = _told(ChangeWatch(), ticks)
    assert [(at, event.severity) for at, event in told] == [(1, "warning"), (9, "info")]
    assert "91 °C" in told[0][1].sentence


def test_the_power_limit_is_told_once_however_much_it_flickers():
    ticks = [(t, _throttled(*["sw_power_cap"] * (t % 7 < 4))) for t in range(200)]
    told = _told(ChangeWatch(), ticks)
    assert [event.severity for _, event in told] == ["info"]


@pytest.mark.parametrize("reason", ["gpu_idle", "applications_clocks_setting", "sync_boost"])
def test_what_is_no_trouble_is_no_event(reason):
    assert _told(ChangeWatch(), [(t, _throttled(reason)) for t in range(9)]) == []


def test_memory_errors_from_before_we_came_are_no_news_and_new_ones_are():
    counts = [(0, 3), (5, 3), (10, 5), (15, 5)]
    ticks = [(at, Gpu(index=0, ecc_uncorrected=count)) for at, count in counts]
    ((at, event),) = _told(ChangeWatch(), ticks)
    assert (at, event.severity) == (10, "error")
    assert event.sentence == (
        "GPU 0: 2 new uncorrectable memory errors (5 since the driver was loaded)"
    )


def test_corrected_errors_are_summed_up_once_a_minute():
    ticks = [(t, Gpu(index=0, ecc_corrected=100 + t)) for t in range(0, 130, 5)]
    told = _told(ChangeWatch(), ticks)
    assert [at for at, _ in told] == [5, 65, 125]
    assert "60 memory errors corrected" in told[1][1].sentence


def test_a_counter_that_was_reset_is_a_new_baseline():
    counts = [(0, 9), (5, 0), (10, 1)]
    ticks = [(at, Gpu(index=0, ecc_uncorrected=count)) for at, count in counts]
    assert [at for at, _ in _told(ChangeWatch(), ticks)] == [10]


def test_a_gpu_is_told_lost_once_and_recovered_once():
    states = ["ok", "lost", "lost", "stale", "ok", "ok"]
    ticks = [(at, Gpu(index=3, state=state)) for at, state in enumerate(states)]
    told = _told(ChangeWatch(), ticks)
    assert [(at, event.kind) for at, event in told] == [(1, "lost"), (4, "recovered")]


def _silent(age_s: float) -> Gpu:
    return Gpu(index=1, state="stale", age_s=age_s)


def test_a_gpu_that_hangs_is_one_warning_and_its_answer_one_notice():
    ok = Gpu(index=1)
    ticks = [(0, ok), *((t, _silent(t)) for t in range(1, 20)), *((t, ok) for t in range(20, 30))]
    told = _told(ChangeWatch(), ticks)
    assert [(at, event.kind, event.severity) for at, event in told] == [
        (4, "lost", "warning"),
        (23, "recovered", "info"),
    ]
    assert told[0][1].sentence == "GPU 1 has not answered for 4 s"
    assert told[1][1].sentence == "GPU 1 answers again, after 20s"


def test_a_gpu_that_is_late_again_and_again_is_told_once():
    slow = [(t, _silent(t % 5) if t % 5 else Gpu(index=1)) for t in range(120)]
    assert len(_told(ChangeWatch(), slow)) == 1


def test_a_short_stall_is_no_event():
    ticks = [(0, Gpu(index=1)), (1, _silent(1)), (2, _silent(2)), (3, Gpu(index=1))]
    assert _told(ChangeWatch(), ticks) == []


NOT_LOADED = DriverError(code="driver_not_loaded", message="Not loaded.")


def test_a_driver_that_goes_and_comes_back_is_two_events_and_its_gpus_none():
    watch, told = ChangeWatch(), []
    ok, away = Gpu(index=0), Gpu(index=0, state="stale", age_s=9.0)
    for at in range(40):
        error = NOT_LOADED if 5 <= at < 15 else None
        # the library opens before a GPU has answered
        gpu = away if 5 <= at < 16 else ok
        told += [(at, event) for event in watch.look([gpu], at, NOW + at, error)]
    assert [(at, e.kind, e.gpu, e.severity) for at, e in told if e.gpu is None] == [
        (5, "lost", None, "error"),
        (16, "recovered", None, "info"),
    ]
    assert told[0][1].sentence == "The NVIDIA driver stopped answering: driver not loaded"


def test_a_driver_that_never_worked_has_not_gone():
    watch = ChangeWatch()
    assert [e for at in range(9) for e in watch.look([], at, NOW + at, NOT_LOADED)] == []


@pytest.mark.parametrize("event_at", [4.0, 6.0])
def test_a_double_bit_error_and_its_count_are_one_event(event_at):
    watch, told = ChangeWatch(), []
    for at, count in ((0.0, 0), (4.0, 0), (5.0, 1), (6.0, 1), (10.0, 1)):
        if at == event_at:
            told.append(watch.double_bit_error(0, at, NOW + at))
        told += watch.look([Gpu(index=0, ecc_uncorrected=count)], at, NOW + at)
    assert len([event for event in told if event is not None]) == 1
