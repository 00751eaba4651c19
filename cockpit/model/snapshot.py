"""Everything at one moment, and its JSON."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from cockpit.model.event import Event
from cockpit.model.finding import Finding
from cockpit.model.gpu import Driver, Gpu, TopologyLink
from cockpit.model.host import Host
from cockpit.model.ledger import Ledger
from cockpit.model.process import Process
from cockpit.model.run import Run

SCHEMA = 1


class SamplerStatus(Struct, frozen=True, kw_only=True):
    """What the sampling itself costs."""

    interval_s: float
    late_ticks: int = 0
    """Ticks that were skipped because the one before took too long."""
    cpu_pct: float | None = None
    """The engine's own CPU, percent of one core."""
    rss_bytes: int | None = None


class Snapshot(Struct, frozen=True, kw_only=True):
    """One tick of the engine."""

    schema: int = SCHEMA
    taken_at: str
    """UTC, ISO 8601 with milliseconds."""
    host: Host
    driver: Driver
    topology: tuple[TopologyLink, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    processes: tuple[Process, ...] = ()
    runs: tuple[Run, ...] = ()
    ledger: tuple[Ledger, ...] = ()
    events: tuple[Event, ...] = ()
    """The newest 100, oldest first."""
    findings: tuple[Finding, ...] = ()
    sampler: SamplerStatus


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Snapshot)


def encode(snapshot: Snapshot) -> bytes:
    """One line of JSON without its line end; None becomes null, nothing is left out."""
    return _encoder.encode(snapshot)


def decode(line: bytes | str) -> Snapshot:
    """The opposite of :func:`encode`; unknown fields are ignored.

    Raises msgspec.ValidationError or msgspec.DecodeError on anything else.
    """
    return _decoder.decode(line)


def json_schema() -> dict[str, Any]:
    """The JSON schema (2020-12) of ``cockpit snapshot --json``."""
    return msgspec.json.schema(Snapshot)
