"""A checkup from its facts: the ladder in order, and the first step that failed as a Finding."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from cockpit.diagnose import (
    doctor_cuda,
    doctor_driver,
    doctor_machine,
    doctor_small,
    doctor_torch,
)
from cockpit.diagnose.answer import REPAIRS
from cockpit.diagnose.failure import environment_of
from cockpit.diagnose.fixes import fill, render
from cockpit.diagnose.tables.causes import CAUSES
from cockpit.diagnose.verdict import Done, Verdict
from cockpit.model.checkup import Check, Checkup, Subject
from cockpit.model.checkup_facts import Facts
from cockpit.model.finding import Also, Finding, Fix
from cockpit.model.text import clean


class Step(NamedTuple):
    """One rung: what is judged, and the source whose reading took the time."""

    id: str
    title: str
    source: str
    judge: Callable[[Facts, Done], Verdict]


LADDER = (
    Step("pci", "PCI bus", "kernel", doctor_driver.pci),
    Step("kernel_module", "Kernel module", "kernel", doctor_driver.kernel_module),
    Step("device_nodes", "Device files", "nodes", doctor_driver.device_nodes),
    Step("nvml", "NVML", "nvml", doctor_driver.nvml),
    Step("libcuda", "CUDA driver", "driver", doctor_cuda.libcuda),
    Step("visible_devices", "Visible devices", "nvml", doctor_cuda.visible_devices),
    Step("interpreter", "Interpreter", "interpreter", doctor_torch.interpreter),
    Step("torch_build", "torch build", "torch", doctor_torch.torch_build),
    Step("driver_for_wheel", "Driver for wheel", "torch", doctor_torch.driver_for_wheel),
    Step("architectures", "Architectures", "torch", doctor_torch.architectures),
    Step("container", "Container", "limits", doctor_machine.container),
    Step("shared_memory", "Shared memory", "limits", doctor_machine.shared_memory),
    Step("cgroup_limits", "Limits", "limits", doctor_machine.cgroup_limits),
    Step("fabric_manager", "Fabric Manager", "kernel", doctor_machine.fabric_manager),
    Step("mig", "MIG", "nvml", doctor_machine.mig),
    Step("persistence", "Persistence", "nvml", doctor_machine.persistence),
    Step("pcie_link", "PCIe link", "nvml", doctor_machine.pcie_link),
    Step("memory_health", "Memory health", "nvml", doctor_machine.memory_health),
    Step("peer_to_peer", "Peer to peer", "nvml", doctor_machine.peer_to_peer),
    Step("nccl", "NCCL", "torch", doctor_torch.nccl),
    Step("job_on_gpu", "Job on a GPU", "nvml", doctor_torch.job_on_gpu),
    Step("small_success", "Small success", "torch", doctor_small.small_success),
)
"""rules.md section 2, and what multi-GPU work needs besides. The order is that of the blame."""


def judge(facts: Facts) -> Checkup:
    """All steps, also after one that failed: those that need it say so and nothing else."""
    done: dict[str, Check] = {}
    first: tuple[Step, Verdict] | None = None
    for step in LADDER:
        verdict = step.judge(facts, done)
        done[step.id] = _check(step, verdict, facts)
        if verdict.status == "fail" and first is None:
            first = step, verdict
    checks = tuple(done.values())
    finding = _finding(*first, checks, facts) if first is not None else None
    return Checkup(subject=_subject(facts), checks=checks, finding=finding)


def _check(step: Step, verdict: Verdict, facts: Facts) -> Check:
    well = verdict.status in ("pass", "not_applicable")
    took = facts.took_s.get(step.source)
    return Check(
        id=step.id,
        title=step.title,
        status=verdict.status,
        sentence=verdict.sentence,
        evidence=verdict.evidence,
        fixes=() if well else _fixes(verdict, facts),
        took_s=None if took is None else round(took, 3),
        cause=None if well else verdict.cause,
    )


def _fixes(verdict: Verdict, facts: Facts) -> tuple[Fix, ...]:
    """The step's own, then the repairs of its cause, with the job's interpreter named."""
    repair = REPAIRS.get(verdict.cause or "")
    rows = render(repair, _words(verdict, facts)) if repair is not None else ()
    return tuple(_for_job(fix, facts.job.python) for fix in (*verdict.fixes, *rows))


def _words(verdict: Verdict, facts: Facts) -> dict[str, Any]:
    pid = {} if facts.job.pid is None else {"pid": facts.job.pid}
    return pid | {name: value for name, value in verdict.facts.items() if value is not None}


def _for_job(fix: Fix, python: str | None) -> Fix:
    """``python -m pip`` would be whichever Python the shell finds, not the job's."""
    value, verify = " ".join(fix.value.split()), fix.verify  # a package that is left out
    if python is not None:
        name = shlex.quote(clean(python))
        for start in ("python -m pip", "python -c "):
            value = value.replace(start, name + start.removeprefix("python"))
            verify = verify.replace(start, name + start.removeprefix("python"))
    return replace(fix, value=value, verify=verify)


def _subject(facts: Facts) -> Subject:
    job = facts.job
    if job.pid is not None:
        whose = f"pid {job.pid} of {clean(job.user or '?')}"
    else:
        whose = f"this environment, as {clean(job.user or '?')}"
    how = f"with {clean(job.python)}" if job.python else f"without an interpreter: {clean(job.why)}"
    return Subject(
        sentence=f"{whose}, {how}",
        python=job.python,
        pid=job.pid,
        user=job.user,
        environments=_environments(facts),
    )


def _environments(facts: Facts) -> tuple[str, ...]:
    """As paths in a traceback name them: by how it was called, sys.prefix, and torch's place."""
    python, found = facts.job.python, facts.interpreter
    called = os.path.dirname(os.path.dirname(python)) if python else None
    prefix = found.prefix if found is not None else None
    torch = environment_of(f"{found.torch_folder}/") if found is not None else None
    return tuple(dict.fromkeys(one for one in (called, prefix, torch) if one))


def _finding(step: Step, verdict: Verdict, checks: tuple[Check, ...], facts: Facts) -> Finding:
    """One without a known cause is ``unknown``, and says what was seen."""
    cause = CAUSES[verdict.cause or "unknown"]
    words = _words(verdict, facts)
    also = [
        Also(cause=one.cause, why=one.sentence)
        for one in checks
        if one.status == "fail" and one.cause and one.cause != verdict.cause
    ]
    gpu = words.get("gpu")
    explanation = f"{step.title}: {verdict.sentence}"
    if verdict.cause is not None:
        explanation += f" {fill(cause.explanation, words)}"
    return Finding(
        flow=cause.flow,
        cause=verdict.cause or "unknown",
        severity="error",
        confidence=0.95 if verdict.cause else 0.0,
        title=fill(cause.title, words) if verdict.cause else verdict.sentence,
        explanation=explanation,
        evidence=verdict.evidence,
        facts=words | {"step": step.id},
        fixes=_fixes(verdict, facts),
        also=tuple(also[:3]),
        gpu=gpu if isinstance(gpu, int) else None,
        pid=facts.job.pid,
    )
