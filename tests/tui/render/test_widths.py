"""Property: whatever a machine reports, no line is too wide or carries control characters."""

from __future__ import annotations

import unicodedata

from hand_made import a_gpu, a_history, a_host, a_ledger, a_process, a_snapshot, some_events
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cockpit.model.action import KillPlan, KillResult, PlannedTarget
from cockpit.model.gpu import Driver, DriverError, Gpu
from cockpit.model.history import History
from cockpit.model.process import DeviceUse, Process, ProcessDetails, Relative, Stray
from cockpit.model.text import GIB
from cockpit.tui.line import plain
from cockpit.tui.render.alerts import alert_line, alerts
from cockpit.tui.render.cells import crop, fit_line, line_width, pad, width_of, wrapped
from cockpit.tui.render.driver_panel import driver_panel
from cockpit.tui.render.event_rows import event_header, event_rows, event_strip
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.gpu_page import gpu_page, gpu_title
from cockpit.tui.render.gpu_rows import gpu_lines
from cockpit.tui.render.help_lines import help_lines
from cockpit.tui.render.host_line import TitleState, host_line, title_line
from cockpit.tui.render.kill_lines import plan_lines, result_lines
from cockpit.tui.render.ledger_lines import ledger_lines
from cockpit.tui.render.process_page import environment_lines, process_page, process_title
from cockpit.tui.render.process_rows import process_header, process_rows, process_table, tree_rows
from cockpit.tui.render.remarks import snapshot_remarks
from cockpit.tui.render.topology_lines import topology_lines
from cockpit.tui.render.trace import trace_lines
from cockpit.tui.sorting import Sort, ordered

hostile = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        [
            "x" * 4000,
            "训" * 90,
            "👩\u200d🔬👨\u200d👩\u200d👧🇩🇪",
            "\x1b[31mred\x1b]0;t\x07",
            "a\nb\r\tc",
            "e\u0301" * 40,
            "\u202eevil",
            "\udcff\udcfe",
            "\ufeff\u00ad\ufe0f",
            "ﷺ" * 20,
        ]
    ),
)
widths = st.integers(40, 250)
glyph_sets = st.sampled_from([Glyphs.unicode(), Glyphs.unicode(braille=False), Glyphs.ascii()])
maybe = st.none() | st.floats(0.0, 1e6)
sizes = st.none() | st.integers(0, 1 << 45)

uses = st.builds(
    DeviceUse,
    gpu=st.integers(0, 63),
    vram_bytes=sizes,
    sm_pct=maybe,
    mig_instance=st.none() | st.integers(0, 6),
)
processes = st.builds(
    Process,
    pid=st.integers(1, 1 << 22),
    start_ticks=st.none() | st.integers(0, 1 << 60),
    user=st.none() | hostile,
    command=st.lists(hostile, max_size=5).map(tuple)
    | st.lists(hostile, max_size=3).map(lambda words: ("python", "-m", *words)),
    name=st.none() | hostile,
    state=st.none() | st.sampled_from("RSDZT?"),
    ppid=st.none() | st.integers(1, 40),
    cpu_pct=maybe,
    rss_bytes=sizes,
    vram_bytes=sizes,
    devices=st.lists(uses, max_size=9).map(tuple),
    visible=st.booleans(),
    stray=st.none() | st.builds(Stray, reason=st.just("orphan_idle"), sentence=hostile),
    container=st.none() | hostile,
    conda_env=st.none() | hostile,
    tmux=st.none() | hostile,
    cwd=st.none() | hostile,
    rank=st.none() | st.integers(0, 9999),
    world_size=st.none() | st.integers(0, 9999),
    started_at=st.none() | st.just("2020-01-01T00:00:00Z") | hostile,
    gaps=st.dictionaries(st.just("command"), hostile, max_size=1),
)
gpus = st.builds(
    Gpu,
    index=st.integers(0, 63),
    name=st.none() | hostile,
    uuid=st.none() | hostile,
    state=st.sampled_from(["ok", "stale", "lost"]),
    age_s=st.floats(0.0, 1e6),
    utilization_pct=maybe,
    memory_total_bytes=sizes,
    memory_used_bytes=sizes,
    power_w=maybe,
    power_limit_w=maybe,
    power_default_limit_w=maybe,
    temperature_c=st.none() | st.integers(0, 999),
    sm_clock_mhz=st.none() | st.integers(0, 99999),
    pcie_rx_bytes_per_s=st.none() | st.floats(0.0, 1e13),
    nvlink_rx_bytes_per_s=st.none() | st.floats(0.0, 1e13),
    ecc_uncorrected=st.none() | st.integers(0, 1 << 40),
    throttle_reasons=st.none() | st.lists(hostile, max_size=2).map(tuple),
    sm_active_pct=maybe,
    fan_pct=st.none() | st.integers(0, 9999),
    gaps=st.dictionaries(st.sampled_from(["power_w", "uuid"]), hostile, max_size=2),
)


