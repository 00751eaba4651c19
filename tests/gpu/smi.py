"""What nvidia-smi says, as numbers in our units. None where it says N/A."""

from __future__ import annotations

import subprocess

MIB = 1 << 20


def query(table: str, fields: list[str]) -> list[dict[str, str | None]]:
    """``--query-gpu`` or ``--query-compute-apps`` as dictionaries."""
    out = subprocess.run(
        ["nvidia-smi", f"--query-{table}={','.join(fields)}", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rows = []
    for line in out.strip().splitlines():
        values = [value.strip() for value in line.split(",")]
        known = [None if v in ("[N/A]", "N/A", "[Not Supported]") else v for v in values]
        rows.append(dict(zip(fields, known, strict=True)))
    return rows


def used_bytes(index: int = 0) -> int:
    """memory.used of one GPU."""
    return int(query("gpu", ["memory.used"])[index]["memory.used"] or 0) * MIB


def apps() -> dict[int, int]:
    """pid → bytes."""
    rows = query("compute-apps", ["pid", "used_memory"])
    return {int(row["pid"] or 0): int(row["used_memory"] or 0) * MIB for row in rows}
