"""Asserts, illegal accesses, library errors and Xids: the program's fault or the hardware's."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cockpit.diagnose.candidate import (
    ASSERT,
    EXCEPTION,
    HARDWARE,
    NOTICE,
    SPECIFIC,
    Candidate,
    Facts,
    Sign,
    candidates,
    compiled,
    search,
)
from cockpit.diagnose.log_reader import Log
from cockpit.diagnose.tables.xids import BY_CAUSE, HARMLESS

_ASSERT = re.compile(
    r"(?:\b\w{1,80}\.cuh?:\d{1,7}: (?P<kernel>[\w:<>,()&* ]{1,200}?)\s*:\s+block: \[[^\]]{1,40}\], "
    r"thread: \[[^\]]{1,40}\] )?"
    r"Assertion `(?P<text>[^\n]{1,300}?)` failed",
)
_LABELS = re.compile(r"nll_loss|NLLLoss|n_classes|cross_entropy|label|target", re.IGNORECASE)
_XID = re.compile(
    r"NVRM: Xid \(PCI:(?P<pci>[0-9a-fA-F:.]{5,20})(?: [^)\n]{1,80})?\): (?P<xid>\d{1,3})"
    r"(?:, pid=(?P<pid>'?<?[^,>\n]{1,40}>?'?))?(?:, name=(?P<name>[^,\n]{1,60}))?"
)
_STICKY = (
    r"CUDA error: (?:device-side assert triggered|an illegal memory access|misaligned address"
    r"|unspecified"
    r" launch failure)"
)
_BUS_LOSS = (
    r"fallen off the bus|GPU is lost|GPU_IS_LOST|Unable to determine the device handle for GPU ?"
    r"(?P<pci>[0-9a-fA-F:.]{5,20}\b).{0,20}?(?:lost|Unknown Error)"
)
_PCI = r"(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?)"


def _error_name(log: Log) -> Facts:
    found = search(log, r"Search for [`'](?P<error_name>cudaError\w+)'")
    return dict(found.groupdict()) if found else {}


def _where(log: Log) -> Facts:
    """Node and name of the first illegal access."""
    facts = _error_name(log)
    found = search(log, _STICKY)
    line = log.line_at(found.start()) if found else None
    if line is not None and line.node:
        facts["node"] = line.node
    return facts


def _mapped(log: Log) -> Facts:
    found = re.findall(
        r"(?<![\w/])(/\S{1,200}/)lib(?:cublas|cudnn|nvrtc|cusolver)\w*\.so[.\d]*", log.text
    )
    outside = [path for path in found if "site-packages" not in path]
    return {"foreign": outside[0].rstrip("/")} if outside else {}


def _holders(log: Log) -> Facts:
    names = {
        "nvidia-persiste": "nvidia-persistenced",
        "nv-hostengine": "nv-hostengine",
        "nv-fabricmanage": "nv-fabricmanager",
        "dcgm-exporter": "dcgm-exporter",
        "Xorg": "Xorg",
        "cockpit": "self",
    }
    rows = re.findall(r"\d{2,8} [F.][.\w]{3,4} (\S{1,40})", log.text)
    holders = list(dict.fromkeys(names.get(row, row) for row in rows))
    facts: Facts = {"holders": holders or ["unknown"]}
    if "self" in holders:
        facts["holds_self"] = True
    found = search(log, r"--gpu-reset -i (?P<gpu>\d+)")
    return facts | ({"gpu": int(found["gpu"])} if found else {})


SIGNS: tuple[Sign, ...] = (
    Sign(
        "illegal_access",
        r"illegal memory access was encountered|cudaErrorIllegalAddress|CUDA_ERROR_ILLEGAL_ADDRESS"
        r"|unspecified launch failure|cudaErrorLaunchFailure|an illegal instruction was encountered"
        r"|Warp Illegal Address|Invalid __global__ (?:read|write)",
        EXCEPTION + 3,
        0.85,
        facts=_where,
        also=(("index_out_of_range", "an index out of range in a kernel without a check"),),
        not_=("Not the hardware on the strength of this: a program's error is far more likely.",),
    ),
    Sign(
        "misaligned",
        r"misaligned address|cudaErrorMisalignedAddress|Misaligned (?:Shared|Local|Address)",
        EXCEPTION + 4,
        0.9,
        facts=_where,
    ),
    Sign(
        "index_out_of_range",
        r"IndexError: (?:index (?:out of range in self|-?\d+ is out of bounds for dim)"
        r"|index out of range in self)",
        EXCEPTION - 1,
        0.8,
        unless=(r"illegal memory access", r"\[Errno"),
        why="The CPU's check says it, so the Python line is the place.",
    ),
    Sign(
        "label_out_of_range",
        r"IndexError: Target -?\d+ is out of bounds",
        EXCEPTION,
        0.95,
    ),
    Sign(
        "foreign_libcublas",
        r"CUBLAS_STATUS_\w+|CUDNN_STATUS_\w+|undefined symbol: cublas\w+"
        r"|libcublas\w*\.so\S{0,20}: symbol"
        r"|version .{0,12}cublas.{0,20} not (?:defined|found)",
        SPECIFIC,
        0.9,
        needs=(
            r"(?:LD_LIBRARY_PATH.{0,300}?/cuda|/usr/local/cuda\S{0,60}/lib(?:cublas|cudnn)|symbol "
            r".{0,80}"
            r"version libcublas)",
        ),
        unless=(r"Assertion `.{1,300}?` failed",),
        facts=_mapped,
    ),
    Sign(
        "foreign_libcublas",
        r"libtorch\w{0,20}\.so[^\n]{0,80}undefined symbol: _{0,2}"
        r"(?:nccl|cublas|cudnn|cusparse|cusolver|nvJitLink)\w+",
        SPECIFIC,
        0.85,
        facts=_mapped,
        why="torch needs a newer copy of the library than the one that was found first.",
    ),
    Sign(
        "library_shape_or_async",
        r"CUDNN_STATUS_(?:MAPPING_ERROR|BAD_PARAM|NOT_SUPPORTED|EXECUTION_FAILED|INTERNAL_ERROR)"
        r"|CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|INVALID_VALUE|NOT_SUPPORTED"
        r"|MAPPING_ERROR)"
        r"|CUFFT_\w{4,30}|CUSOLVER_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR)"
        r"|input tensor has to be less than 2\^31|canUse32BitIndexMath",
        EXCEPTION,
        0.7,
        unless=(r"Assertion `.{1,300}?` failed", r"illegal memory access"),
        also=(("illegal_access", "an earlier asynchronous fault may have surfaced here"),),
    ),
    Sign(
        "ecc_dbe",
        r"uncorrectable ECC error|cudaErrorECCUncorrectable",
        HARDWARE - 5,
        0.8,
        unless=(r"Xid \(PCI",),
        also=(("ecc_contained", "the kernel log says whether it was contained"),),
    ),
    Sign(
        "reset_blocked",
        r"is currently in use by one or more other processes and cannot be reset|could not be "
        r"reset: ?"
        r"|In use by another client",
        SPECIFIC,
        0.95,
        facts=_holders,
    ),
    Sign(
        "device_state_bad",
        r"(?:fresh|new|trivial|smoke) .{0,60}?(?:process|smoke test|matmul)\b.{0,120}?(?:fails?"
        r"|FAILED|error)",
        EXCEPTION + 6,
        0.75,
        needs=(r"CUDA error|cudaError|CUBLAS_STATUS|launch failure",),
        unless=(r"torch\.AcceleratorError: CUDA error: MPS",),
    ),
    Sign(
        "device_state_bad",
        r"[$#>] [^\n]{0,80}python\S{0,4} -c [^\n]{0,200}cuda[^\n]{0,200}\n[^\n]{0,60}(?:launch "
        r"failure"
        r"|CUDA error: (?:an illegal memory|unknown|misaligned|uncorrectable)|CUBLAS_STATUS)",
        EXCEPTION + 6,
        0.8,
        unless=(r"Assertion `.{1,300}?` failed", r"request_free_mem_region"),
    ),
    Sign(
        "nvlink_fault",
        r"\bSXid \(PCI|NVLink: .{0,60}?(?:fatal|error)|NVLink fatal error",
        HARDWARE - 6,
        0.8,
    ),
)


def find(log: Log) -> Iterator[Candidate]:
    """Candidates of this family."""
    yield from candidates(log, SIGNS)
    yield from _asserts(log)
    yield from _sticky(log)
    yield from _xids(log)
    yield from _off_bus(log)


def _asserts(log: Log) -> Iterator[Candidate]:
    for match in _ASSERT.finditer(log.text):
        text, kernel = match["text"], (match["kernel"] or "").strip()
        context = f"{kernel} {text}"
        if not kernel and not search(log, r"device-side assert|CUDA error|CUBLAS|CUDNN"):
            continue  # a C assert of any program
        label = _LABELS.search(context) is not None
        facts: Facts = {
            "kernel": kernel.split("<")[0].split("::")[-1].split(" ")[-1],
            "assertion": text,
        }
        if not kernel:
            facts.pop("kernel")
        index = log.index_at(match.start())
        if log.lines[index].rank is not None:
            facts["rank"] = log.lines[index].rank
        if re.search(r"input_val >= zero|probability tensor|cumdist|val >= 0|!\(.*nan", text):
            why = "The kernel got values outside of 0 to 1, or NaN: look at what produces them."
        else:
            why = (
                f"The kernel's assert `{text}` failed; all CUDA errors after it are echoes. The "
                "Python line of the traceback is only where it was noticed."
            )
        cause = "label_out_of_range" if label else "index_out_of_range"
        yield Candidate(cause, ASSERT, index, 0.95, facts, why=why)
        return


def _sticky(log: Log) -> Iterator[Candidate]:
    """The same error again and again from calls that have nothing to do with each other."""
    places = [log.index_at(match.start()) for match in compiled(_STICKY).finditer(log.text)]
    if not places:
        return
    first = places[0]
    facts = _where(log)
    cell = [
        found[0]
        for line in log.lines[: first + 1]
        if (found := re.search(r"\bIn \[\d{1,5}\]", line.text))
    ]
    if cell:
        facts["first_failure"] = cell[-1]
    several = len({log.lines[place].rank for place in places}) < len(places)
    prompts = sum(1 for line in log.lines[first:] if re.search(r"\bIn \[\d{1,5}\]:", line.text))
    assertion = "device-side assert" in log.lines[first].text
    if (several and prompts >= 1) or assertion:
        weight = EXCEPTION + (5 if several and prompts else 1)
        also = (("index_out_of_range", "the assert's own line is missing from this log"),)
        why = f"The first of {len(places)} equal errors is in line {log.lines[first].number}."
        yield Candidate(
            "sticky_context", weight, first, 0.85, facts, also, lines=tuple(places[1:3]), why=why
        )


def _xids(log: Log) -> Iterator[Candidate]:
    found = list(_XID.finditer(log.text))[:200]
    if not found:
        return
    codes = list(dict.fromkeys(int(one["xid"]) for one in found))
    judged = _judge(log, codes)
    if judged is None:
        return
    cause, weight, confidence = judged
    decisive = next((one for one in found if int(one["xid"]) in BY_CAUSE.get(cause, ())), found[0])
    index = log.index_at(decisive.start())
    facts: Facts = {"xids": codes, "pci": decisive["pci"]}
    pid = (decisive["pid"] or "").strip("'")
    if pid.isdigit():
        facts["pid"] = int(pid)
    number = search(
        log, r"(?:waiting for RPC response from |nvidia-smi (?:-q )?-i )(?:GPU)?(?P<gpu>\d+)"
    )
    if number:
        facts["gpu"] = int(number["gpu"])
    if cause == "benign":
        facts["severity"] = "warn" if 92 in codes or 63 in codes else "info"
    yield Candidate(
        cause,
        weight,
        index,
        confidence,
        facts,
        why=f"The kernel log has Xid {', '.join(map(str, codes))} for {decisive['pci']}.",
    )


_WEIGHTS: dict[str, tuple[int, float]] = {
    "gpu_off_bus": (HARDWARE + 3, 0.95),
    "remap_failure": (HARDWARE + 2, 0.95),
    "gsp_timeout": (HARDWARE + 1, 0.95),
    "ecc_dbe": (HARDWARE, 0.9),
    "nvlink_fault": (HARDWARE, 0.9),
    "ecc_contained": (HARDWARE - 2, 0.75),
    "device_state_bad": (HARDWARE - 2, 0.8),
    "illegal_access": (EXCEPTION + 2, 0.85),
}
"""Cause → weight and confidence, where its code is all that is known."""


def _judge(log: Log, codes: list[int]) -> tuple[str, int, float] | None:
    """From the worst code to the least; None: none of them has a cause."""
    have = set(codes)
    if 79 in have:
        return "gpu_off_bus", *_WEIGHTS["gpu_off_bus"]
    if search(log, r"Remapping Failure Occurred ?: ?Yes|All reserved rows for bank"):
        return "remap_failure", *_WEIGHTS["remap_failure"]
    if 94 in have and not have & {64, 95, 119, 120}:
        return "ecc_contained", HARDWARE, 0.95
    for cause, of_cause in BY_CAUSE.items():
        if have & set(of_cause):
            if cause == "illegal_access" and search(log, r"Misaligned"):
                return "misaligned", SPECIFIC - 2, 0.85
            return cause, *_WEIGHTS[cause]
    return ("benign", NOTICE + 2, 0.85) if have <= HARMLESS else None


def unexplained(log: Log) -> int | None:
    """Index of the first line with an Xid that is more than a notice."""
    for found in _XID.finditer(log.text):
        if int(found["xid"]) not in HARMLESS:
            return log.index_at(found.start())
    return None


def xid_in(text: str) -> int | None:
    """The code of a kernel log's line."""
    found = _XID.search(text)
    return int(found["xid"]) if found else None


def _off_bus(log: Log) -> Iterator[Candidate]:
    match = search(log, _BUS_LOSS)
    if match is None:
        return
    facts: Facts = {}
    around = log.text[max(0, match.start() - 300) : match.end() + 200]
    buses = re.findall(_PCI, around[:300] + around[300:])
    named = match["pci"] or (buses and buses[0])
    if named:
        facts["pci"] = named
    xids = [int(one["xid"]) for one in _XID.finditer(log.text)]
    if xids:
        facts["xids"] = list(dict.fromkeys(xids))
    yield Candidate("gpu_off_bus", HARDWARE + 4, log.index_at(match.start()), 0.95, facts)
