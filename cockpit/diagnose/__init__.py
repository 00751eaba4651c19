"""Pure: log text, or snapshots over time, to findings. For logs ``diagnose(stream)``."""

from __future__ import annotations

from cockpit.diagnose.answer import diagnose

__all__ = ["diagnose"]
