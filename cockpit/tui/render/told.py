"""What the findings of a snapshot state already, so that the face does not say it a second time.

The face sees trouble at once, from one reading; a finding knows the cause and what to do. Where
both speak about the same thing, the finding is shown.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cockpit.model.finding import Finding
from cockpit.model.finding_subject import gpus_of, pids_of, xids_of
from cockpit.model.process import Process
from cockpit.model.snapshot import Snapshot

SAME: dict[str, frozenset[str]] = {
    "driver": frozenset(
        {
            "nvml_mismatch",
            "module_not_built_for_kernel",
            "nouveau",
            "container_without_gpu",
            "cgroup_devices_lost",
            "dev_permissions",
            "needs_open_module",
            "fabric_manager",
        }
    ),
    "lost": frozenset({"gpu_off_bus"}),
    "xid": frozenset({"kernel-fault"}),
    "ecc": frozenset({"ecc_contained", "ecc_dbe", "remap_failure"}),
    "brake": frozenset({"power_brake"}),
    "heat": frozenset({"thermal"}),
    "stale": frozenset({"gsp_timeout"}),
    "remap": frozenset({"ecc_contained", "ecc_dbe", "remap_failure"}),
    "held": frozenset(
        {
            "orphans",
            "pid_namespace",
            "notebook_refs",
            "idle_kernel",
            "unkillable",
            "mps_other_user",
            "graphics_clients",
        }
    ),
    "full": frozenset({"oom"}),
}
"""Kind of an alert → causes, or whole families, that say the same."""


class Told:
    """Asked by :mod:`cockpit.tui.render.alerts`, once a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._findings: Sequence[Finding] = snapshot.findings
        self._processes: Sequence[Process] = snapshot.processes

    def machine(self, kind: str) -> bool:
        """Whether some finding says it of the machine as a whole."""
        return any(True for _ in self._of(kind))

    def gpu(self, kind: str, gpu: int | None, xid: int | None = None) -> bool:
        """Whether a finding about this GPU says it; with ``xid``: not one about other Xids."""
        for one in self._of(kind):
            xids = xids_of(one)
            if gpu in gpus_of(one, self._processes) and (xid is None or not xids or xid in xids):
                return True
        return False

    def holder(self, gpu: int | None, pids: Collection[int]) -> bool:
        """Whether a finding names one of these holders, or this GPU's memory without a holder."""
        for one in self._of("held"):
            named = pids_of(one)
            if not set(named).isdisjoint(pids):
                return True
            if not named and gpu is not None and one.gpu == gpu:
                return True
        return False

    def _of(self, kind: str) -> Sequence[Finding]:
        same = SAME[kind]
        return [one for one in self._findings if one.cause in same or one.flow in same]
