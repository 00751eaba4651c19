"""The app: holds the session and the View, hands each View to the page in front.

One direction: engine → Tick → View → page.show(view) → widget.show(rows). Back come messages.
Longer than a file should be: every key that works on all pages has its few lines here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from time import monotonic
from typing import ClassVar

from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.notifications import SeverityLevel
from textual.screen import Screen

from cockpit.commands.ask import remove_log
from cockpit.engine.link import Link
from cockpit.engine.protocol import Hello, Tick
from cockpit.errors import CockpitError, UsageError
from cockpit.model.finding_history import FindingHistory
from cockpit.model.flow import FlowRequest
from cockpit.model.history import History
from cockpit.model.run_history import RunHistory
from cockpit.model.text import clean
from cockpit.settings import Settings
from cockpit.tui import theme
from cockpit.tui.driver import QuickDriver
from cockpit.tui.flow_app import FlowApp
from cockpit.tui.render.cells import foreign
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.screens.base import Page
from cockpit.tui.screens.overview import OverviewScreen
from cockpit.tui.session import Listener, Session
from cockpit.tui.view import View

INTERVALS_S = (0.5, 1.0, 2.0, 5.0, 10.0)
SILENCE_CHECK_S = 2.0
SILENT_AFTER_S = 3.0
DIGITS_WITHIN_S = 0.5
"""Two digits typed within this time are one GPU number."""
_HELP_TOOLTIP = "The keys of this page, and the signs"


class TickArrived(Message):
    """A tick is there to be drawn. A newer one takes the place of one that waits."""

    def can_replace(self, message: Message) -> bool:
        """Only the newest is worth drawing."""
        return isinstance(message, TickArrived)


class CockpitApp(FlowApp):
    """The face."""

    CSS_PATH = "cockpit.tcss"
    TITLE = "gpu-cockpit"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave", "quit", id="app.quit", tooltip="Leave; nothing else stops"),
        Binding(
            "question_mark", "help", "help", id="app.help", key_display="?", tooltip=_HELP_TOOLTIP
        ),
        Binding("f1", "help", "help", id="app.help_f1", show=False, tooltip=_HELP_TOOLTIP),
        Binding(
            "p", "pause", "pause", id="app.pause", tooltip="Hold the picture, not the sampling"
        ),
        Binding(
            "plus",
            "interval(1)",
            "interval +",
            id="app.slower",
            show=False,
            tooltip="Longer interval; in a replay: faster",
        ),
        Binding(
            "minus",
            "interval(-1)",
            "interval -",
            id="app.faster",
            show=False,
            tooltip="Shorter interval; in a replay: slower",
        ),
        Binding(
            "i",
            "findings",
            "findings",
            id="app.findings",
            tooltip="What is wrong, the evidence, what to do",
        ),
        Binding("l", "events", "events", id="app.events", tooltip="Everything that happened"),
        Binding("n", "topology", "links", id="app.topology", tooltip="NVLink, PCIe and P2P"),
        Binding(
            "exclamation_mark",
            "troubleshoot",
            "fix",
            id="app.troubleshoot",
            key_display="!",
            tooltip="Troubleshoot this, or the worst thing",
        ),
        Binding("ctrl+c", "leave", "quit", id="app.interrupt", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "suspend", id="app.suspend", show=False),
        *(
            Binding(str(digit), f"digit({digit})", "GPU", show=False, id=f"app.gpu_{digit}")
            for digit in range(10)
        ),
    ]

    def __init__(self, settings: Settings, link: Link, flow: FlowRequest | None = None) -> None:
        super().__init__(driver_class=QuickDriver, ansi_color=None if settings.color else True)
        self.settings = settings
        self.wire_diff = settings.wire_diff
        self._session = Session(
            link, Listener(self._on_hello, self._on_tick, self._on_trouble, self._on_refused)
        )
        self._history = History()
        self._findings = FindingHistory()
        self._run_history = RunHistory()
        self._newest: Tick | None = None
        self._hello: Hello | None = None
        self._trouble: str | None = None
        self._silent: str | None = None
        self._heard_at: float | None = None
        """When the last tick came; before the first one, when it was begun to wait for it."""
        self._interval_s = settings.interval_s
        self._paused = False
        self._tree = False
        self._glyphs = Glyphs.ascii() if wants_ascii(settings) else Glyphs.unicode()
        self.set_class(self._glyphs.ascii_only, "ascii")
        self._digits: tuple[float, str] = (0.0, "")
        self.asked_flow = flow
        self.failure: CockpitError | None = None
        """Why the app ended by itself."""
        theme.register(self)
        self.theme = self._chosen_theme()
        check_keys(settings.keys)
        self.set_keymap(settings.keys)

    def _chosen_theme(self) -> str:
        name = theme.pick(self.settings.theme, self.settings.color, os.environ)
        if name not in self.available_themes:
            known = ", ".join(sorted(self.available_themes))
            raise UsageError(f"There is no theme `{clean(name)}`; there are: {known}.")
        return name

    @property
    def session(self) -> Session:
        """For pages that ask."""
        return self._session

    @property
    def offers_actions(self) -> bool:
        """False in read-only mode and in a replay: then no action is even shown."""
        hello = self._hello
        return not self.settings.readonly and (hello is None or hello.source != "replay")

    def on_mount(self) -> None:
        """Begin to listen; the first tick has mostly come while textual was imported."""
        self._session.open()
        self._heard_at = monotonic()
        self.set_interval(SILENCE_CHECK_S, self._watch_silence)
        self.push_screen(OverviewScreen(self.settings))

    def on_unmount(self) -> None:
        """The engine is let go before the terminal is given back."""
        self._session.close()

    def _watch_silence(self) -> None:
        """An engine that lives but says nothing: what stands on the screen is old, and says so."""
        if self._heard_at is None or self._trouble is not None:
            return
        silent_s = monotonic() - self._heard_at
        if silent_s <= max(SILENT_AFTER_S, 2.5 * self._interval_s) or self._paused:
            return
        silent = f"The engine has not answered for {silent_s:.0f} s"
        if self.view is None:
            self._say_on_first_page(f"{silent}: nothing has been read yet.")
        else:
            self._silent = f"{silent}: all values are old."
            self._show_newest()

    def _say_on_first_page(self, sentence: str) -> None:
        """Before there is anything to draw."""
        for screen in self.screen_stack:
            if isinstance(screen, OverviewScreen) and screen.is_mounted:
                screen.say(sentence)

    # -- from the session

    def _on_hello(self, hello: Hello) -> None:
        self._hello = hello

    def _on_tick(self, tick: Tick) -> None:
        self._trouble = self._silent = None
        self._heard_at = monotonic()
        self._newest = tick
        self._history.append(tick.snapshot)
        self._findings.append(tick.snapshot)
        self._run_history.append(tick.snapshot)
        self.post_message(TickArrived())

    def _on_trouble(self, sentence: str) -> None:
        self._trouble = sentence
        if self._newest is not None:
            self._show_newest()
        else:
            self.notify(sentence, severity="error", timeout=10)
            self._say_on_first_page(sentence)

    def _on_refused(self, error: CockpitError) -> None:
        self.failure = error
        self.exit(error.exit_code)

    def on_tick_arrived(self) -> None:
        """Draw the newest tick, unless the picture is held."""
        if not self._paused or self.view is None or self.view.trouble is not None:
            self._show_newest()
        self.open_asked_flow()

    def _show_newest(self) -> None:
        """The newest tick; of a picture that is held what is said about it, and nothing else."""
        tick, hello = self._newest, self._hello
        if self.view is not None and self._paused:
            trouble = self._trouble or self._silent
            self.view = replace(
                self.view, interval_s=self._interval_s, paused=True, trouble=trouble
            )
            self.show_view()
            return
        if tick is None or hello is None:
            return
        self.view = View(
            snapshot=tick.snapshot,
            history=self._history,
            run_history=self._run_history,
            relatives=tick.relatives,
            playback=tick.playback,
            source=hello.source,
            title=hello.title,
            glyphs=self._glyphs,
            interval_s=self._interval_s,
            paused=self._paused,
            readonly=hello.readonly,
            recording=self.settings.record is not None,
            trouble=self._trouble or self._silent,
            findings=self._findings.known(),
        )
        self.show_view()

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,  # noqa: ARG002
    ) -> None:
        """A notice, never as markup: what an engine said last, a path, a key may be ``[/x]``."""
        words = foreign(message)
        super().notify(words, title=title, severity=severity, timeout=timeout, markup=False)

    def show_view(self) -> None:
        """Give the View to the page in front; a dialog in front leaves the page as it is."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, Page):
                if self.view is not None and screen.is_mounted:
                    screen.draw(self.view)
                return

    # -- keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """A page is not opened by its own key once more, and does not show that key."""
        front = self.screen_stack[-1] if self.screen_stack else None
        return not (isinstance(front, Page) and action == front.OPENED_BY)

    def action_leave(self) -> None:
        """Quit at once."""
        self.exit(0)

    def action_pause(self) -> None:
        """Hold the picture; a replay is paused itself."""
        if self.view is not None and self.view.playback is not None:
            self._session.play(paused=not self.view.playback.paused)
            return
        if self.view is None:
            return  # nothing to hold yet
        self._paused = not self._paused
        if self._paused:  # what is drawn anew meanwhile is drawn of this moment; theirs go on
            history, run_history = deepcopy((self._history, self._run_history))
            self.view = replace(self.view, history=history, run_history=run_history)
        self._show_newest()

    def action_interval(self, step: int) -> None:
        """A longer or shorter interval; for a replay, its speed."""
        if self.view is not None and self.view.playback is not None:
            self._session.play(speed=self.view.playback.speed * (2.0 if step > 0 else 0.5))
            return
        now_s = self._interval_s  # as the settings have it: perhaps none of these, or beyond them
        longer = [one for one in INTERVALS_S if one > now_s]
        shorter = [one for one in reversed(INTERVALS_S) if one < now_s]
        self._interval_s = next(iter(longer if step > 0 else shorter), now_s)
        self.look_at(tree=self._tree)
        self._show_newest()

    def look_at(self, *, tree: bool) -> None:
        """Tell the engine what is looked at."""
        self._tree = tree
        self._session.watch(interval_s=self._interval_s, tree=tree)

    def action_digit(self, digit: int) -> None:
        """Open the GPU of that number; two digits in quick succession are one number."""
        front = self.screen
        if self.view is None or (isinstance(front, Page) and front.OWN_DIGITS):
            return
        now = monotonic()
        at, before = self._digits
        both = f"{before}{digit}" if now - at < DIGITS_WITHIN_S else ""
        is_one = bool(both) and any(one.index == int(both) for one in self.view.snapshot.gpus)
        self._digits = (now, "" if is_one else str(digit))
        self.open_gpu(int(both) if is_one else digit)

    def open_gpu(self, index: int) -> None:
        """The page of one GPU; says so when there is none of that number."""
        if self.view is None:
            return
        if all(gpu.index != index for gpu in self.view.snapshot.gpus):
            self.notify(f"There is no GPU {index} here.", severity="warning", timeout=3)
            return
        from cockpit.tui.screens.gpu import GpuScreen

        if isinstance(self.screen, GpuScreen):
            self.screen.choose(index)
        else:
            self.push_screen(GpuScreen(index))

    def action_findings(self) -> None:
        """The page of findings."""
        from cockpit.tui.screens.findings import FindingsScreen

        if any(isinstance(screen, FindingsScreen) for screen in self.screen_stack[-2:-1]):
            self.pop_screen()  # from one finding back to their list
        else:
            self._open(FindingsScreen())

    def action_events(self) -> None:
        """The page of events."""
        from cockpit.tui.screens.events import EventsScreen

        self._open(EventsScreen())

    def action_topology(self) -> None:
        """The page of links between GPUs."""
        from cockpit.tui.screens.topology import TopologyScreen

        self._open(TopologyScreen())

    def action_help(self) -> None:
        """The keys of the page in front."""
        from cockpit.tui.screens.help import HelpScreen

        self._open(HelpScreen(self.screen.active_bindings))

    def _open(self, page: Page) -> None:
        if self.view is None:
            self.notify("Nothing has been read yet.", severity="warning", timeout=3)
        elif type(self.screen) is not type(page):
            self.push_screen(page)

    def action_command_palette(self) -> None:
        """Textual's palette, with a placeholder that every terminal can write."""
        from textual.command import CommandPalette

        if not CommandPalette.is_open(self):  # type: ignore[arg-type]
            palette = CommandPalette(placeholder="Search for commands", id="--command-palette")
            self.push_screen(palette)

    def search_themes(self) -> None:
        """The list of themes, likewise."""
        from textual.command import CommandPalette
        from textual.theme import ThemeProvider

        self.push_screen(CommandPalette([ThemeProvider], placeholder="Search for themes"))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: every key that works here by its name, and the themes."""
        for binding in screen.active_bindings.values():
            one = binding.binding
            if one.description and one.id and binding.enabled and (one.show or one.tooltip):
                title = one.tooltip or one.description

                def run(action: str = one.action, node: object = binding.node) -> object:
                    return self.run_action(action, node)  # type: ignore[arg-type]

                yield SystemCommand(one.description.capitalize(), title, run)
        yield SystemCommand("Theme", "Choose the colours", self.action_change_theme)


def wants_ascii(settings: Settings) -> bool:
    """As asked; else by whether the locale can write more."""
    if settings.ascii is not None:
        return settings.ascii
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return encoding != "utf8"


def check_keys(keys: Mapping[str, str]) -> None:
    """Raises UsageError for an id or a key that does not exist: it would do nothing."""
    if not keys:
        return
    from cockpit.tui import bindings
    from cockpit.tui.key_names import why_not

    unknown = [name for name in keys if name not in bindings.ids()]
    if unknown:
        known = ", ".join(sorted(bindings.ids()))
        raise UsageError(f"There is no key named `{clean(unknown[0])}`; there are: {known}.")
    for name, wanted in keys.items():
        wrong = why_not(wanted)
        if wrong is not None:
            raise UsageError(clean(f"In [keys], {name} = {wanted!r}: {wrong}."))


def run(settings: Settings, link: Link, flow: FlowRequest | None = None) -> int:
    """Opens the cockpit on this terminal, at a guided flow where one is given.

    Returns the exit status: see ``CockpitApp.exit_status``.
    """
    try:
        app = CockpitApp(settings, link, flow)
        app.run(mouse=settings.mouse)
    finally:
        link.close()
        remove_log(link)
    if app.failure is not None:
        raise app.failure
    return app.exit_status
