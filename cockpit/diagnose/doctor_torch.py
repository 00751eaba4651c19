"""Steps of a checkup: the interpreter, the build of torch, the driver under it, the job. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cockpit.diagnose.devices import names, resolve
from cockpit.diagnose.tables import cuda_compat
from cockpit.diagnose.verdict import (
    Done,
    Verdict,
    cause_in,
    command,
    passed,
    seen,
    silent,
    told,
    waits_for,
)
from cockpit.diagnose.wheels import fitting_build
from cockpit.model.checkup_facts import CudaDevice, Facts, TorchFacts
from cockpit.model.finding import Evidence, Fix
from cockpit.model.text import clean
from cockpit.model.wheel import runs

IDLE_CPU_S = 60.0
"""A process that computed as long as that and holds no GPU memory uses the CPU (rules.md 2-11)."""
_ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d)[a-z]?$")


def interpreter(facts: Facts, _done: Done) -> Verdict:
    """Does the job's interpreter start, and is torch there?"""
    job, child = facts.job, facts.children.get("interpreter")
    if job.python is None:
        why = sentence_of(job.why or "no interpreter was found")
        if job.outside or job.pid is not None:
            return silent(why)
        return Verdict("warn", why, fixes=(_name_it(),))
    shown = clean(job.python)
    if child is None or facts.interpreter is None or child.failure is not None:
        why = (child and child.failure) or facts.unread.get("interpreter", "It gave no answer.")
        return Verdict(
            "fail", f"{shown}: {clean(why)}", told("stderr", child.words if child else None)
        )
    if not facts.interpreter.has_torch:
        return Verdict(
            "fail",
            f"{shown} (Python {facts.interpreter.version}) has no torch.",
            (seen("sys.prefix", clean(facts.interpreter.prefix or "?")),),
            fixes=(_name_it(), *_install(facts)),
        )
    return passed(f"{shown}, Python {facts.interpreter.version}, has torch.")


def _name_it() -> Fix:
    return command(
        "Name the interpreter of the job",
        "cockpit doctor --python /path/to/venv/bin/python",
        "or give the running job: cockpit doctor --pid PID",
    )


def _install(facts: Facts) -> tuple[Fix, ...]:
    wheel = _index(facts)
    if wheel is None:
        return ()
    value = f"python -m pip install torch --index-url https://download.pytorch.org/whl/{wheel}"
    return (
        Fix(
            title="Install a build for this machine",
            kind="command",
            value=value,
            risk="confirm",
            why=f"{wheel} fits this machine's driver and GPUs",
            loses="nothing that is there",
            verify="run `cockpit doctor` again",
        ),
    )


def no_torch(facts: Facts, done: Done) -> Verdict | None:
    """Where the steps about torch have nothing to look at."""
    if blocked := waits_for(done, "interpreter"):
        return blocked
    if facts.torch is None:
        return silent(facts.unread.get("torch", "There is no torch to look at."))
    return None


def torch_build(facts: Facts, done: Done) -> Verdict:
    """Is it a build for CUDA, and can it be imported?"""
    if missing := no_torch(facts, done):
        return missing
    torch, child = facts.torch, facts.children["torch"]
    assert torch is not None
    if torch.version is None:
        cause = cause_in(torch.complaint)
        why = child.failure or "importing torch failed."
        return Verdict(
            "fail", sentence_of(why), told("torch", torch.complaint or child.words), cause
        )
    version = clean(torch.version)
    evidence = _origin(torch)
    if torch.hip is not None:
        sentence = f"torch {version} is a build for AMD GPUs (ROCm {clean(torch.hip)})."
        return Verdict("fail", sentence, evidence, fixes=_install(facts))
    if torch.cuda is None:
        words = _wheel_facts(facts, torch)
        return Verdict(
            "fail", f"torch {version} is a build without CUDA.", evidence, "cpu_wheel", words
        )
    seconds = f", imported in {torch.import_s:.1f} s" if torch.import_s is not None else ""
    return passed(f"torch {version}, built for CUDA {clean(torch.cuda)}{seconds}.", *evidence)


