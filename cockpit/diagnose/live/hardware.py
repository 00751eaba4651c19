"""A GPU or its driver that is not well: lost, ECC, row remapping, Xid, driver mismatch, devices."""

from __future__ import annotations

from collections.abc import Iterator

from cockpit.diagnose.live.claim import Claim, said
from cockpit.diagnose.live.view import View
from cockpit.diagnose.tables.xids import CAUSE_OF_XID
from cockpit.model import xid as xids
from cockpit.model.event import Event, Severity
from cockpit.model.finding import Evidence
from cockpit.model.gpu import Gpu
from cockpit.model.text import clean
from cockpit.model.time import moment

XID_FOR_S = 600.0
SOFTWARE_XID_FOR_S = 120.0
TITLE_ROOM = 36
_NOT_THE_PROGRAM = "not the program: other programs on this GPU meet it as well"


def find(view: View) -> Iterator[Claim]:
    """Claims of this family."""
    yield from _driver(view)
    told = _newest_xids(view)
    for gpu in view.snapshot.gpus:
        if gpu.state == "lost":
            yield _lost(gpu, told.get(gpu.index))
        elif gpu.state == "ok":
            yield from _memory_errors(gpu)
    lost = {gpu.index for gpu in view.snapshot.gpus if gpu.state == "lost"}
    for index, event in told.items():
        if index not in lost and event.xid in CAUSE_OF_XID:
            yield _xid(index, event)


def _lost(gpu: Gpu, event: Event | None) -> Claim:
    number = f" (Xid {event.xid})" if event is not None else ""
    words = (clean(event.sentence),) if event is not None else ()
    answer = gpu.gaps.get("utilization_pct", "gpu_lost")
    code = "GPU_IS_LOST" if answer == "gpu_lost" else f"`{clean(answer)}` again and again"
    return Claim(
        cause="gpu_off_bus",
        title=f"GPU {gpu.index} is lost{number}",
        says=(said(f"NVML answers {code} for it."), *(said(w, "events") for w in words)),
        confidence=0.98,
        gpu=gpu.index,
        facts={
            "pci": gpu.pci_bus_id,
            "xid": event.xid if event is not None else None,
        },
        hold_s=0.0,
        at_once=True,
    )


def _memory_errors(gpu: Gpu) -> Iterator[Claim]:
    if gpu.remapped_rows_failed:
        yield _broken(gpu, "remap_failure", "memory cannot be repaired", "Row remapping failed.")
    elif gpu.ecc_uncorrected:
        count = gpu.ecc_uncorrected
        words = f"{count} uncorrectable ECC error{'s' * (count > 1)} since the driver was loaded."
        yield _broken(gpu, "ecc_dbe", f"{count} uncorrected ECC", words)
    if gpu.remapped_rows_pending and not gpu.remapped_rows_failed:
        words = "A row of its memory waits to be remapped; that happens at the next reset."
        yield _broken(gpu, "ecc_contained", "a memory row waits for a reset", words, "warning")


def _broken(gpu: Gpu, cause: str, title: str, words: str, severity: Severity = "error") -> Claim:
    return Claim(
        cause=cause,
        title=f"GPU {gpu.index}: {title}",
        says=(said(words),),
        confidence=0.95,
        gpu=gpu.index,
        severity=severity,
        facts={"pci": gpu.pci_bus_id, "ecc_uncorrected": gpu.ecc_uncorrected},
        not_=(_NOT_THE_PROGRAM,),
        hold_s=0.0,
        at_once=True,
    )


def _newest_xids(view: View) -> dict[int, Event]:
    found: dict[int, Event] = {}
    for event in view.snapshot.events:
        if event.xid is None or event.gpu is None:
            continue
        at_s = moment(event.at)
        # What a program did to itself is over with it; the next training is not to be blamed.
        for_s = SOFTWARE_XID_FOR_S if xids.explain(event.xid).origin == "program" else XID_FOR_S
        if at_s is not None and 0.0 <= view.now_s - at_s + 5.0 <= for_s + 5.0:
            before = found.get(event.gpu)
            if before is None or event.xid in CAUSE_OF_XID or before.xid not in CAUSE_OF_XID:
                found[event.gpu] = event
    return found


def _xid(index: int, event: Event) -> Claim:
    assert event.xid is not None
    known = xids.explain(event.xid)
    words, hint = known.meaning, known.hint
    return Claim(
        cause=CAUSE_OF_XID[event.xid],
        title=f"GPU {index}: Xid {event.xid}" + (f", {words}" if len(words) <= TITLE_ROOM else ""),
        says=(said(clean(event.sentence), "events"), said(f"Xid {event.xid}: {words}; {hint}.")),
        confidence=0.85,
        gpu=index,
        severity="warning" if known.severity == "info" else known.severity,
        facts={"xid": event.xid},
        not_=(_NOT_THE_PROGRAM,) if known.origin == "hardware" else (),
        hold_s=0.0,
        at_once=True,
    )


# -- the driver itself


def _driver(view: View) -> Iterator[Claim]:
    error = view.snapshot.driver.error
    if error is None:
        return
    contained = view.snapshot.host.container
    causes = {
        "lib_rm_version_mismatch": ("nvml_mismatch", "Driver and its libraries differ", 0.97),
        "no_permission": ("dev_permissions", "No permission for the GPU's device files", 0.85),
    }
    if contained is not None:
        had = bool(view.snapshot.gpus)
        lost = ("cgroup_devices_lost", "This container lost its GPUs", 0.85 if had else 0.7)
        none = ("container_without_gpu", "This container was given no GPU", 0.8)
        causes |= {"unknown": lost, "no_devices": none, "library_not_found": none}
    if error.code not in causes:
        return
    cause, title, confidence = causes[error.code]
    where = f"NVML in this {contained} container" if contained is not None else "NVML"
    yield Claim(
        cause=cause,
        title=title,
        says=(said(f"{where} answers: {clean(error.message)}"), *_versions(view)),
        confidence=confidence,
        severity="error",
        facts={"driver_version": view.snapshot.driver.version, "code": error.code},
        hold_s=2.0,
        at_once=True,
    )


def _versions(view: View) -> Iterator[Evidence]:
    driver = view.snapshot.driver
    if driver.version and driver.nvml_version:
        yield said(f"The driver is {driver.version}, its library {driver.nvml_version}.")
