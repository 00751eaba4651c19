"""GPU and process tables as text at three widths, and what their cells say."""

from __future__ import annotations

import pytest
from golden import assert_golden
from hand_made import (
    a_gpu,
    a_history,
    a_process,
    a_snapshot,
    an_idle_gpu,
    some_relatives,
)

from cockpit.model.gpu import Gpu, MigInstance
from cockpit.model.history import History
from cockpit.model.process import DeviceUse
from cockpit.model.text import GIB
from cockpit.model.time import moment
from cockpit.tui.line import LateRow, plain
from cockpit.tui.render.cells import line_width
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.gpu_rows import gpu_lines
from cockpit.tui.render.process_rows import (
    process_header,
    process_row,
    process_rows,
    process_table,
    tree_rows,
)
from cockpit.tui.render.remarks import snapshot_remarks
from cockpit.tui.sorting import Sort, identity, ordered

UTF8 = Glyphs.unicode()
NOW = moment(a_snapshot().taken_at)


def gpu_rows(gpus, width=80, height=9, glyphs=UTF8, history=None):
    return gpu_lines(gpus, history or History(), width, height, glyphs)


def text_of(gpu, **how):
    return plain(gpu_rows([gpu], **how)[1].line)


@pytest.mark.parametrize("width", [80, 120, 200])
def test_eight_gpus(width):
    snapshot = a_snapshot()
    rows = gpu_lines(snapshot.gpus, a_history(snapshot), width, 9, UTF8, snapshot_remarks(snapshot))
    assert_golden(f"gpus_{width}", [row.line for row in rows])
    assert [row.key for row in rows[1:]] == [("gpu", n) for n in range(8)]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_ten_processes(width):
    snapshot = a_snapshot()
    table = process_table(
        width, UTF8, moment(snapshot.taken_at), attached=[4711], processes=snapshot.processes
    )
    rows = process_rows(table, ordered(snapshot.processes, Sort()))
    lines = [process_header(table, Sort()), *(row.line for row in rows)]
    assert_golden(f"processes_{width}", lines)


def test_the_tree_and_an_ascii_terminal():
    snapshot = a_snapshot()
    table = process_table(80, Glyphs.ascii(), moment(snapshot.taken_at))
    rows = tree_rows(table, snapshot.processes, some_relatives())
    assert_golden("tree_ascii_80", [row.line for row in rows])
    assert all(plain(row.line).isascii() for row in rows)
    assert len({row.key for row in rows}) == len(rows)


def test_a_loop_of_parents_is_cut():
    loop = (a_process(1, ppid=2), a_process(2, ppid=1), a_process(3, ppid=3))
    rows = tree_rows(process_table(80, UTF8), loop, ())
    assert sorted(row.key[1] for row in rows) == [1, 2, 3]


def test_sixteen_gpus_stand_in_two_columns_when_the_height_is_short():
    gpus = [a_gpu(n) for n in range(16)]
    rows = gpu_rows(gpus, height=9)
    assert len(rows) == 9
    assert rows[1].key == ("gpu", 0, 8)
    assert all(line_width(row.line) <= 80 for row in rows)


def test_idle_gpus_share_a_line_when_even_two_columns_are_too_many():
    gpus = [a_gpu(n) if n in (3, 9) else an_idle_gpu(n) for n in range(16)]
    rows = gpu_rows(gpus, height=4)
    assert [row.key for row in rows[1:3]] == [("gpu", 3), ("gpu", 9)]
    assert "0-2,4-8,10-15" in plain(rows[3].line)
    assert "idle" in plain(rows[3].line)


def test_a_lost_gpu_shows_the_word_and_none_of_its_old_values():
    text = text_of(a_gpu(7, state="lost"))
    assert "lost" in text
    assert "98%" not in text
    assert "88.0" not in text
    assert "–" in text


