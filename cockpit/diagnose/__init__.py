"""Pure: log text, or snapshots over time, to findings (a later issue)."""
