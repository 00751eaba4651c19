"""What ``cockpit run`` keeps on disk about an attached run: its name, its end, its OOM records.

The folder is told by the process's own environment, and taken only where it is one of ours.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import Any

from cockpit.attach import target as targets
from cockpit.attach.run_record import load_run
from cockpit.errors import TargetGoneError

DIRECTORY = "COCKPIT_RUN_DIR"


@dataclass
class RunFiles:
    """All empty for a run that ``cockpit run`` did not start."""

    directory: str | None = None
    name: str | None = None
    exit_status: int | None = None
    """Of the whole command: a rank has the status of its launcher."""
    ooms_told: set[float] = field(default_factory=set)
    """Moments of the records of which there is an event already."""

    @classmethod
    def of_process(cls, pid: int) -> RunFiles:
        """By $COCKPIT_RUN_DIR, which every process of the run has from its start."""
        directory = targets.environment(pid).get(DIRECTORY, "")
        if not directory or not _is_ours(directory):
            return cls()
        try:
            return cls(directory, load_run(directory).meta.name)
        except TargetGoneError:
            return cls()

    def read_exit(self) -> None:
        """Nothing changes where the command still runs."""
        if self.directory is None or self.exit_status is not None:
            return
        try:
            ended = load_run(self.directory).exit
        except TargetGoneError:  # its record was removed
            self.directory = None
            return
        self.exit_status = ended.status if ended else None

    def ooms(self, pid: int, start_ticks: int | None) -> list[dict[str, Any]]:
        """The records of one process, by the pid that it has itself."""
        if self.directory is None:
            return []
        try:
            found = load_run(self.directory).ooms()
        except TargetGoneError:
            return []
        me = (pid, start_ticks)
        return [one for one in found if (one.get("pid"), one.get("start_ticks")) == me]


def _is_ours(directory: str) -> bool:
    """As ``cockpit run`` makes them: private, of the user who looks."""
    try:
        found = os.lstat(directory)
    except OSError:
        return False
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return private and found.st_uid == os.geteuid()
