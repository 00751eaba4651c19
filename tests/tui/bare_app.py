"""The smallest app on the driver, for tests in a real terminal: READY, a list, q quits."""

from __future__ import annotations

import signal
import sys

from cockpit.tui.startup import prepare

prepare(color="no-colour" not in sys.argv)

from textual.widgets import Static  # noqa: E402

from cockpit.tui import theme  # noqa: E402
from cockpit.tui.driver import QuickDriver  # noqa: E402
from cockpit.tui.line import Row  # noqa: E402
from cockpit.tui.widgets.line_view import LineView  # noqa: E402
from cockpit.tui.wire import WireDiff  # noqa: E402


class BareApp(WireDiff[None]):
    BINDINGS = [("q", "quit", "Quit"), ("ctrl+z", "suspend_process", "Suspend")]

    def __init__(self, name: str, chatty: bool = False) -> None:
        ansi = True if name == theme.NO_COLOUR else None
        super().__init__(driver_class=QuickDriver, ansi_color=ansi)
        theme.register(self)
        self.theme = name
        self.chatty = chatty
        self.size_seen = Static(id="size")

    def compose(self):
        yield Static("READY")
        yield self.size_seen
        yield LineView([Row(n, ((f"row {n} ", "warn"), ("日本", "bar"))) for n in range(50)])

    def on_resize(self, event) -> None:
        self.size_seen.update(f"size {event.size.width}x{event.size.height}")

    def on_mount(self) -> None:
        if "nohup" in sys.argv:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if self.chatty:  # more than any terminal takes that nobody reads from
            self.set_interval(0.01, lambda: self._driver.write("\x1b[H" + " " * 50_000))


if __name__ == "__main__":
    wanted = theme.NO_COLOUR if "no-colour" in sys.argv else theme.DARK
    app = BareApp(wanted, chatty="chatty" in sys.argv)
    app.run()
    sys.exit(app.return_code)
