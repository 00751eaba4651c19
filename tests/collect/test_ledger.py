"""The ledger adds up to the byte, and says why memory has no name on it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cockpit.collect.holders import Holders
from cockpit.collect.ledger import baseline, build_ledger
from cockpit.collect.readings import MemoryReading, ProcessUse
from cockpit.model.gpu import Gpu
from cockpit.model.ledger import Ledger
from cockpit.model.process import Process
from cockpit.model.text import GIB, MIB

TOTAL = 140 * GIB
SEEN = Holders(looked_at=120, denied=7)


def use(pid: int, held: int | None, *, gpu: int = 0, **options: object) -> ProcessUse:
    return ProcessUse(pid, gpu, "compute", held, None, **options)  # type: ignore[arg-type]


def memory(
    used: int, *, gpu: int = 0, reserved: int | None = 0, moved: bool = False
) -> MemoryReading:
    return MemoryReading(gpu, TOTAL, TOTAL - used - (reserved or 0), reserved, moved)


def one(
    reading: MemoryReading, *uses: ProcessUse, gpu: Gpu | None = None, **options: object
) -> Ledger:
    (ledger,) = build_ledger([reading], [gpu or Gpu(index=0)], uses, **{"processes": (), **options})  # type: ignore[arg-type]
    return ledger


def kinds(ledger: Ledger) -> list[str]:
    return [explanation.kind for explanation in ledger.explanations]


sizes = st.one_of(st.none(), st.integers(0, 1 << 45))
readings = st.builds(
    MemoryReading,
    gpu=st.integers(0, 2),
    total_bytes=sizes,
    free_bytes=sizes,
    reserved_bytes=sizes,
    moved=st.booleans(),
)
some_uses = st.builds(
    ProcessUse,
    pid=st.integers(1, 6),
    gpu=st.integers(0, 3),
    kind=st.sampled_from(["compute", "graphics", "both", "mps"]),
    vram_bytes=sizes,
    sm_pct=st.none(),
    mig_instance=st.one_of(st.none(), st.integers(0, 3)),
    gap=st.one_of(st.none(), st.just("wsl")),
)
some_gpus = st.lists(
    st.builds(
        Gpu,
        index=st.integers(0, 3),
        unified_memory=st.booleans(),
        memory_total_bytes=sizes,
        memory_used_bytes=sizes,
        mig_enabled=st.one_of(st.none(), st.booleans()),
    ),
    max_size=4,
)
some_holders = st.one_of(
    st.none(),
    st.just(SEEN),
    st.just(Holders({3: ("/dev/nvidia0",), 9: ("/dev/nvidia1",)}, {9: "x\x1b"}, 2)),
)


@given(
    st.lists(readings, max_size=4),
    some_gpus,
    st.lists(some_uses, max_size=12),
    some_holders,
    st.booleans(),
)
def test_it_adds_up_to_the_byte_whatever_was_read(
    memory: list[MemoryReading],
    gpus: list[Gpu],
    uses: list[ProcessUse],
    holders: Holders | None,
    contained: bool,
) -> None:
    ledgers = build_ledger(memory, gpus, uses, (), holders, contained=contained)
    readable = [m for m in memory if m.total_bytes is not None and m.free_bytes is not None]
    assert len(ledgers) >= len(readable)
    for ledger in ledgers:
        named = sum(share.bytes for share in ledger.processes)
        rest = ledger.unaccounted_bytes
        assert ledger.total_bytes == ledger.free_bytes + ledger.driver_reserved_bytes + named + rest
        assert {share.pid for share in ledger.processes} == {
            u.pid for u in uses if u.gpu == ledger.gpu
        }
        most = baseline(MemoryReading(0, 0, 0, None), len(ledger.processes))
        assert ledger.explanations or 0 <= rest <= most
        assert all("\x1b" not in explanation.sentence for explanation in ledger.explanations)


def test_a_real_h200_needs_no_explanation() -> None:
    # Two processes under load; "used" of memory v1 holds the driver's reserve.
    reading = MemoryReading(0, 150754820096, 129070858240, None)
    ledger = one(reading, use(438, 5911871488), use(437, 15112077312))
    assert ledger.unaccounted_bytes == 660013056
    assert ledger.explanations == ()
    assert ledger.gaps == {"driver_reserved_bytes": "driver_too_old"}
    assert [share.pid for share in ledger.processes] == [437, 438]


def test_memory_that_cannot_be_read_gives_no_ledger() -> None:
    assert build_ledger([MemoryReading(0, None, None, None)], [Gpu(index=0)], [], ()) == ()


def test_mig_instances_of_a_process_are_one_share() -> None:
    ledger = one(memory(GIB), use(5, 400 * MIB, mig_instance=0), use(5, 600 * MIB, mig_instance=1))
    assert [(share.pid, share.bytes) for share in ledger.processes] == [(5, 1000 * MIB)]


def test_an_unknown_share_counts_nothing_and_is_named() -> None:
    ledger = one(memory(9 * GIB), use(5, None, gap="no_permission"), holders=SEEN)
    assert ledger.gaps == {"processes": "no_permission"}
    assert kinds(ledger) == ["not_listed"]
    assert ledger.explanations[0].pids == (5,)


def test_processes_with_the_device_file_open_are_named() -> None:
    holders = Holders(
        {71: ("/dev/nvidia4", "/dev/nvidiactl"), 72: ("/dev/nvidia1",), 73: ("/dev/nvidia4",)},
        {71: "python", 72: "python", 73: "nvidia-persistenced"[:15]},
        80,
    )
    gpu = Gpu(index=0, pci_bus_id="0000:1B:00.0")
    ledger = one(memory(9 * GIB), gpu=gpu, holders=holders, minors={"0000:1b:00.0": 4})
    assert kinds(ledger) == ["device_holders"]
    assert ledger.explanations[0].pids == (71,)
    assert "python (pid 71) has /dev/nvidia4 open" in ledger.explanations[0].sentence


def test_a_listed_holder_explains_nothing() -> None:
    holders = Holders({5: ("/dev/nvidia0",)}, {5: "python"}, 80)
    assert kinds(one(memory(9 * GIB), use(5, GIB), holders=holders)) == ["none_found"]


def test_a_container_hides_the_holder() -> None:
    by_namespace = one(memory(55 * GIB), holders=SEEN, contained=True)
    hidden = Process(pid=4194001, visible=False, gaps={"pid": "other_namespace"})
    by_neighbour = one(memory(55 * GIB), use(4194001, GIB, gpu=1), holders=SEEN, processes=[hidden])
    for ledger in (by_namespace, by_neighbour):
        assert kinds(ledger) == ["other_namespace"]
        assert "55.0 GiB are held by nobody visible here" in ledger.explanations[0].sentence
        assert "--pid=host" in ledger.explanations[0].sentence
    assert by_neighbour.explanations[0].pids == (4194001,)


def test_nobody_found_says_what_was_tried_and_what_is_next() -> None:
    (explanation,) = one(memory(66 * GIB), holders=SEEN).explanations
    assert explanation.kind == "none_found"
    for words in ("120 seen, 7 of other users not readable", "fuser -v", "--gpu-reset -i 0"):
        assert words in explanation.sentence
    (explanation,) = one(memory(66 * GIB)).explanations
    assert "not been looked at yet" in explanation.sentence


def test_a_negative_rest_is_shown_as_it_is() -> None:
    ledger = one(memory(GIB), use(5, 3 * GIB))
    assert ledger.unaccounted_bytes == -2 * GIB
    assert kinds(ledger) == ["readings_raced"]


def test_memory_that_moved_is_a_reason_too() -> None:
    assert kinds(one(memory(9 * GIB, moved=True), holders=SEEN)) == ["readings_raced"]


def test_mps_and_mig_are_named() -> None:
    mps = ProcessUse(5, 0, "mps", GIB, None)
    assert kinds(one(memory(9 * GIB), mps, holders=SEEN)) == ["mps"]
    assert kinds(one(memory(9 * GIB), gpu=Gpu(index=0, mig_enabled=True), holders=SEEN)) == ["mig"]


def test_unified_memory_is_the_hosts() -> None:
    gpu = Gpu(
        index=0, unified_memory=True, memory_total_bytes=128 * GIB, memory_used_bytes=20 * GIB
    )
    ledger = one(MemoryReading(0, None, None, None), use(5, 9 * GIB), gpu=gpu)
    assert (ledger.total_bytes, ledger.unaccounted_bytes) == (128 * GIB, 11 * GIB)
    assert kinds(ledger) == ["unified_memory"]
    words = ledger.explanations[0].sentence
    assert "hold 9.0 GiB as GPU memory, the whole machine uses 20.0 GiB" in words
    assert "share the host's" in words


def test_unified_memory_is_explained_also_when_the_sums_agree_or_cross() -> None:
    for held in (20, 24):
        gpu = Gpu(
            index=0, unified_memory=True, memory_total_bytes=64 * GIB, memory_used_bytes=20 * GIB
        )
        ledger = one(MemoryReading(0, None, None, None), use(5, held * GIB), gpu=gpu)
        assert kinds(ledger) == ["unified_memory"]
        assert ledger.unaccounted_bytes == (20 - held) * GIB
