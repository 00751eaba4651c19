"""The whole app without a terminal and without an engine: ticks are put in by hand."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timezone
from typing import Any

from msgspec.structs import replace

from cockpit.collect.simulated import SimulatedMachine
from cockpit.engine.protocol import Hello, Message, Tick
from cockpit.model.finding import Finding
from cockpit.settings import Settings
from cockpit.tui.app import CockpitApp

NOON = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)
"""The fixed moment of every simulated machine here."""


class SilentLink:
    """Stands where a Link stands: nothing comes, what is sent is kept."""

    log_path = None

    def __init__(self) -> None:
        self._ends = os.pipe()
        self.sent: list[Message] = []
        self.closed_with: bool | None = None
        """Whether the engine could be killed at the end."""

    def fileno(self) -> int:
        return self._ends[0]

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def close(self, wait_s: float = 0.0, *, may_kill: bool = True) -> None:
        if self.closed_with is not None:
            return
        self.closed_with = may_kill
        for end in self._ends:
            os.close(end)


class Stage:
    """An app on a stage, with a simulated machine behind it whose clock we turn."""

    def __init__(self, app: CockpitApp, pilot: Any, scenario: str) -> None:
        self.app, self.pilot = app, pilot
        self._now = 0.0
        self.findings: tuple[Finding, ...] | None = None
        """Where set, these instead of what the simulated engine finds."""
        self.machine = SimulatedMachine(
            scenario, clock=lambda: self._now, sleep=lambda _: None, began=NOON
        )
        app._on_hello(
            Hello(version="0", source="demo", title=scenario, readonly=app.settings.readonly)
        )

    async def tick(self, count: int = 1) -> None:
        """So many seconds pass."""
        for _ in range(count):
            self._now += 1.0
            snapshot = self.machine.snapshot(1.0)
            if self.findings is not None:
                snapshot = replace(snapshot, findings=self.findings)
            self.app._on_tick(Tick(snapshot=snapshot))
            await self.pilot.pause()

    @property
    def text(self) -> str:
        """What stands on the screen."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in strips)


@asynccontextmanager
async def stage(
    scenario: str = "busy", size: tuple[int, int] = (80, 24), **choices: Any
) -> AsyncIterator[Stage]:
    """``async with stage("stray", (120, 40)) as play: await play.tick(3)``."""
    app = CockpitApp(Settings(**choices), SilentLink())  # type: ignore[arg-type]
    async with app.run_test(size=size, notifications=True) as pilot:
        yield Stage(app, pilot, scenario)
