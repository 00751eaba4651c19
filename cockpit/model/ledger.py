"""Who holds the memory of one GPU, to the byte."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

ExplanationKind = Literal[
    "context_overhead",
    "device_holders",
    "other_namespace",
    "not_listed",
    "mps",
    "graphics",
    "unified_memory",
    "mig",
    "readings_raced",
    "gone_process",
    "none_found",
]


class LedgerProcess(Struct, frozen=True, kw_only=True):
    """One process's share."""

    pid: int
    bytes: int


class Explanation(Struct, frozen=True, kw_only=True):
    """Why a part of the memory has no process's name on it."""

    kind: ExplanationKind
    pids: tuple[int, ...]
    sentence: str


class Ledger(Struct, frozen=True, kw_only=True):
    """total = free + driver-reserved + sum of processes + unaccounted, always."""

    gpu: int
    total_bytes: int
    free_bytes: int
    driver_reserved_bytes: int
    processes: tuple[LedgerProcess, ...]
    unaccounted_bytes: int
    """May be negative when the readings raced: then an explanation says so."""
    explanations: tuple[Explanation, ...] = ()
    gaps: dict[str, str] = {}
