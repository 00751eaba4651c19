"""The alert line: what it says, in which order, and when it is quiet."""

from __future__ import annotations

from hand_made import a_gpu, a_ledger, a_snapshot, an_idle_gpu, ten_processes
from msgspec.structs import replace

from cockpit.model.gpu import Driver, DriverError
from cockpit.model.ledger import Explanation
from cockpit.model.text import GIB
from cockpit.tui.line import plain
from cockpit.tui.render.alerts import Alert, alert_line, alerts
from cockpit.tui.render.glyphs import Glyphs

UTF8 = Glyphs.unicode()


def quiet(**changes):
    calm = {"gpus": (a_gpu(0), an_idle_gpu(1)), "processes": (), "ledger": (), "events": ()}
    return a_snapshot(**(calm | changes))


def sentences(snapshot):
    return [alert.sentence for alert in alerts(snapshot)]


def test_a_machine_that_works_is_quiet():
    assert alerts(quiet()) == []
    assert plain(alert_line([], 80, UTF8)) == " all quiet"


def test_the_worst_comes_first_and_the_rest_is_counted():
    found = alerts(a_snapshot())
    assert found[0].sentence.startswith("GPU 7 is lost (Xid 79)")
    text = plain(alert_line(found, 80, UTF8))
    assert text.startswith(" ! GPU 7 is lost (Xid 79)")
    assert text.endswith("  +4 more")


def test_a_stray_says_what_it_holds():
    stray = next(process for process in ten_processes() if process.stray)
    found = alerts(quiet(processes=(stray,)))
    assert found[0].sentence == "GPU 6: 38.4 GiB held by a stray (pid 5233)"
    assert found[0].pid == 5233
    assert found[0].gpu == 6


def test_gpus_with_the_same_trouble_share_a_sentence():
    hot = [a_gpu(n, throttle_reasons=("sw_thermal_slowdown",)) for n in (1, 2, 3)]
    assert sentences(quiet(gpus=tuple(hot))) == ["GPUs 1-3 slowed by heat"]


def test_a_power_cap_at_the_default_limit_is_no_alert():
    assert alerts(quiet(gpus=(a_gpu(0, throttle_reasons=("sw_power_cap",)),))) == []


def test_a_stale_gpu_does_not_repeat_its_old_troubles():
    old = a_gpu(0, state="stale", age_s=9.0, throttle_reasons=("sw_thermal_slowdown",))
    assert sentences(quiet(gpus=(old,))) == ["GPU 0 does not answer, last values shown"]


def test_an_old_xid_is_history():
    snapshot = a_snapshot(gpus=(a_gpu(7),), processes=(), ledger=())
    assert sentences(snapshot) == ["Xid 79 on GPU 7: it has fallen off the bus"]
    later = replace(snapshot, taken_at="2026-11-30T14:12:00.000Z")
    assert alerts(later) == []


def test_unaccounted_memory_is_told_with_the_ledgers_explanation():
    assert sentences(quiet(ledger=(a_ledger(),)))[0].startswith("GPU 6: 5.8 GiB unaccounted: ")


def test_memory_of_another_namespace_is_told_but_is_no_warning():
    elsewhere = Explanation(kind="other_namespace", pids=(9,), sentence="5.8 GiB belong to pid 9.")
    found = alerts(quiet(ledger=(replace(a_ledger(), explanations=(elsewhere,)),)))
    assert [alert.severity for alert in found] == ["info"]
    assert plain(alert_line(found, 80, UTF8)) == " · GPU 6: 5.8 GiB belong to pid 9"


def test_the_drivers_error_comes_before_everything():
    driver = Driver(error=DriverError(code="unknown", message="Unknown Error"))
    assert sentences(quiet(driver=driver, gpus=()))[0] == "Unknown Error"


def test_nearly_full_is_said_but_not_of_unified_memory():
    full = a_gpu(0, memory_used_bytes=int(139.0 * GIB))
    assert "nearly full" in sentences(quiet(gpus=(full,)))[0]
    assert alerts(quiet(gpus=(replace(full, unified_memory=True),))) == []


def test_the_hint_is_never_cropped_away():
    found = [Alert("warning", "a very long sentence " * 10, 0, 5)]
    line = plain(alert_line(found, 60, UTF8, hint="x: kill it"))
    assert line.endswith("x: kill it")
    assert len(line) <= 60
