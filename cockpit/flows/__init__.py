"""Guided troubleshooting as data and a pure state machine: FLOWS by their id."""

from __future__ import annotations

from cockpit.flows import first_run, kernel_fault, multi_gpu, no_cuda, oom, slow, vram_held
from cockpit.flows.flow import Flow
from cockpit.model.flow import FlowId

FLOWS: dict[FlowId, Flow] = {
    one.id: one
    for one in (
        oom.FLOW,
        no_cuda.FLOW,
        kernel_fault.FLOW,
        slow.FLOW,
        multi_gpu.FLOW,
        vram_held.FLOW,
        first_run.FLOW,
    )
}
"""In the order in which they are offered."""