def _origin(torch: TorchFacts) -> tuple[Evidence, ...]:
    cuda = "None" if torch.cuda is None else clean(torch.cuda)
    words = [seen("torch", f"torch.__version__ {clean(torch.version or '?')}, version.cuda {cuda}")]
    if torch.installed_at:
        who = clean(torch.installer or "?")
        words.append(seen("metadata", f"installed by {who} at {clean(torch.installed_at)}"))
    return tuple(words)


def _wheel_facts(facts: Facts, torch: TorchFacts) -> dict[str, object]:
    """What the repair needs: the same versions, and the index that fits GPU, driver and release."""
    base = (torch.version or "").partition("+")[0]
    pairs = (("torchvision", torch.torchvision), ("torchaudio", torch.torchaudio))
    companions = " ".join(f"{n}=={clean(v).partition('+')[0]}" for n, v in pairs if v)
    return {
        "torch": torch.version,
        "torch_base": base,
        "companions": companions,
        "wheel": _index(facts, base),
        "driver_cuda": _driver_cuda(facts),
    }


def _index(facts: Facts, release: str | None = None) -> str | None:
    """The index that fits the job's GPUs and driver, with this release of torch if one has it.

    Without a GPU none can be said to fit.
    """
    if not facts.snapshot.gpus and not devices_of(facts):
        return None
    choice = fitting_build(_capabilities(facts), cuda=_driver_cuda(facts), release=release)
    return choice.index


def _driver_cuda(facts: Facts) -> str | None:
    """The newest CUDA of the driver: its own word in the job's environment before NVML's."""
    if facts.driver is not None and facts.driver.version:
        return cuda_compat.cuda_of_driver(facts.driver.version)
    return facts.snapshot.driver.cuda_version


def devices_of(facts: Facts) -> tuple[CudaDevice, ...]:
    """The job's devices; from NVML where CUDA could not be asked."""
    if facts.driver is not None and facts.driver.devices:
        return facts.driver.devices
    visible = resolve(facts.job.variables.get("CUDA_VISIBLE_DEVICES"), facts.snapshot.gpus)
    rows = {gpu.index: gpu for gpu in facts.snapshot.gpus}
    return tuple(
        CudaDevice(
            ordinal=place,
            name=rows[index].name,
            pci_bus_id=rows[index].pci_bus_id,
            capability=rows[index].compute_capability,
        )
        for place, index in enumerate(visible.gpus)
    )


def _capabilities(facts: Facts) -> list[str]:
    """Of the job's devices; of all GPUs where none is left to it."""
    found = [one.capability for one in devices_of(facts) if one.capability]
    return found or [g.compute_capability for g in facts.snapshot.gpus if g.compute_capability]


def driver_for_wheel(facts: Facts, done: Done) -> Verdict:
    """Is the driver new enough for the wheel's CUDA?"""
    if missing := no_torch(facts, done) or waits_for(done, "torch_build"):
        return missing
    torch, driver = facts.torch, _driver_cuda(facts)
    assert torch is not None
    if torch.cuda is None or driver is None:
        return silent("The driver's CUDA version is not known.")
    wheel = clean(torch.cuda)
    wants = int(wheel.partition(".")[0]) if wheel.partition(".")[0].isdigit() else 0
    has = int(driver.partition(".")[0])
    oldest = cuda_compat.MINIMUM_DRIVER.get(wants)
    if has < wants:
        need = f", which needs driver {oldest} or newer" if oldest else ""
        return Verdict(
            "fail",
            f"The driver serves CUDA up to {driver}; the wheel is built for {wheel}{need}.",
            (seen("cuDriverGetVersion", f"CUDA {driver}"),),
            "driver_too_old",
            _wheel_facts(facts, torch),
        )
    if cuda_compat.is_newer(wheel, driver):
        return passed(
            f"CUDA {wheel} runs on a driver of {driver} (same major version); code that is "
            "compiled while running needs the newer one."
        )
    return passed(f"The driver serves CUDA up to {driver}, the wheel is built for {wheel}.")