def check(lines, width):
    for line in lines:
        text = plain(line)
        assert line_width(line) <= width, (width, text)
        assert width_of(text) <= width, (width, text)
        bad = [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
        assert not bad, (bad, text)


@settings(max_examples=60, deadline=None)
@given(st.lists(processes, max_size=5), widths, glyph_sets)
def test_processes(found, width, glyphs):
    table = process_table(width, glyphs, 1.8e9, processes=found)
    check([process_header(table, Sort("vram"))], width)
    check((row.line for row in process_rows(table, ordered(found, Sort()))), width)
    relatives = [Relative(pid=n, ppid=n - 1, name="\x1b[2J", user="训练") for n in range(1, 30)]
    check((row.line for row in tree_rows(table, found, relatives)), width)


@settings(max_examples=60, deadline=None)
@given(st.lists(gpus, max_size=20), widths, st.integers(0, 20), glyph_sets)
def test_gpus(found, width, height, glyphs):
    rows = gpu_lines(found, History(), width, height, glyphs)
    assert len(rows) <= height
    check((row.line for row in rows), width)
    check(trace_lines(a_history(a_snapshot(), 9), found, width, height, glyphs, ["power"]), width)
    for gpu in found[:2]:
        check([gpu_title(gpu, width, glyphs), *gpu_page(gpu, width, glyphs)], width)


@settings(max_examples=40, deadline=None)
@given(processes, hostile, hostile, widths, glyph_sets)
def test_pages_of_a_process(process, name, value, width, glyphs):
    kin = (Relative(pid=3, ppid=1, name=name, command=(value,), user=name),)
    details = ProcessDetails(
        pid=process.pid,
        start_ticks=None,
        ancestors=kin * 20,
        children=kin,
        environment=((name, value),),
        executable=value,
        cgroup=value,
        device_files=(value,),
        limits=((name, value),),
        gaps={"tty": value},
    )
    check([process_title(process, width, glyphs)], width)
    check(process_page(process, details, width, glyphs, 1.8e9), width)
    check(environment_lines(details, width, glyphs), width)


@settings(max_examples=40, deadline=None)
@given(st.lists(gpus, max_size=3), st.lists(processes, max_size=3), hostile, widths, glyph_sets)
def test_the_rest_of_the_overview(found, holders, text, width, glyphs):
    events = tuple(replace(event, sentence=text) for event in some_events())
    driver = Driver(version=text, cuda_version=text, error=DriverError(code=text, message=text))
    host = replace(a_host(), name=text, container=text)
    snapshot = a_snapshot(
        gpus=tuple(found), processes=tuple(holders), events=events, driver=driver, host=host
    )
    state = TitleState(clock="14:02:11", demo=text, replay="1:00/2:00", paused=True, readonly=True)
    check([title_line(snapshot, state, width, glyphs)], width)
    check([host_line(host, width, glyphs, a_history(snapshot, 3))], width)
    check([alert_line(alerts(snapshot), width, glyphs)], width)
    check([event_strip(events, width, glyphs), event_header(width, glyphs)], width)
    check((row.line for row in event_rows(events, width, glyphs, 1.8e9)), width)
    check(driver_panel(driver.error, width, glyphs), width)
    check(ledger_lines(a_ledger(), holders, width, glyphs), width)
    check(topology_lines((), found, width, glyphs), width)
    assert snapshot_remarks(snapshot) is not None


@settings(max_examples=40, deadline=None)
@given(hostile, hostile, widths, glyph_sets)
def test_dialogs(name, text, width, glyphs):
    target = PlannedTarget(
        pid=1,
        start_ticks=1,
        user=name,
        command=text,
        vram_bytes=GIB,
        refusal_sentence=text,
        note=name,
    )
    plan = KillPlan(
        id="1",
        signal="KILL",
        grace_s=1.0,
        targets=(target, replace(target, refusal="gone")),
        loses=(text,),
        typed=name,
    )
    check(plan_lines(plan, width, glyphs), width)
    check(result_lines([KillResult(pid=1, outcome="failed", sentence=text)], width, glyphs), width)
    check(help_lines([(name, [(name, text)])], width, glyphs), width)


@given(st.text(), st.integers(0, 60))
def test_cells(text, width):
    clean = "".join(c for c in text if unicodedata.category(c)[0] not in "CZM")
    assert width_of(crop(clean, width)) <= width
    assert width_of(pad(clean, width)) == width
    assert line_width(fit_line(((clean, ""), (clean, "dim")), width)) <= width
    assert all(width_of(part) <= width for part in wrapped(clean, width))


def test_an_overview_of_eight_gpus_and_eight_processes_fits_24_lines():
    snapshot = a_snapshot(gpus=tuple(a_gpu(n) for n in range(8)))
    rows = gpu_lines(snapshot.gpus, History(), 80, 9, Glyphs.unicode())
    assert 2 + len(rows) + 1 + 1 + 8 + 1 + 1 <= 24
    assert len(rows) == 9
    assert process_rows(process_table(80, Glyphs.unicode()), [a_process(1)])
