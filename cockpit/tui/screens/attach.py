"""Attach to a process: whether and how, one confirmation, what came of it."""

from __future__ import annotations

from textual import work

from cockpit.errors import CockpitError
from cockpit.model.memory import AttachPlan, RunOutcome
from cockpit.tui.line import Line
from cockpit.tui.render.fix_lines import attach_lines
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.screens.run_dialog import RunDialog


class AttachDialog(RunDialog):
    """``AttachDialog(pid, start_ticks)``; dismissed with whether an attach was tried."""

    def __init__(self, pid: int, start_ticks: int | None) -> None:
        super().__init__()
        self._pid = pid
        self._start_ticks = start_ticks
        self._plan: AttachPlan | None = None

    def on_mount(self) -> None:
        """Ask for the plan at once: it changes nothing."""
        self._ask_plan()

    @work(exclusive=True, group="plan", exit_on_error=False)
    async def _ask_plan(self) -> None:
        try:
            self._plan = await self.cockpit.session.attach_plan(self._pid, self._start_ticks)
        except CockpitError as error:
            self._error = str(error)
        self.show()

    def question(self, width: int, glyphs: Glyphs) -> list[Line]:
        """The sentence of the plan: a question, or the reason why not."""
        if self._plan is None:
            return [((f" looking at pid {self._pid} …", "dim"),)]
        return attach_lines(self._plan, width, glyphs)

    def can_confirm(self) -> bool:
        """There is a way, and nobody has gone it yet."""
        return self._plan is not None and self._plan.way is not None

    def yes(self) -> str:
        """Connecting to an agent that is there pauses nobody."""
        return "connect" if self._plan is not None and self._plan.way == "agent" else "attach"

    async def ask(self) -> RunOutcome:
        """The identity is that of the plan: a later process with this pid is refused."""
        ticks = self._start_ticks if self._plan is None else self._plan.start_ticks
        return await self.cockpit.session.attach(self._pid, ticks, self.say)
