"""Steps of a checkup: the CUDA driver library, and CUDA_VISIBLE_DEVICES. Pure."""

from __future__ import annotations

from cockpit.diagnose.devices import names, resolve
from cockpit.diagnose.verdict import (
    Done,
    Verdict,
    command,
    kernel_is_hidden,
    passed,
    seen,
    setting,
    silent,
    told,
    waits_for,
)
from cockpit.model.checkup_facts import CudaFacts, Facts
from cockpit.model.finding import Evidence, Fix
from cockpit.model.text import clean, plural

INIT = {
    2: ("cudaErrorMemoryAllocation: out of memory", None),
    3: ("not initialised", None),
    34: ("the library is the toolkit's stub, not the driver's", None),
    100: ("no device", None),
    304: ("an operating system call failed", None),
    802: ("the system is not ready: the NVSwitch fabric is not up", "fabric_manager"),
    803: ("library and kernel module differ", "nvml_mismatch"),
    804: ("the cuda-compat library is used on a GPU that does not support it", "compat_libcuda"),
    999: ("unknown error", "uvm_state"),
}
"""Answer of cuInit → what it means, and its cause. CUresult of the CUDA driver API."""


def libcuda(facts: Facts, done: Done) -> Verdict:
    """Does the CUDA driver library start, in a child with the job's environment?"""
    if blocked := waits_for(done, "pci", "kernel_module"):
        return blocked
    child, cuda = facts.children.get("driver"), facts.driver
    if child is None or cuda is None:
        return silent(facts.unread.get("driver", "The driver could not be tried."))
    if child.cut_off_s is not None:
        sentence = f"The CUDA driver did not answer within {child.cut_off_s:g} s"
        during = f" ({child.begun})" if child.begun else ""
        return Verdict("fail", f"{sentence}{during}: it was cut off.", told("stderr", child.words))
    if cuda.library is None and cuda.library_error is None:
        return Verdict(
            "fail",
            f"The driver could not be tried: {child.failure or 'no answer'}",
            told("stderr", child.words),
        )
    if cuda.library_error is not None:
        return _no_library(facts, cuda)
    return _init(facts, cuda)


def _no_library(facts: Facts, cuda: CudaFacts) -> Verdict:
    evidence = (seen("dlopen", clean(cuda.library_error or "")),)
    if kernel_is_hidden(facts):
        return Verdict("not_applicable", "There is no libcuda.so.1 here either.", evidence)
    return Verdict(
        "fail",
        "libcuda.so.1, the CUDA part of the driver, is not found in the job's environment.",
        evidence,
        "container_without_gpu",
        fixes=(
            command(
                "Look for it",
                "ldconfig -p | grep libcuda.so.1",
                "it comes with the driver; a container gets it through the capability `compute`",
            ),
        ),
    )


def _init(facts: Facts, cuda: CudaFacts) -> Verdict:
    where = clean(cuda.library or "libcuda.so.1")
    if cuda.init == 0:
        return passed(f"cuInit succeeds; {plural(len(cuda.devices), 'device')} ({where}).")
    if cuda.init == 100 and cuda.init_unmasked == 0:
        return passed(f"cuInit succeeds, but not with this CUDA_VISIBLE_DEVICES ({where}).")
    if cuda.init is None:
        child = facts.children["driver"]
        sentence = f"cuInit brought its process down: {child.failure or 'no answer'}"
        return Verdict("fail", sentence, told("stderr", child.words))
    meaning, cause = INIT.get(cuda.init, ("no known meaning", None))
    if cuda.init == 100:
        cause = "container_without_gpu"
    version = facts.snapshot.driver.version or (facts.kernel and facts.kernel.module_version)
    words = {
        "code": cuda.init,
        "driver_version": version,
        "driver_branch": version.partition(".")[0] if version else None,
        "module": facts.kernel.module_version if facts.kernel else None,
        "lib": facts.snapshot.driver.nvml_version,
    }
    evidence = [seen("cuInit", f"cuInit answers {cuda.init}: {meaning}"), seen("maps", where)]
    fixes: tuple[Fix, ...] = ()
    if cuda.init == 34:
        path = facts.job.variables.get("LD_LIBRARY_PATH", "")
        evidence.append(seen("environment", f"LD_LIBRARY_PATH={clean(path)}"))
        fixes = (
            setting(
                "Take the stubs out of the library path",
                "LD_LIBRARY_PATH without any folder that ends in /stubs",
                "the stub is for linking only",
            ),
        )
    return Verdict("fail", f"CUDA does not start: {meaning}.", tuple(evidence), cause, words, fixes)


def visible_devices(facts: Facts, _done: Done) -> Verdict:
    """CUDA_VISIBLE_DEVICES of the job, resolved to real GPUs."""
    gpus = facts.snapshot.gpus
    variable = facts.job.variables.get("CUDA_VISIBLE_DEVICES")
    if not gpus:
        value = "is not set" if variable is None else f"is '{clean(variable)}'"
        return silent(f"CUDA_VISIBLE_DEVICES {value}; there is no GPU to compare it with.")
    if variable is None:
        return passed(f"CUDA_VISIBLE_DEVICES is not set; visible: {plural(len(gpus), 'GPU')}.")
    shown = clean(variable)
    found = resolve(variable, gpus)
    evidence = [seen("environment", f"CUDA_VISIBLE_DEVICES='{shown}'")]
    evidence += [seen("nvml", f"GPU {one.index} is {one.uuid}") for one in gpus[:16]]
    if found.bad is not None and (found.gpus or not _hides(found.bad)):
        return _bad_entry(facts, tuple(evidence), found.bad, found.gpus)
    if not found.gpus:
        return Verdict(
            "fail",
            f"CUDA_VISIBLE_DEVICES='{shown}' leaves no GPU to the job.",
            tuple(evidence),
            "cvd_hides_gpus",
            {"cvd": shown},
        )
    if found.mig is not None and found.dropped:
        sentence = f"Only the first MIG instance is used; {len(found.dropped)} more are named."
        return Verdict(
            "warn", sentence, tuple(evidence), "mig_single_instance", {"gpu": found.gpus[0]}
        )
    return passed(f"CUDA_VISIBLE_DEVICES='{shown}' is {names(found.gpus)}.{_order(facts)}")


def _hides(entry: str) -> bool:
    """What schedulers and people write to hide all; an index that does not exist does it too."""
    return entry in ("", "NoDevFiles", "none", "void") or entry.lstrip("+-").isdigit()


def _bad_entry(
    facts: Facts, evidence: tuple[Evidence, ...], bad: str, left: tuple[int, ...]
) -> Verdict:
    shown = clean(bad)
    variable = clean(facts.job.variables["CUDA_VISIBLE_DEVICES"])
    words = {"bad_entry": shown, "cvd": variable}
    words["cvd_fixed"] = ",".join(str(index) for index in left) or "<index or UUID of a GPU>"
    kept = f"{names(left)} is left" if len(left) == 1 else f"{names(left)} are left"
    rest = f"the list ends before it, {kept}" if left else "no GPU is left"
    return Verdict(
        "warn" if left else "fail",
        f"CUDA_VISIBLE_DEVICES names no device with '{shown}': {rest}.",
        evidence,
        "cvd_hides_gpus" if _hides(bad) else "cvd_bad_uuid",
        words,
    )


def _order(facts: Facts) -> str:
    """CUDA counts the fastest first, NVML by bus id."""
    kinds = {gpu.name for gpu in facts.snapshot.gpus}
    if len(kinds) > 1 and facts.job.variables.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        return " Different GPUs: without CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA may count otherwise."
    return ""
