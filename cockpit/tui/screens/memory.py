"""The memory of a run: bar and trend, segment map, census, allocations by stack, threads; fixes.

The bar is drawn from each snapshot; the other parts are asked for when they are opened or with
``r``. ``j`` and ``k`` scroll here as everywhere, so the threads have ``t``. Longer than a file
should be: five parts share the subject, its answers and what is said while one is awaited.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from textual import work
from textual.binding import Binding, BindingType

from cockpit.errors import CockpitError
from cockpit.model.memory import Census, Question, Segments, Stacks
from cockpit.model.process import Process
from cockpit.model.run import Run
from cockpit.model.time import iso
from cockpit.tui.flow_request import FlowSubject
from cockpit.tui.line import Line
from cockpit.tui.render.cells import foreign, wrapped
from cockpit.tui.render.census_lines import census_lines, site_lines
from cockpit.tui.render.fix import Fix
from cockpit.tui.render.fix_lines import detach_fix, fixes_of
from cockpit.tui.render.memory_bar import Slice, slices_of
from cockpit.tui.render.memory_page import (
    device_lines,
    driver_bars,
    driver_view_lines,
    facts_line,
    framework_lines,
    memory_title,
    state_lines,
)
from cockpit.tui.render.memory_plot import Series
from cockpit.tui.render.memory_subject import Subject, place_of, segments_for
from cockpit.tui.render.memory_tabs import tab_line
from cockpit.tui.render.rank_lines import family, rank_lines
from cockpit.tui.render.segment_map import segment_lines
from cockpit.tui.render.stack_lines import stack_lines
from cockpit.tui.render.times import clock
from cockpit.tui.screens.base import SubPage
from cockpit.tui.view import View, utc_offset_s

Tab = Literal["bar", "segments", "census", "history", "stacks"]
TABS: tuple[Tab, ...] = ("bar", "segments", "census", "history", "stacks")
_QUESTIONS: dict[Tab, Question] = {
    "bar": "segments",
    "segments": "segments",
    "census": "census",
    "history": "segments",
    "stacks": "stacks",
}
"""What each part is made of."""
PLOT_EVERY_S = 2.0
"""A plot shifts as a whole, which costs bytes: it moves every other second at the most."""
PLOT_HEIGHT, MOST_PLOT_HEIGHT = 10, 18
MOST_PLOTS = 4
"""A process with more devices than this has plots of the first ones only."""


class MemoryScreen(SubPage):
    """``MemoryScreen(process, pid)``.

    ``process`` is the row it was opened from (None: a run that holds no GPU memory yet).
    """

    HINTS = (
        "page.back",
        "memory.fix",
        "memory.attach",
        "memory.segments",
        "memory.census",
        "memory.stacks",
        "memory.history",
        "memory.bar",
        "memory.next",
        "memory.detach",
        "memory.again",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "tab('bar')", "bar", id="memory.bar", tooltip="Bar, trend and advice"),
        Binding("s", "tab('segments')", "segments", id="memory.segments", tooltip="Segment map"),
        Binding("c", "tab('census')", "census", id="memory.census", tooltip="Tensors by kind"),
        Binding("h", "tab('history')", "by stack", id="memory.history", tooltip="By stack"),
        Binding("t", "tab('stacks')", "threads", id="memory.stacks", tooltip="Where threads are"),
        Binding("tab", "next_tab(1)", "next part", id="memory.next_tab", show=False),
        Binding("shift+tab", "next_tab(-1)", "part before", id="memory.previous_tab", show=False),
        Binding("C", "deep", "deep census", id="memory.deep", show=False),
        Binding("r,f5", "again", "read again", id="memory.again"),
        Binding("f", "fix", "fix", id="memory.fix", tooltip="What can be done in the process"),
        Binding("a", "attach", "attach", id="memory.attach", tooltip="Load the agent"),
        Binding("d", "detach", "detach", id="memory.detach", tooltip="Take the agent out"),
        Binding("left", "step(-1)", "run before", id="memory.previous", show=False),
        Binding("right", "step(1)", "next run", id="memory.next", key_display="← →"),
    ]

    def __init__(self, process: Process | None, pid: int) -> None:
        super().__init__()
        self._pid = pid
        self._process = process
        self._born = None if process is None else process.start_ticks
        """With the pid its identity; None until a run or a row of that pid was seen."""
        self._tab: Tab = "bar"
        self._forget()

    def _forget(self) -> None:
        """Another run: nothing that was asked holds."""
        self._segments: Segments | None = None
        self._census: Census | None = None
        self._stacks: Stacks | None = None
        self._asked_at: dict[Question, str] = {}
        self._troubles: dict[Question, str] = {}
        self._no_python: str | None = None
        self._plotted: tuple[object, ...] | None = None
        self._plots: list[Line] = []
        self._drawn: tuple[object, ...] = ()
        self._answered: list[Line] | None = None

    def on_mount(self) -> None:
        """The segment map makes the bar exact, and costs two milliseconds."""
        if self._run_now() is not None:
            self._ask("segments")
        else:
            self._ask_whether_python()

    @property
    def _question(self) -> Question:
        """What the open part is an answer to."""
        return _QUESTIONS[self._tab]

    def choose(self, pid: int) -> None:
        """Show another process."""
        view = self.cockpit.view
        rows = () if view is None else view.snapshot.processes
        self._pid, self._process = pid, next((p for p in rows if p.pid == pid), None)
        self._born = None if self._process is None else self._process.start_ticks
        self._forget()
        if self._tab != "bar" or self._run_now() is not None:
            self._ask(self._question)
        if self._run_now() is None:
            self._ask_whether_python()
        self.redraw()

    # -- keys

    def action_tab(self, tab: Tab) -> None:
        """One part of the page; asked for when it is opened."""
        self._tab = tab
        if tab != "bar":
            self._ask(self._question)
        self.redraw()

    def action_next_tab(self, step: int) -> None:
        """Round the end."""
        self.action_tab(TABS[(TABS.index(self._tab) + step) % len(TABS)])

    def action_again(self) -> None:
        """Ask anew."""
        if self._tab == "bar" and self._living() is None:
            self.notify("No agent is in this process: there is nothing to read again.", timeout=4)
        else:
            self._ask(self._question)

    def action_deep(self) -> None:
        """The census of every object."""
        self._tab = "census"
        self._ask("census", deep=True)
        self.redraw()

    def action_step(self, step: int) -> None:
        """The next attached run, round the end."""
        view = self.cockpit.view
        pids = [] if view is None else [run.pid for run in view.snapshot.runs]
        if pids:
            here = pids.index(self._pid) if self._pid in pids else -min(step, 0) - 1
            self.choose(pids[(here + step) % len(pids)])

    def action_attach(self) -> None:
        """The dialog asks first."""
        from cockpit.tui.screens.attach import AttachDialog

        self.app.push_screen(AttachDialog(self._pid, self._born), self._changed)

    def action_fix(self) -> None:
        """The menu; the dialog of what was chosen asks once."""
        from cockpit.tui.screens.fixes import FixMenu

        run, view = self._living(), self.cockpit.view
        if run is None or view is None:  # the key is off then
            return
        framework = None if self._process is None else self._process.framework
        fixes = fixes_of(run, self._sum(run), framework)
        self.app.push_screen(FixMenu(fixes, view.glyphs), self._fix)

    def action_detach(self) -> None:
        """The dialog asks first."""
        run = self._living()
        if run is not None:
            self._fix(detach_fix(run))

    def _fix(self, fix: Fix | None) -> None:
        if fix is not None:
            from cockpit.tui.screens.fixes import FixDialog

            self.app.push_screen(FixDialog(fix), self._changed)

    def _changed(self, done: bool | None) -> None:
        if done and self._run_now() is not None:
            self._ask(self._question)
        self.redraw()

    def flow_subject(self) -> FlowSubject:
        """This run."""
        return FlowSubject(pid=self._pid, start_ticks=self._born)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Read-only offers no action at all; attach and detach as they apply."""
        if action in ("detach", "fix"):
            return self._living() is not None and self.cockpit.offers_actions
        if action == "attach":
            wanted = self._run_now() is None and self._no_python is None
            seen = self._process is None or self._process.visible
            return wanted and seen and self.cockpit.offers_actions
        return True

    # -- what is asked

    @work(exclusive=True, exit_on_error=False)
    async def _ask(self, question: Question, deep: bool = False) -> None:
        session, pid, view = self.cockpit.session, self._pid, self.cockpit.view
        trouble: str | None = None
        try:
            if view is not None and self._has_another(view):  # questions know a run by its pid
                raise CockpitError(f"pid {pid} has ended.")
            if question == "census":
                census = await session.census(pid, deep=deep)
                self._census = census if pid == self._pid else self._census
            elif question == "stacks":
                stacks = await session.stacks(pid)
                self._stacks = stacks if pid == self._pid else self._stacks
            else:
                segments = await session.segments(pid)
                self._segments = segments if pid == self._pid else self._segments
        except CockpitError as error:
            trouble = str(error)
        if pid == self._pid:
            self._note(question, trouble)
            self.redraw()

    def _note(self, question: Question, trouble: str | None) -> None:
        """When this was answered, or why not; what other parts say is of another moment."""
        if trouble is not None:
            self._troubles[question] = trouble
            return
        view = self.cockpit.view
        self._troubles.pop(question, None)
        self._asked_at[question] = "" if view is None else view.snapshot.taken_at

    @work(exclusive=True, group="plan", exit_on_error=False)
    async def _ask_whether_python(self) -> None:
        """A plan of an attach says it, and changes nothing."""
        pid = self._pid
        try:
            plan = await self.cockpit.session.attach_plan(pid, self._born)
        except CockpitError:  # it has gone: the next snapshot says so
            return
        if pid == self._pid and plan.code == "not_python":
            self._no_python = plan.sentence
            self.redraw()

    # -- drawing

    def show(self, view: View) -> None:
        """Title, parts, and the part that is open."""
        subject = self._subject(view)
        width = self.app.size.width
        self.refresh_bindings()
        title = memory_title(subject, width, view.glyphs)
        lines = [*self._head(view, subject, width), *self._body(view, subject, width)]
        self.show_lines(view, title, lines)

    def _subject(self, view: View) -> Subject:
        snapshot = view.snapshot
        row = next((one for one in snapshot.processes if one.pid == self._pid), None)
        if row is not None and self._is_same(row):
            self._process, self._born = row, row.start_ticks
        run = self._run_now()
        if run is not None and self._born is None:
            self._born = run.start_ticks
        return Subject(
            pid=self._pid,
            process=self._process,
            run=run,
            gpus={gpu.index: gpu for gpu in snapshot.gpus},
            history=view.run_history,
            segments=self._segments,
            keys=self.bound_keys(),
        )

    def _is_same(self, one: Process | Run) -> bool:
        """By start time: a pid alone is no identity."""
        return one.pid == self._pid and self._born in (None, one.start_ticks)

    def _has_another(self, view: View) -> bool:
        """Its number belongs to another process by now."""
        every: tuple[Process | Run, ...] = (*view.snapshot.processes, *view.snapshot.runs)
        ours = [self._is_same(one) for one in every if one.pid == self._pid]
        return bool(ours) and not any(ours)

    def _head(self, view: View, subject: Subject, width: int) -> list[Line]:
        facts = facts_line(subject, width)
        lines: list[Line] = [facts] if facts else []
        known = view.run_history.known_at(self._pid)
        at = "–" if known is None else clock(iso(known), utc_offset_s())
        lines += state_lines(subject, width, at)
        is_listed = any(one.pid == self._pid for one in view.snapshot.processes)
        if self._has_another(view):
            words = f" pid {self._pid} has ended; another process has its number now."
            lines.append(((words, "warn"),))
        elif subject.process is not None and subject.run is None and not is_listed:
            lines.append(((" It holds no GPU memory any more.", "warn"),))
        lines.append(tab_line(TABS, self._tab, width, view.glyphs))
        return [view.glyphs.finish(line) for line in lines]

    def _body(self, view: View, subject: Subject, width: int) -> list[Line]:
        if self._tab == "bar":
            return self._bar(view, subject, width)
        answer, trouble = self._answer(view, subject, width), self._troubles.get(self._question)
        if trouble is not None:
            parts = wrapped(foreign(trouble), width - 2)
            return [((f" {part}", "warn"),) for part in parts]
        if answer is None:
            return [((f" asking pid {self._pid} …", "dim"),)]
        at = clock(self._asked_at.get(self._question, ""), utc_offset_s())
        again = f" as of {at}   {subject.key('again')} reads again"
        return [((again, "dim"),), *answer]

    def _answer(self, view: View, subject: Subject, width: int) -> list[Line] | None:
        """What was asked for, as lines; made once, for a map of 4,000 segments takes its time."""
        state = (self._tab, width, self._census, self._stacks, self._segments)
        same = len(self._drawn) == len(state) and all(
            a is b for a, b in zip(self._drawn, state, strict=True)
        )
        if not same or self._answered is None:
            self._drawn, self._answered = state, self._answer_lines(view, subject, width)
        return self._answered

    def _answer_lines(self, view: View, subject: Subject, width: int) -> list[Line] | None:
        """None while it is on its way."""
        glyphs = view.glyphs
        if self._tab == "census" and self._census is not None:
            return census_lines(self._census, width, glyphs, subject.key("deep"))
        if self._tab == "stacks" and self._stacks is not None:
            return stack_lines(self._stacks, width, glyphs)
        if self._tab == "segments" and self._segments is not None:
            return segment_lines(self._segments, width, glyphs)
        if self._tab == "history" and self._segments is not None:
            parts = wrapped(foreign(self._segments.sentence or ""), width - 2)
            why: list[Line] = [((f" {part}", "warn"),) for part in parts if part]
            key = subject.key("fix")
            return [*why, *site_lines(self._segments.sites, width, glyphs, key)]
        return None

    def _bar(self, view: View, subject: Subject, width: int) -> list[Line]:
        run, glyphs = subject.run, view.glyphs
        if run is None:
            lines = driver_view_lines(subject, width, self._no_python)
            return [glyphs.finish(line) for line in (*lines, *driver_bars(subject, width, glyphs))]
        lines = framework_lines(subject, width)
        for device in run.devices:
            lines += [*device_lines(subject, device, width, glyphs), ()]
        snapshot = view.snapshot
        kin = family(self._pid, snapshot.runs, {one.pid: one for one in snapshot.processes})
        ranks = rank_lines(kin, self._pid, width, glyphs)
        lines += [*ranks, ()] if ranks else []
        return [*lines, *self._plot_lines(view, run, width, len(lines))]

    def _plot_lines(self, view: View, run: Run, width: int, above: int) -> list[Line]:
        """One plot a device, as high as what is left of the screen, within reason."""
        beat = int(view.run_history.count * view.interval_s / PLOT_EVERY_S)
        room = (self.app.size.height - above - 5) // max(1, len(run.devices))
        height = min(MOST_PLOT_HEIGHT, max(PLOT_HEIGHT, room))
        state = (self._pid, width, beat, len(run.devices), height)
        if state != self._plotted:
            self._plotted = state
            gpus = {gpu.index: gpu for gpu in view.snapshot.gpus}
            self._plots = []
            for device in run.devices[:MOST_PLOTS]:
                total = place_of(gpus.get(device.gpu)).total_bytes
                series = Series(view.run_history, self._pid, device.gpu, total)
                self._plots += series.lines(width - 1, height, view.glyphs)
        return self._plots

    def _run_now(self) -> Run | None:
        view = self.cockpit.view
        runs: Sequence[Run] = () if view is None else view.snapshot.runs
        return next((run for run in runs if self._is_same(run)), None)

    def _living(self) -> Run | None:
        """The run where something can still be done in it."""
        run = self._run_now()
        return None if run is None or run.state == "ended" else run

    def _sum(self, run: Run) -> list[Slice]:
        """The slices of all devices together: a fix works on all of them."""
        total: dict[str, Slice] = {}
        for device in run.devices:
            for one in slices_of(device, segments_for(self._segments, run, device)):
                old = total.get(one.key)
                total[one.key] = one._replace(bytes=one.bytes + (old.bytes if old else 0))
        return list(total.values())
