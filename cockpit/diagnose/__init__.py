"""Pure: log text, or snapshots over time, to findings. For logs ``diagnose(stream)``."""

from __future__ import annotations

from cockpit.diagnose.answer import diagnose, diagnose_rerun

__all__ = ["diagnose", "diagnose_rerun"]
