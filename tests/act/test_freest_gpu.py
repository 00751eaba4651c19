"""Which GPU a run would be moved to, and by which name CUDA finds it there."""

from __future__ import annotations

from msgspec.structs import replace

from cockpit.act.freest_gpu import free_bytes, freest_gpu, visible_devices
from cockpit.model.gpu import Driver, Gpu
from cockpit.model.host import Host
from cockpit.model.process import DeviceUse, Process
from cockpit.model.snapshot import SamplerStatus, Snapshot

GIB = 1 << 30


def gpu(index: int, used: int, **more: object) -> Gpu:
    known = {"name": "H200", "uuid": f"GPU-{index}", "memory_total_bytes": 140 * GIB}
    return Gpu(**{**known, "index": index, "memory_used_bytes": used * GIB, **more})  # type: ignore[arg-type]


def snapshot(*gpus: Gpu, processes: tuple[Process, ...] = ()) -> Snapshot:
    return Snapshot(
        taken_at="2026-01-01T00:00:00.000Z",
        host=Host(name="h"),
        driver=Driver(),
        gpus=gpus,
        processes=processes,
        sampler=SamplerStatus(interval_s=1.0),
    )


def uses(index: int, kind: str = "compute") -> Process:
    use = DeviceUse(gpu=index, vram_bytes=GIB, sm_pct=None)
    return Process(pid=index + 10, kind=kind, devices=(use,))  # type: ignore[arg-type]


def test_the_one_with_most_free_memory_and_nobody_computing_is_taken() -> None:
    seen = snapshot(gpu(0, 100), gpu(1, 1), gpu(2, 10), gpu(3, 4), processes=(uses(1),))
    assert freest_gpu(seen).index == 3  # type: ignore[union-attr]
    assert freest_gpu(seen, except_gpus=(3,)).index == 2  # type: ignore[union-attr]


def test_a_desktop_is_no_reason_and_the_lower_index_wins_a_tie() -> None:
    seen = snapshot(gpu(0, 1), gpu(1, 1), processes=(uses(0, "graphics"),))
    assert freest_gpu(seen).index == 0  # type: ignore[union-attr]


def test_lost_stale_closed_and_divided_gpus_and_unknown_memory_are_not_offered() -> None:
    bad = (
        gpu(0, 0, state="lost"),
        gpu(1, 0, state="stale"),
        gpu(2, 0, compute_mode="prohibited"),
        gpu(3, 0, mig_enabled=True),
        replace(gpu(4, 0), memory_used_bytes=None),
        gpu(5, 0, unified_memory=True),
    )
    assert freest_gpu(snapshot(*bad)) is None
    assert free_bytes(bad[4]) is None
    assert freest_gpu(snapshot(*bad, gpu(6, 120))).index == 6  # type: ignore[union-attr]


def test_an_index_is_only_used_where_cuda_counts_as_nvml_does() -> None:
    alike, mixed = snapshot(gpu(0, 1), gpu(1, 1)), snapshot(gpu(0, 1), gpu(1, 1, name="T4"))
    one = alike.gpus[1]
    assert visible_devices(one, alike, {}) == "1"
    assert visible_devices(one, mixed, {}) == "GPU-1"
    assert visible_devices(one, mixed, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) == "1"
    assert visible_devices(replace(one, uuid=None), mixed, {}) == "1"
