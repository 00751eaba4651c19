"""The last step of a checkup: the small success on each idle GPU, against the CPU. Pure."""

from __future__ import annotations

from cockpit.diagnose.devices import gpu_of, in_use, names
from cockpit.diagnose.doctor_torch import devices_of, no_torch, sentence_of
from cockpit.diagnose.verdict import Done, Verdict, cause_in, passed, seen, told, waits_for
from cockpit.model.checkup_facts import Facts, SmallRun
from cockpit.model.finding import Evidence
from cockpit.model.text import clean

MATMUL_TOLERANCE = 5e-3
"""Relative to the largest element. TF32 (10 bits of mantissa) differs by 3e-4, fp32 by 1e-6."""
LOSS_TOLERANCE = 2e-2
"""Of three steps of a small model; with TF32 2e-3."""


def small_success(facts: Facts, done: Done) -> Verdict:
    """A matmul and a little training on each idle GPU, against the CPU."""
    needs = ("interpreter", "torch_build", "libcuda", "visible_devices", "driver_for_wheel")
    if missing := waits_for(done, *needs, "architectures") or no_torch(facts, done):
        return missing
    torch = facts.torch
    assert torch is not None
    runs = {facts.tried[run.ordinal]: run for run in torch.small if run.ordinal < len(facts.tried)}
    wrong = {ordinal: why for ordinal, run in runs.items() if (why := what_is_wrong(run))}
    if wrong:
        return _failed(facts, runs, wrong)
    missing_runs = [ordinal for ordinal in facts.tried if ordinal not in runs]
    child = facts.children["torch"]
    if missing_runs:
        sentence = child.failure or "No result came back."
        return Verdict("fail", sentence_of(sentence), told("stderr", child.words))
    busy = tuple(seen("nvml", why) for why in _busy(facts))
    if not facts.tried:
        return _nothing_to_try(facts, busy)
    where = names([_index(facts, ordinal) for ordinal in facts.tried])
    return passed(
        f"Matmul and training steps on {where} agree with the CPU ({_time(runs)}).",
        *(seen("torch", _figures(facts, ordinal, run)) for ordinal, run in runs.items()),
        *busy,
    )


def _failed(facts: Facts, runs: dict[int, SmallRun], wrong: dict[int, str]) -> Verdict:
    ordinal, why = next(iter(wrong.items()))
    error = runs[ordinal].error
    evidence = told("torch", error) if error else ()
    figures = [seen("torch", _figures(facts, one, runs[one])) for one in wrong if not error]
    index = _index(facts, ordinal)
    cause = cause_in(error) if error else "device_state_bad"
    where = names([_index(facts, one) for one in wrong])
    return Verdict(
        "fail", f"{where}: {why}", (*evidence, *figures), cause, {"gpu": index, "device": index}
    )


def _nothing_to_try(facts: Facts, busy: tuple[Evidence, ...]) -> Verdict:
    torch = facts.torch
    if torch is not None and torch.available is False:
        evidence = told("torch", torch.complaint)
        cause = cause_in(torch.complaint)
        return Verdict("fail", "torch finds no CUDA device.", evidence, cause)
    reasons = "; ".join(one.text for one in busy) or "no device is visible to the job"
    return Verdict("not_applicable", f"Nothing was computed: {reasons}.", busy)


def what_is_wrong(run: SmallRun) -> str | None:
    """One sentence; None: it agrees with the CPU. A number that is None was not finite."""
    if run.error is not None:
        last = [line for line in run.error.splitlines() if line.strip()]
        return clean(last[-1])[:200] if last else "an exception without words"
    if run.matmul_difference is None or run.matmul_difference > MATMUL_TOLERANCE:
        return f"a matmul differs from the CPU's by {_number(run.matmul_difference)}."
    if run.gradient_difference is None or run.gradient_difference > LOSS_TOLERANCE:
        return f"a gradient differs from the CPU's by {_number(run.gradient_difference)}."
    if not run.losses or len(run.losses) != len(run.losses_cpu):
        return "the training steps gave no losses."
    for here, there in zip(run.losses, run.losses_cpu, strict=True):
        if here is None or there is None or abs(here - there) > LOSS_TOLERANCE:
            return f"a loss is {_number(here)}, on the CPU {_number(there)}."
    return None


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3g}"


def _figures(facts: Facts, ordinal: int, run: SmallRun) -> str:
    losses = " ".join(_number(one) for one in run.losses)
    return (
        f"GPU {_index(facts, ordinal)}: matmul differs by {_number(run.matmul_difference)}, "
        f"losses {losses}, context {run.context_s or 0:.2f} s, computing {run.compute_s or 0:.2f} s"
    )


def _time(runs: dict[int, SmallRun]) -> str:
    total = sum((run.context_s or 0) + (run.compute_s or 0) for run in runs.values())
    return f"{total:.1f} s"


def _index(facts: Facts, ordinal: int) -> int:
    """NVML's index of a CUDA ordinal; the ordinal where it cannot be told."""
    device = next((one for one in devices_of(facts) if one.ordinal == ordinal), None)
    gpu = gpu_of(device, facts.snapshot.gpus) if device is not None else None
    return gpu.index if gpu is not None else ordinal


def _busy(facts: Facts) -> list[str]:
    found = []
    for device in devices_of(facts):
        gpu = gpu_of(device, facts.snapshot.gpus)
        if device.ordinal in facts.tried or gpu is None:
            continue
        found.append(in_use(gpu, facts.snapshot) or f"GPU {gpu.index} was not tried")
    return found
