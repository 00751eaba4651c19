"""What a flow's session has of its engine: the machine, fresh readings, and patience for findings.

An engine that is young has no findings yet: the rules judge by seconds of what they have seen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from cockpit.engine import flow_opening as opening
from cockpit.engine.flow_facts import Facts
from cockpit.engine.flow_subject import process_of
from cockpit.engine.machine import Machine, Say
from cockpit.flows.flow import is_about
from cockpit.model.finding import Finding
from cockpit.model.flow import FlowRequest
from cockpit.model.process import Process
from cockpit.model.snapshot import Snapshot

FINDINGS_WITHIN_S = 35.0
"""The rules about slow runs judge by ten seconds of looks at the stack, and then hold on: one about
data was seen after 26 s."""
FIRST_FINDINGS_S = 2.0


def _tells_of(finding: Finding, process: Process, request: FlowRequest) -> bool:
    """It is about this process or its card: one of another run is no answer."""
    if finding.flow != request.flow:
        return False
    its_card = finding.gpu in [use.gpu for use in process.devices]
    return is_about(finding, process.pid) or (finding.pid is None and its_card)


@dataclass(frozen=True)
class Tools:
    """For one session."""

    machine: Machine
    fresh: Callable[[], Snapshot]
    """A snapshot that was taken after the call."""
    watched_s: Callable[[], float]
    """For how long the engine has seen this machine: live findings take their time."""
    facts: Facts
    readonly: bool

    def of_process(self, request: FlowRequest, cancelled: threading.Event, say: Say) -> Snapshot:
        """Once the engine has seen enough of the process for findings of this flow."""
        snapshot, told = self.fresh(), False
        while self.watched_s() < FINDINGS_WITHIN_S:
            process = process_of(snapshot, request)
            if self.machine.source != "live" or process is None:
                break
            if any(_tells_of(one, process, request) for one in snapshot.findings):
                break
            if not told:
                say(
                    f"looking at what pid {request.pid} does, for {FINDINGS_WITHIN_S:.0f} s at most"
                )
            told = True
            if cancelled.wait(1.0):
                break
            snapshot = self.fresh()
        return snapshot

    def of_machine(self, cancelled: threading.Event, say: Say) -> Snapshot:
        """The rules need some seconds of a machine, and the first look has none behind it."""
        snapshot = self.fresh()
        end, told = time.monotonic() + FIRST_FINDINGS_S, False
        while time.monotonic() < end and not opening.shows_trouble(snapshot):
            if self.watched_s() > FINDINGS_WITHIN_S:
                break
            if not told:
                say(f"looking at the machine for {FIRST_FINDINGS_S:.0f} s at most")
            told = True
            if cancelled.wait(0.5):
                break
            snapshot = self.fresh()
        return snapshot
