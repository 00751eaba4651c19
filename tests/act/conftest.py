"""Fixtures of the tests of acting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from killing import FakeVram, Procs

from cockpit.act.identity import read_stat
from cockpit.act.journal import Journal
from cockpit.act.signal import Kills
from cockpit.model.process import Process


@pytest.fixture
def procs() -> Iterator[Procs]:
    started = Procs()
    try:
        yield started
    finally:
        started.end()


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "state" / "journal.jsonl")


@pytest.fixture
def kills_of(journal: Journal) -> Callable[..., Kills]:
    """``kills_of(vram)``: kills on a machine whose snapshot shows what the driver lists."""

    def make(vram: FakeVram | None = None, **options: object) -> Kills:
        source = vram or FakeVram({})
        rows = [
            Process(pid=pid, vram_bytes=held, visible=read_stat(pid) is not None)
            for pid, held in source.held.items()
        ]
        options = {"journal": journal, "processes": lambda: rows, **options}
        return Kills(source, options.pop("journal"), **options)

    return make