def test_a_stale_gpu_is_dim_and_carries_its_age():
    line = gpu_rows([a_gpu(0, state="stale", age_s=12.4)])[1].line
    assert "! stale 12s" in plain(line)
    assert {role for text, role in line if "98%" in text} == {"dim"}


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({}, "cap"),
        ({"throttle_reasons": ()}, ""),
        ({"throttle_reasons": ("sw_thermal_slowdown",)}, "! heat"),
        ({"throttle_reasons": ("hw_slowdown", "hw_thermal_slowdown")}, "! heat"),
        ({"throttle_reasons": ("hw_slowdown", "hw_power_brake_slowdown")}, "! power brake"),
        ({"throttle_reasons": ("hw_slowdown",)}, "! hw slowdown"),
        ({"power_limit_w": 500.0}, "limit 500 W"),
        ({"ecc_uncorrected": 2}, "! ECC 2"),
        ({"remapped_rows_pending": True}, "! remap"),
        ({"remapped_rows_failed": True}, "! remap failed"),
        ({"pcie_width": 4}, "! PCIe x4"),
        ({"pcie_generation": 1}, "! PCIe gen1"),
        ({"unified_memory": True, "throttle_reasons": None}, "unified"),
        ({"memory_used_bytes": int(139.0 * GIB), "throttle_reasons": ()}, "full"),
    ],
)
def test_the_remark_says_in_words(changes, remark):
    text = text_of(a_gpu(0, **changes))
    assert f"  {remark}" in text if remark else text.endswith("88.0")


def test_a_narrow_link_of_an_idle_gpu_is_no_trouble():
    assert "PCIe" not in text_of(an_idle_gpu(0, pcie_width=4))


def test_mig_is_counted_and_its_utilisation_is_not_known():
    instance = MigInstance(
        index=0,
        uuid=None,
        gpu_instance=1,
        compute_instance=0,
        profile="3g.71gb",
        memory_total_bytes=GIB,
        memory_used_bytes=0,
    )
    gpu = a_gpu(0, mig_enabled=True, mig_instances=(instance,) * 3, utilization_pct=None)
    text = text_of(gpu)
    assert "MIG 3" in text
    assert "–" in text


def test_one_quiet_sample_between_two_steps_is_not_idle():
    snapshot = a_snapshot(gpus=(a_gpu(0),))
    history = a_history(snapshot)
    now = a_gpu(0, utilization_pct=0.0)
    assert "idle" not in text_of(now, history=history)
    assert "idle" in text_of(now)


def test_nothing_is_known_of_a_gpu_and_the_row_says_so():
    assert text_of(Gpu(index=0)).split() == ["0", "–", "–", "–", "–", "–", "–"]


def test_a_limit_of_a_thousand_watts_fits():
    assert "998/1000" in text_of(a_gpu(0, power_w=998.0, power_limit_w=1000.0))


def test_columns_that_no_gpu_knows_are_left_to_others():
    header = plain(gpu_rows([a_gpu(0, sm_active_pct=None, tensor_active_pct=None)], 160)[0].line)
    assert "SM%" not in header
    assert "FAN" not in header
    assert "MEM%" in header


def row_text(process, width=80, **how):
    return plain(process_row(process_table(width, UTF8, processes=[process], **how), process).line)


def test_a_hidden_process_gives_its_reason():
    hidden = a_process(5, command=(), visible=False, gaps={"pid": "hidepid"})
    assert row_text(hidden).endswith("hidden by hidepid")


def test_marks_of_tagged_attached_and_stray():
    process = a_process(5)
    assert row_text(process, attached=[5]).startswith(" a")
    assert row_text(process, tagged=[identity(process)]).startswith(" •")


def test_gpus_are_ranges_and_mig_instances_have_two_numbers():
    uses = [DeviceUse(gpu=n, vram_bytes=1, sm_pct=None) for n in (0, 1, 2, 3)]
    assert " 0-3 " in row_text(a_process(5, devices=tuple(uses)))
    mig = DeviceUse(gpu=1, vram_bytes=1, sm_pct=None, mig_instance=0)
    assert " 1:0 " in row_text(a_process(5, devices=(mig,)))


def test_the_rank_stands_before_the_arguments_that_may_be_cut_off():
    assert "train.py (rank 2) --" in row_text(a_process(5, rank=2, world_size=4))


def test_a_zombie_is_called_one():
    assert "zombie: [python]" in row_text(a_process(5, command=(), name="python", state="Z"))


def test_a_row_is_drawn_when_it_is_looked_at_and_once_only():
    drawn = []
    row = LateRow("key", lambda: drawn.append(1) or (("text", ""),))
    assert not drawn
    assert row.line == row.line == (("text", ""),)
    assert drawn == [1]
