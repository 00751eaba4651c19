"""The first page: title, host, GPUs, traces, what is wrong, processes, events, keys.

Holds the choices of the process table (sort, filter, tree, tags) and no telemetry. Longer than a
file should be: every pane and every key of the first page meet here, in methods of some ten lines.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from cockpit.model.action import Target
from cockpit.model.finding import Finding
from cockpit.model.history import Metric
from cockpit.model.process import Process
from cockpit.model.time import moment
from cockpit.settings import Settings
from cockpit.tui.filter import Filter, parse
from cockpit.tui.flow_request import FlowSubject, something_to_fix
from cockpit.tui.line import Line, Row
from cockpit.tui.messages import FilterClosed, FilterTyped, HeaderClicked, RowChosen, RowHighlighted
from cockpit.tui.render.alerts import Alert, alert_line, alerts
from cockpit.tui.render.cells import foreign
from cockpit.tui.render.columns import Table
from cockpit.tui.render.driver_panel import driver_panel
from cockpit.tui.render.event_rows import event_strip, newest_events
from cockpit.tui.render.finding_words import troubled
from cockpit.tui.render.gpu_rows import gpu_lines
from cockpit.tui.render.host_line import TitleState, host_line, replay_words, title_line
from cockpit.tui.render.layout import OverviewLayout, overview
from cockpit.tui.render.process_columns import Seen
from cockpit.tui.render.process_rows import process_header, process_rows, process_table, tree_rows
from cockpit.tui.render.remarks import snapshot_remarks
from cockpit.tui.render.times import clock
from cockpit.tui.render.told import SAME
from cockpit.tui.render.trace import trace_lines
from cockpit.tui.screens.base import Page
from cockpit.tui.sorting import SORT_KEYS, Sort, identity, ordered
from cockpit.tui.view import View, utc_offset_s
from cockpit.tui.widgets.filter_input import FilterInput
from cockpit.tui.widgets.line_view import FixedLines, LineView

if TYPE_CHECKING:
    from cockpit.tui.screens.process import Part

FEW_GPUS = 2
"""Up to so many GPUs have all their traces at once; more show one value of each."""
"""Columns and lines below which nothing can be told from one another."""
TRACED: tuple[Metric, ...] = ("util", "vram", "power", "temp")


class OverviewScreen(Page):
    """Everything on one page; never left, other pages stand on it."""

    AUTO_FOCUS = "#processes"
    HINTS = (
        "app.help",
        "replay.back",
        "replay.on",
        "filter",
        "kill",
        "app.findings",
        "app.quit",
        "app.troubleshoot",
        "tag",
        "memory",
        "attach",
        "sort",
        "tree",
        "environment",
        "app.events",
        "app.topology",
        "metric",
        "app.pause",
        "trouble",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        # Priority: handled before the next key is read, so that what is typed ahead is the filter.
        Binding(
            "slash",
            "filter",
            "filter",
            id="filter",
            key_display="/",
            tooltip="Filter rows",
            priority=True,
        ),
        Binding("x,f9", "kill", "kill", id="kill", tooltip="Signal the row, or all tagged rows"),
        Binding("space", "tag", "tag", id="tag", key_display="space", tooltip="Tag the row"),
        Binding("t", "tree", "tree", id="tree", tooltip="Processes under their parents"),
        Binding("s,f6", "sort", "sort", id="sort", tooltip="Sort by the next column"),
        Binding(
            "S", "reverse", "reverse", id="reverse", show=False, tooltip="Turn the order round"
        ),
        Binding("w", "trouble", "trouble", id="trouble", tooltip="Go to what is wrong"),
        Binding("m", "memory", "memory", id="memory", tooltip="Memory of the run, from inside"),
        Binding("a", "attach", "attach", id="attach", tooltip="Look inside the process"),
        Binding("e", "environment", "env", id="environment", tooltip="Environment of the row"),
        Binding("v", "metric", "trace", id="metric", tooltip="What the traces show"),
        Binding("left", "seek(-10)", "-10 s", id="replay.back", tooltip="Replay: 10 s back"),
        Binding("right", "seek(10)", "+10 s", id="replay.on", tooltip="Replay: 10 s on"),
        Binding("tab", "app.focus_next", "next pane", id="pane.next", show=False),
        Binding("shift+tab", "app.focus_previous", "pane before", id="pane.previous", show=False),
        Binding("escape", "clear", "clear", id="clear", show=False, tooltip="Tags and filter off"),
    ]

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._sort = Sort(next((one for one in SORT_KEYS if one == settings.sort), SORT_KEYS[0]))
        self._filter = Filter()
        self._tree = False
        self._metric: Metric = "util"
        self._tags: dict[Hashable, Target] = {}
        self._order: tuple[Hashable, ...] = ()
        self._heights: OverviewLayout | None = None
        self._trouble: Alert | None = None
        self._table: Table[Seen] | None = None

    def compose(self) -> ComposeResult:
        """Eight panes, each a list of lines."""
        yield FixedLines(id="title")
        yield FixedLines(id="host")
        yield LineView(id="gpus", empty=(("reading the GPUs …", "dim"),))
        yield FixedLines(id="traces")
        yield FixedLines(id="alerts")
        yield LineView(id="processes")
        yield FixedLines(id="events")
        yield FixedLines(id="footer")
        yield FilterInput()

    def on_mount(self) -> None:
        """The panes are looked up once; every tick needs them."""
        self._gpus = self.query_one("#gpus", LineView)
        self._processes = self.query_one("#processes", LineView)
        self._fixed = {
            name: self.query_one(f"#{name}", FixedLines)
            for name in ("title", "host", "traces", "alerts", "events", "footer")
        }

    # -- drawing

    def show(self, view: View) -> None:
        """All panes for this View."""
        width, height = self.app.size
        self.set_class(view.trouble is not None, "stale")
        gpus = view.snapshot.gpus
        metrics = TRACED if len(gpus) <= FEW_GPUS else (self._metric,)
        processes = len(view.snapshot.processes)
        layout = overview(width, height, len(gpus), len(gpus) * len(metrics), processes)
        panel = self._driver_panel(view, width)
        if panel is not None:  # the height once: another one is a new layout of the whole page
            layout = replace(layout, gpus=min(len(panel), max(3, height // 2)))
        self._resize_panes(layout)
        found = alerts(view.snapshot)
        self._fixed["title"].show_lines([self._title(view, width)])
        self._fixed["host"].show_lines(
            [host_line(view.snapshot.host, width, view.glyphs, view.history)]
        )
        self._show_gpus(view, width, layout, panel)
        self._show_traces(view, width, layout, metrics)
        self._fixed["alerts"].show_lines([self._alerts(view, found, width)])
        self._show_processes(view, width)
        self._show_events(view, width, layout)
        first = ("app.troubleshoot",) if something_to_fix(view.snapshot) else ()
        self._fixed["footer"].show_lines([self.key_line(view, first)])

    def say(self, sentence: str) -> None:
        """Why there is nothing to show yet; the next View takes its place."""
        self._fixed["alerts"].show_lines([((f" ! {sentence}", "error"),)])

    def _resize_panes(self, layout: OverviewLayout) -> None:
        if layout == self._heights:
            return
        self._heights = layout
        self._gpus.styles.height = layout.gpus
        self._fixed["traces"].styles.height = layout.traces
        self._fixed["traces"].set_class(layout.traces == 0, "empty")
        self._fixed["events"].styles.height = layout.events

    def _title(self, view: View, width: int) -> Line:
        state = TitleState(
            clock=clock(view.snapshot.taken_at, utc_offset_s()),
            demo=view.title if view.source == "demo" else None,
            replay=_replay(view),
            paused=view.paused,
            readonly=view.readonly,
            recording=view.recording,
            disconnected=view.trouble is not None,
        )
        return title_line(view.snapshot, state, width, view.glyphs)

    def _driver_panel(self, view: View, width: int) -> list[Line] | None:
        """What stands where the GPUs would, when there is no driver."""
        error = view.snapshot.driver.error
        if error is None or view.snapshot.gpus:
            return None
        return driver_panel(error, width, view.glyphs)

    def _show_gpus(
        self, view: View, width: int, layout: OverviewLayout, panel: Sequence[Line] | None
    ) -> None:
        snapshot = view.snapshot
        if panel is not None:
            self._gpus.header = None
            self._gpus.show(Row(("panel", number), line) for number, line in enumerate(panel))
            return
        rows = gpu_lines(
            snapshot.gpus,
            view.history,
            width,
            layout.gpus,
            view.glyphs,
            snapshot_remarks(snapshot),
            view.interval_s,
        )
        headed = bool(rows) and rows[0].key == ("gpus", "header", 0)
        self._gpus.header = rows[0].line if headed else None
        self._gpus.show(rows[headed:])

    def _show_traces(
        self, view: View, width: int, layout: OverviewLayout, metrics: Sequence[Metric]
    ) -> None:
        if layout.traces:
            gpus = view.snapshot.gpus
            self._fixed["traces"].show_lines(
                trace_lines(view.history, gpus, width, layout.traces, view.glyphs, metrics)
            )

    def _alerts(self, view: View, found: Sequence[Alert], width: int) -> Line:
        if view.trouble is not None:
            return ((f" ! {view.trouble}"[:width], "error"),)
        if self._filter.error is not None:
            return ((f" ! {self._filter.error}"[:width], "warn"),)
        if view.snapshot.driver.error is not None and not view.snapshot.gpus:
            return self._without_driver(view, found, width)
        return alert_line(found, width, view.glyphs, self._hint(found))

    def _without_driver(self, view: View, found: Sequence[Alert], width: int) -> Line:
        """The panel says what it is: here only what leads out of it, and what else is wrong."""
        error = view.snapshot.driver.error
        said = "" if error is None else foreign(error.message)
        rest = [
            one
            for one in found
            if one.sentence != said
            and (one.finding is None or one.finding.cause not in SAME["driver"])
        ]
        self._trouble = rest[0] if rest else None
        key = self.key_of("app.troubleshoot")
        works = error is not None and error.code in ("no_devices", "no_such_gpu")
        what = "no GPU" if works else "no driver"
        words = f"{what}: {key} leads through it" if key else what
        return alert_line([Alert("error", words), *rest], width, view.glyphs)

    def _hint(self, found: Sequence[Alert]) -> str:
        """What a key does about the first alert: never a key that would do it to another row."""
        self._trouble = first = found[0] if found else None
        if first is None:
            return ""
        if first.finding is not None and not _is_for_killing(first.finding):
            return f"{self.key_of('app.findings')}: what to do"
        if first.pid is None and first.gpu is None:
            return ""
        process = self._under_cursor()
        if first.pid is None or process is None or process.pid != first.pid:
            return f"{self.key_of('trouble')}: go there"
        if not process.visible or (process.user is None and process.uid is None):
            return ""  # nobody knows whose it is: no key offers to end it
        key = self.key_of("kill")
        return f"{key}: kill it" if key else ""

    def _show_processes(self, view: View, width: int) -> None:
        every = view.snapshot.processes
        if self._tags:  # of one that has ended nothing is seen: x would be for it alone
            here = {identity(one) for one in every}
            self._tags = {key: one for key, one in self._tags.items() if key in here}
        chosen = [one for one in every if self._filter.matches(one)] if self._filter else every
        sorted_ = ordered(chosen, self._sort, self._order)
        self._order = tuple(identity(one) for one in sorted_)
        table = process_table(
            width,
            view.glyphs,
            now_s=moment(view.snapshot.taken_at),
            tagged=self._tags,
            attached=[run.pid for run in view.snapshot.runs if run.state != "ended"],
            processes=sorted_,
            stale=[gpu.index for gpu in view.snapshot.gpus if gpu.state != "ok"],
            troubled=troubled(view.snapshot.findings),
        )
        self._table = table.table
        self._processes.header = process_header(table, self._sort)
        self._processes.empty = self._why_empty(view)
        if self._tree and not self._filter:
            self._processes.show(tree_rows(table, sorted_, view.relatives))
        else:
            self._processes.show(process_rows(table, sorted_, self._order))

    def _why_empty(self, view: View) -> Line:
        if self._filter:
            words = f" no process matches {self._filter.describe()}: esc shows all"
        elif view.snapshot.driver.error is not None:
            words = " no process to show"
        else:
            words = " no process holds GPU memory here"
        return ((words, "dim"),)

    def _show_events(self, view: View, width: int, layout: OverviewLayout) -> None:
        events, offset = view.snapshot.events, utc_offset_s()
        if layout.events == 1 or not events:
            lines = [event_strip(events, width, view.glyphs, offset)]
        else:
            lines = newest_events(events, width, view.glyphs, layout.events, offset)
        blank: list[Line] = [()] * (layout.events - len(lines))
        self._fixed["events"].show_lines([*blank, *lines])

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Read-only offers no action at all."""
        if action in ("kill", "tag", "attach"):
            return self.cockpit.offers_actions
        if action == "seek":
            view = self.cockpit.view
            return view is not None and view.playback is not None
        return action != "filter" or not isinstance(self.focused, FilterInput)

    # -- keys

    def action_tree(self) -> None:
        """Under their parents, or flat."""
        self._tree = not self._tree
        if self._tree and self._filter:
            self.notify("The tree is shown when the filter is off.", timeout=3)
        self.cockpit.look_at(tree=self._tree)
        self.redraw()

    def action_sort(self) -> None:
        """By the next column."""
        self._sort, self._order = self._sort.next(), ()
        self.redraw()

    def action_reverse(self) -> None:
        """The other way round."""
        self._sort, self._order = Sort(self._sort.key, not self._sort.reverse), ()
        self.redraw()

    def action_metric(self) -> None:
        """The traces show the next value."""
        self._metric = TRACED[(TRACED.index(self._metric) + 1) % len(TRACED)]
        self.redraw()

    def action_tag(self) -> None:
        """Tag or untag the row, and go to the next."""
        process = self._chosen()
        if process is not None:
            key = identity(process)
            if self._tags.pop(key, None) is None:
                self._tags[key] = Target(pid=process.pid, start_ticks=process.start_ticks)
            self.redraw()
        self._processes.action_cursor_down()

    def action_clear(self) -> None:
        """No tags, no filter."""
        self._tags.clear()
        self._filter = Filter()
        self.query_one(FilterInput).value = ""
        self.query_one(FilterInput).remove_class("open")
        self.redraw()

    def action_filter(self) -> None:
        """Open the line in which the filter is typed."""
        field = self.query_one(FilterInput)
        field.add_class("open")
        self.set_focus(field)

    def action_seek(self, seconds: int) -> None:
        """Within a recording."""
        view = self.cockpit.view
        if view is not None and view.playback is not None:
            self.cockpit.session.play(seek_s=max(0.0, view.playback.position_s + seconds))

    def action_kill(self) -> None:
        """The dialog for the tagged rows, or for the row under the cursor."""
        from cockpit.tui.screens.kill import KillDialog

        targets = tuple(self._tags.values())
        process = self._under_cursor()
        if not targets and process is not None:
            targets = (Target(pid=process.pid, start_ticks=process.start_ticks),)
        if targets:
            self.app.push_screen(KillDialog(targets), self._killed)
        else:
            self._say_no_process()

    def _killed(self, signalled: bool | None) -> None:
        if signalled:
            self._tags.clear()
        self.redraw()

    def action_trouble(self) -> None:
        """The cursor goes to the process of the first alert; without one, its GPU opens; else
        the findings."""
        view, trouble = self.cockpit.view, self._trouble
        if view is None or trouble is None:
            return
        found = [one for one in view.snapshot.processes if one.pid == trouble.pid]
        if found:
            self._processes.cursor = identity(found[0])
            self._processes.focus()
            self.redraw()
        elif any(gpu.index == trouble.gpu for gpu in view.snapshot.gpus):
            self.cockpit.open_gpu(trouble.gpu or 0)
        else:
            self.cockpit.action_findings()

    def action_memory(self) -> None:
        """The memory page of the row under the cursor."""
        process = self._chosen()
        if process is not None:
            from cockpit.tui.screens.memory import MemoryScreen

            self.app.push_screen(MemoryScreen(process, process.pid))

    def action_attach(self) -> None:
        """The dialog for the row under the cursor."""
        process = self._chosen()
        if process is not None:
            from cockpit.tui.screens.attach import AttachDialog

            self.app.push_screen(AttachDialog(process.pid, process.start_ticks))

    def action_environment(self) -> None:
        """The process page, at the environment."""
        self._open_process("environment")

    def _open_process(self, part: Part) -> None:
        process = self._chosen()
        if process is not None:
            from cockpit.tui.screens.process import ProcessScreen

            self.app.push_screen(ProcessScreen(process, part))

    def flow_subject(self) -> FlowSubject:
        """The GPU row where that list has the focus, else the process under the cursor."""
        row = self._gpus.cursor
        if self.focused is self._gpus and isinstance(row, tuple) and row[0] == "gpu":
            return FlowSubject(gpu=int(row[1]))
        one = self._under_cursor()
        if one is None:
            return FlowSubject()
        return FlowSubject(one.pid, one.start_ticks, chosen=self._processes.was_moved)

    def _under_cursor(self) -> Process | None:
        view, key = self.cockpit.view, self._processes.cursor
        if view is None:
            return None
        return next((one for one in view.snapshot.processes if identity(one) == key), None)

    def _chosen(self) -> Process | None:
        """The process under the cursor; a key that finds none there says so."""
        process = self._under_cursor()
        if process is None:
            self._say_no_process()
        return process

    def _say_no_process(self) -> None:
        parent = self._processes.cursor is not None
        words = "Only a parent is under the cursor: it uses no GPU." if parent else ""
        words = words or "No process is under the cursor."
        self.notify(words, severity="warning", timeout=3)

    # -- messages

    @on(HeaderClicked, "#processes")
    def sort_by_click(self, event: HeaderClicked) -> None:
        """On a heading: sort by it; once more: the other way round."""
        name = self._table.name_at(event.x) if self._table is not None else ""
        key = next((one for one in SORT_KEYS if one == name), None)
        if key is not None:
            turned = self._sort.key == key and not self._sort.reverse
            self._sort, self._order = Sort(key, turned), ()
            self.redraw()

    @on(RowHighlighted, "#processes")
    def cursor_moved(self) -> None:
        """What a key would do depends on the row under the cursor."""
        view = self.cockpit.view
        if view is not None:
            self._fixed["alerts"].show_lines(
                [self._alerts(view, alerts(view.snapshot), self.app.size.width)]
            )

    @on(events.Click, "#alerts")
    def open_findings(self) -> None:
        """A click on what is wrong: all of it, with evidence."""
        self.cockpit.action_findings()

    @on(RowChosen, "#processes")
    def open_process(self) -> None:
        """Enter on a process."""
        self._open_process("details")

    @on(RowChosen, "#gpus")
    def open_gpu(self, event: RowChosen) -> None:
        """Enter on a GPU, or on a row of several: its first."""
        if isinstance(event.key, tuple) and event.key[0] == "gpu":
            self.cockpit.open_gpu(int(event.key[1]))

    @on(FilterTyped)
    def filter_typed(self, event: FilterTyped) -> None:
        """Filter while it is typed."""
        self._filter, self._order = parse(event.text), ()
        self.redraw()

    @on(events.DescendantBlur, "#filter")
    def filter_left(self) -> None:
        """Other keys are on now."""
        self.call_after_refresh(self.redraw)

    @on(FilterClosed)
    def filter_closed(self, event: FilterClosed) -> None:
        """Back to the table."""
        self.query_one(FilterInput).remove_class("open")
        if not event.keep:
            self._filter = Filter()
        self._processes.focus()
        self.redraw()


def _is_for_killing(finding: Finding) -> bool:
    """Its first fix is to end the process: only then is the kill key an answer to it."""
    return bool(finding.fixes) and finding.fixes[0].kind == "kill"


def _replay(view: View) -> str | None:
    if view.playback is None:
        return "" if view.source == "replay" else None
    one = view.playback
    return replay_words(one.position_s, one.duration_s, one.speed, one.paused)
