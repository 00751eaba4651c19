"""The app in a real terminal, at a flow whose one fix has to run in that terminal; no engine.

``python staged_flow.py COMMAND``: the shell command of the fix.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from cockpit.collect.simulated import SimulatedMachine
from cockpit.engine.protocol import Hello, Tick
from cockpit.model.flow import FlowRequest, FlowState
from cockpit.model.remedy import TerminalCommand
from cockpit.settings import Settings
from cockpit.tui.app import CockpitApp
from cockpit.tui.startup import prepare


class Played(CockpitApp):
    """Its engine is played: any request ends at the terminal prompt, its answer at the end."""

    CSS_PATH = Path(sys.modules[CockpitApp.__module__].__file__ or "").with_name("cockpit.tcss")
    command = ""

    def on_mount(self) -> None:  # Textual calls that of CockpitApp as well
        self._session.start_flow = self._start  # type: ignore[method-assign]
        self._session.answer_flow = self._answer  # type: ignore[method-assign]
        self._on_hello(Hello(version="0", source="demo", title="stray"))
        self._on_tick(Tick(snapshot=SimulatedMachine("stray").snapshot(1.0)))

    async def _start(self, *_: Any) -> FlowState:
        from msgspec.structs import replace

        from tests.tui import flow_states as flows

        command = TerminalCommand(argv=("sh", "-c", self.command))
        return flows.in_terminal(replace(flows.SUDO, terminal=command))

    async def _answer(self, _flow: str, answer: Any, _say: Any) -> FlowState:
        from tests.tui import flow_states as flows

        return flows.ended(verified=answer.exit_status == 0, subject=f"was {answer.exit_status}")


def main() -> int:
    from tests.tui.screen_text import SilentLink

    prepare()
    Played.command = sys.argv[1]
    app = Played(Settings(), SilentLink(), FlowRequest())  # type: ignore[arg-type]
    app.run()
    return app.exit_status


if __name__ == "__main__":
    sys.exit(main())