def architectures(facts: Facts, done: Done) -> Verdict:
    """Has the wheel code for each of the job's devices?"""
    if missing := no_torch(facts, done) or waits_for(done, "torch_build"):
        return missing
    torch = facts.torch
    assert torch is not None
    devices = [one for one in devices_of(facts) if one.capability]
    if not torch.architectures or not devices:
        return silent("There is no device, or no list of architectures, to compare.")
    listed = " ".join(clean(one) for one in torch.architectures)
    lacking = [one for one in devices if not has_code(torch.architectures, one.capability or "")]
    evidence = (seen("torch", f"architectures of the wheel: {listed}"),)
    if lacking:
        first = lacking[0]
        words = _wheel_facts(facts, torch)
        words |= {"device_sm": first.capability, "wheel_sms": listed}
        words["wheel"] = words["wheel"] or cuda_compat.wheel_for_capability(first.capability or "")
        return Verdict(
            "fail",
            f"The wheel has no code for {clean(first.name or 'the device')} "
            f"(compute capability {first.capability}).",
            evidence,
            "arch_missing",
            words,
        )
    kinds = ", ".join(sorted({one.capability or "" for one in devices}))
    return passed(f"The wheel has code for compute capability {kinds}.", *evidence)


def has_code(architectures: Sequence[str], device: str) -> bool:
    """Machine code of the same major version, or PTX of an older one, which is compiled here."""
    for one in architectures:
        match = _ARCHITECTURE.match(one)
        if match is None:
            continue
        code = f"{match[2]}.{match[3]}"
        if match[1] == "sm" and runs(code, device):
            return True
        if match[1] == "compute" and not cuda_compat.is_newer(code, device):
            return True
    return False


def job_on_gpu(facts: Facts, done: Done) -> Verdict:
    """Does the running job hold memory of a GPU at all?"""
    pid = facts.job.pid
    if pid is None:
        return silent("No running job was named (--pid).")
    held = next((one for one in facts.snapshot.processes if one.pid == pid and one.devices), None)
    if held is not None:
        return passed(f"pid {pid} is on {names([use.gpu for use in held.devices])}.")
    if facts.snapshot.driver.error is not None or not facts.snapshot.gpus:
        return silent("NVML lists no processes here.")
    if (facts.job.cpu_s or 0) < IDLE_CPU_S:
        return silent(f"pid {pid} holds no GPU memory; it has not computed for a minute yet.")
    if any(check.status == "fail" for check in done.values()):
        return silent(f"pid {pid} holds no GPU memory: see the step that failed.")
    evidence = (seen("proc", f"{facts.job.cpu_s:.0f} s of CPU time, and not in NVML's list"),)
    return Verdict(
        "warn", f"pid {pid} computes, but not on a GPU.", evidence, "code_uses_cpu", {"pid": pid}
    )


def nccl(facts: Facts, done: Done) -> Verdict:
    """The wheel's NCCL, and switches that somebody left in the environment."""
    if missing := no_torch(facts, done) or waits_for(done, "torch_build"):
        return missing
    torch, variables = facts.torch, facts.job.variables
    assert torch is not None
    if torch.nccl is None:
        return silent("This build brings no NCCL.")
    left = [
        f"{name}={clean(value)}"
        for name, value in sorted(variables.items())
        if (name in _SWITCHES and value.lower() not in ("", "0", "false"))
        or (name == "NCCL_SOCKET_IFNAME" and value == "lo")
    ]
    if left and len(devices_of(facts)) > 1:
        return Verdict(
            "warn",
            f"NCCL {clean(torch.nccl)} is slowed down by {', '.join(left)}.",
            tuple(seen("environment", one) for one in left),
        )
    return passed(f"NCCL {clean(torch.nccl)}.")


_SWITCHES = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE")


def sentence_of(text: str) -> str:
    """Foreign words as one harmless sentence."""
    words = clean(text.strip())
    return words[:1].upper() + words[1:] + ("" if words.endswith((".", "!", "?")) else ".")
