"""Fills ``Snapshot.findings``: loads the rules late, after the first frame, and never fails a tick.

A live machine is looked at; a demo and a recording are judged by their snapshots alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cockpit.model.snapshot import Snapshot

if TYPE_CHECKING:
    from cockpit.diagnose.live.look import Looks
    from cockpit.diagnose.live.watch import LiveFindings
    from cockpit.model.finding import Finding

log = logging.getLogger(__name__)


class Findings:
    """Adds what is found to each snapshot. Used by the tick's thread."""

    def __init__(self, looks: Callable[[], Looks] | None = None, *, at_once: bool = False) -> None:
        """``looks`` is called when it is needed; None: nothing can be looked at.

        ``at_once``: there will be one snapshot only.
        """
        self._open_looks = None if at_once else looks
        self._looks: Looks | None = None
        self._at_once = at_once
        self._live: LiveFindings | None = None
        self._ticks = 0
        self._recorded = False
        if at_once:  # its one tick waits for the driver anyway, and shall not wait for imports then
            threading.Thread(target=_load_rules, name="rules", daemon=True).start()

    def add(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with its findings; one that has some (a recording) stays as it is."""
        self._recorded = self._recorded or bool(snapshot.findings)
        self._ticks += 1
        if self._recorded or (self._ticks == 1 and not self._at_once):
            return snapshot  # the first frame shall not wait for 30 ms of imports
        try:
            found = self._observe(snapshot)
        except Exception:  # rules must not take the numbers away with them
            log.exception("the findings of this tick failed")
            return snapshot
        return replace(snapshot, findings=found) if found else snapshot

    def _observe(self, snapshot: Snapshot) -> tuple[Finding, ...]:
        from cockpit.diagnose.live.look import NoLooks
        from cockpit.diagnose.live.watch import LiveFindings

        if self._live is None or self._looks is None:
            self._live = LiveFindings(at_once=self._at_once)
            self._looks = self._open_looks() if self._open_looks is not None else NoLooks()
        return self._live.observe(snapshot, self._looks)


def _load_rules() -> None:
    import cockpit.diagnose.live.watch  # noqa: F401
