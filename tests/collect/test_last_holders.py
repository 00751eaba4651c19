"""Holders of a GPU that lists nobody any more stay rows for as long as they live."""

from __future__ import annotations

from real_processes import Processes, use

from cockpit.collect.last_holders import LastHolders
from cockpit.collect.ledger import build_ledger
from cockpit.collect.process_table import ProcessTable
from cockpit.collect.readings import GpuReadings, MemoryReading, ProcessUse
from cockpit.collect.turnover import ProcessReading
from cockpit.model.gpu import Driver, DriverError, Gpu
from cockpit.model.text import GIB

ELSEWHERE = 4194001
AWAY = Driver(error=DriverError(code="driver_not_loaded", message="Not loaded."))
LOST = Gpu(index=1, state="lost")


class Box:
    """The process side of a sampler."""

    def __init__(self) -> None:
        self.last, self.table, self.now = LastHolders(), ProcessTable(), 0.0

    def tick(
        self, *uses: ProcessUse, gpus: tuple[Gpu, ...], driver: Driver | None = None
    ) -> ProcessReading:
        self.now += 1.0
        readings = GpuReadings(driver=driver or Driver(), gpus=gpus, uses=uses)
        read = self.table.read(self.last.fill(readings), self.now, gpus=gpus)
        self.last.remember(readings, read.processes)
        return read


def test_holders_of_a_lost_gpu_stay_without_their_memory(processes: Processes) -> None:
    both, alone = processes.sleeper(), processes.sleeper()
    box, well = Box(), (Gpu(index=0), Gpu(index=1))
    on_0 = use(both, 10)
    box.tick(on_0, use(both, 20, gpu=1), use(alone, 30, gpu=1), gpus=well)
    read = box.tick(on_0, gpus=(well[0], LOST))
    rows = {row.pid: row for row in read.processes}
    assert set(rows) == {both, alone}
    assert read.ended == read.started == ()
    assert (rows[alone].vram_bytes, rows[alone].gaps["vram_bytes"]) == (None, "gpu_lost")
    assert [one.gpu for one in rows[alone].devices] == [1]
    assert rows[both].gaps["vram_bytes"] == "partial"
    processes.kill(alone)
    read = box.tick(on_0, gpus=(well[0], LOST))
    assert [row.pid for row in read.processes] == [both]
    assert [row.pid for row in read.ended] == [alone]
    read = box.tick(on_0, use(both, 20, gpu=1), gpus=well)
    assert (read.started, read.ended) == ((), ())
    assert "vram_bytes" not in read.processes[0].gaps


def test_a_process_of_another_namespace_cannot_be_seen_to_end() -> None:
    box = Box()
    box.tick(use(ELSEWHERE, gpu=1), gpus=(Gpu(index=1),))
    read = box.tick(gpus=(LOST,))
    assert [row.pid for row in read.processes] == [ELSEWHERE]
    assert read.ended == ()


def test_while_the_driver_is_away_its_error_is_the_reason(processes: Processes) -> None:
    pid = processes.sleeper()
    box = Box()
    assert not box.last.had_driver
    box.tick(use(pid), gpus=(Gpu(index=0),))
    assert box.last.had_driver
    for _ in range(2):
        read = box.tick(gpus=(Gpu(index=0, state="stale"),), driver=AWAY)
        assert [row.pid for row in read.processes] == [pid]
        assert read.processes[0].gaps["vram_bytes"] == "driver_not_loaded"
        assert read.ended == ()
    # opened again, not read yet
    read = box.tick(gpus=(Gpu(index=0, state="stale"),))
    assert read.processes[0].gaps["vram_bytes"] == "timeout"


def test_the_ledgers_of_the_others_still_add_up(processes: Processes) -> None:
    pid = processes.sleeper()
    last = LastHolders()
    memory = (MemoryReading(0, 10 * GIB, 6 * GIB, 0), MemoryReading(1, 10 * GIB, 10 * GIB, 0))
    gpus = (Gpu(index=0), Gpu(index=1))
    uses = (use(pid, 2048), use(pid, 0, gpu=1))
    last.remember(GpuReadings(driver=Driver(), gpus=gpus, uses=uses), ())
    after = GpuReadings(driver=Driver(), gpus=(gpus[0], LOST), uses=uses[:1], memory=memory[:1])
    (ledger,) = build_ledger(after.memory, after.gpus, last.fill(after), ())
    assert ledger.gpu == 0
    held = sum(share.bytes for share in ledger.processes)
    total = ledger.free_bytes + ledger.driver_reserved_bytes + held + ledger.unaccounted_bytes
    assert total == ledger.total_bytes
