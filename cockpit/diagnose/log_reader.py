"""Bytes that a run printed → the lines that a diagnosis reads, in bounded memory.

What lives here: finding the lines that matter in gigabytes, removing colours and progress bars,
taking ranks apart. What does not: what the lines mean (the family modules).

A log is kept whole up to ``HEAD + TAIL`` bytes. Of a longer one the beginning and the end are kept,
and between them the surroundings of words that errors have (one pass of one bytes regex; no line of
the middle is looked at otherwise).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

CHUNK = 1 << 20
HEAD = 128 << 10
TAIL = 192 << 10
MAX_LINE = 8 << 10
"""Characters of a line; the middle of a longer one goes."""
MAX_HITS = 150
"""Windows kept of the first part of the middle, and again as many of its last part."""
BEFORE, AFTER = 600, 2600
"""Bytes around a hit: a traceback's last frames and an OOM message are 2 kB."""

_WORDS = (
    *("Traceback", "Error", "ERROR", "NVRM", "Xid", "Killed", "Assertion", "Watchdog caught"),
    *("CUDA out of", "HIP out of", "OutOfMemory", "OOM", "Out of memory", "RESOURCE_EXHAUSTED"),
    *("NCCL WARN", "CUBLAS_STATUS", "CUDNN_STATUS", "OutOfResources", "EADDRINUSE", "FAILED"),
    *("Unexpected bus", "UserWarning", "FATAL", "Segmentation fault", "Signal", "Duplicate GPU"),
    *("CUDA_VISIBLE", "Some NCCL", "DistBackend", "AcceleratorError", "RuntimeError", "Cannot re-"),
    *("Found no NVIDIA", "No CUDA", "Exception", "Connection closed", "Fatal"),
)
"""Words that errors have. Searched at once in 5 s for 1 GiB, because each begins with a capital
letter, and logs have few of these."""
TOO_MANY = 20_000
"""A word that comes more often is searched no more: it is this log's everyday word."""
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]{0,500}(?:\x07|\x1b\\)|[()][0-9A-B]|[@-Z\\^_=>])"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BLANKS = re.compile(r"\s{41,}")
"""Longer runs mean nothing, and patterns that begin with white space would crawl over them."""
_SPLICE = re.compile(
    r"(?=\[rank\d{1,5}\]:)|(?<=[^\s\[])(?=\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d,\d+\])"
)
_PREFIX = re.compile(
    r"\s*(?:"
    r"\[rank(?P<rank>\d{1,5})\]:"
    r"|\[(?:default|worker)(?P<local>\d{1,4})\]:"
    r"|\((?P<actor>[\w .:-]{1,60}?) pid=(?P<pid>\d{1,9})(?:, ip=(?P<node>[\w.:-]{1,60}))?\)"
    r"|(?P<host>[\w.-]{1,60}):(?P<hpid>\d{1,9}):\d{1,9} \[(?P<device>\d{1,3})\](?= NCCL)"
    r"|(?:ERROR|INFO|WARNING) \d\d-\d\d \d\d:\d\d:\d\d \[[\w./-]{1,60}:\d{1,6}\]"
    r")"
)
_TASK = re.compile(r"\s*(?P<task>\d{1,4}): ")
_NAMED_RANK = re.compile(r"\[Rank (\d{1,5})\]|\bRank (\d{1,5})\]")
_PROGRESS = re.compile(
    r"\b(?:step|iter(?:ation)?|update|global_step|epoch)\b\W{0,4}\d"
    r"|\d/\d{1,15} \[\d{1,6}:\d\d|\d(?:it/s|s/it|s/step)\b|\bloss\b['\"]?\W{1,4}\d|\d%\|",
    re.IGNORECASE,
)
_STEP = re.compile(
    r"\b(?:global_step|step|iter(?:ation)?|update)\b\W{1,5}(\d{1,15}(?:\.\d{1,15})?)"
    r"|(?<!\d)(\d{1,15})/\d{1,15} \[",
    re.IGNORECASE,
)
_STEP_BEFORE = 400
"""Lines back in which the step before an error is looked for."""


class Line(NamedTuple):
    """One piece of text of one rank, without its prefix."""

    number: int
    """In the log as an editor counts, from 1; a progress bar's states share one."""
    text: str
    rank: int | None = None
    node: str | None = None
    pid: int | None = None

    @property
    def is_progress(self) -> bool:
        """A step counter, a progress bar, a loss."""
        return _PROGRESS.search(self.text) is not None

    @property
    def step(self) -> float | None:
        """The step counter's value where the line shows one."""
        match = _STEP.search(self.text)
        return float(match[1] or match[2]) if match else None


class _Progress:
    """Where one rank shows progress, and what comes from there to the end: looked through once,
    because a program may handle an exception at every step."""

    def __init__(self, lines: Sequence[Line], rank: int | None) -> None:
        shown = [
            index
            for index, line in enumerate(lines)
            if line.rank == rank and (line.is_progress or line.step is not None)
        ]
        self._stepped = [index for index in shown if lines[index].step is not None]
        self._steps = [lines[index].step or 0.0 for index in self._stepped]
        self._places = [
            index
            for index in shown
            if lines[index].is_progress and "Traceback" not in lines[index].text
        ]
        self._ends: list[_End] = [_End()]
        for index in reversed(self._places):
            self._ends.append(self._ends[-1].with_line(lines[index]))
        self._ends.reverse()

    def goes_on_after(self, index: int) -> bool:
        """Two different steps, the highest above the step before; two lines where none is named."""
        end = self._ends[bisect_right(self._places, index)]
        if end.highest is None:
            return end.texts
        at = bisect_left(self._stepped, index) - 1
        near = at >= 0 and self._stepped[at] >= index - _STEP_BEFORE
        return end.steps and (not near or end.highest > self._steps[at])


class _End(NamedTuple):
    """The lines of progress from one of them to the end."""

    text: str | None = None
    texts: bool = False
    """At least two different ones."""
    step: float | None = None
    steps: bool = False
    """At least two different ones."""
    highest: float | None = None

    def with_line(self, line: Line) -> _End:
        """One more before them."""
        texts = self.texts or self.text not in (None, line.text)
        step = line.step
        if step is None:
            return self._replace(text=line.text, texts=texts)
        steps = self.steps or self.step not in (None, step)
        highest = step if self.highest is None else max(step, self.highest)
        return _End(line.text, texts, step, steps, highest)


class Log:
    """The kept lines, and their text joined for patterns that cross lines."""

    def __init__(self, lines: Iterable[Line], size_bytes: int = 0, cut: bool = False) -> None:
        self.lines = tuple(lines)
        self.size_bytes = size_bytes
        self.cut = cut
        """The middle was searched, not kept."""
        self.text = "\n".join(line.text for line in self.lines)
        self._progress: dict[int | None, _Progress] = {}
        self._starts: list[int] = []
        at = 0
        for line in self.lines:
            self._starts.append(at)
            at += len(line.text) + 1

    def index_at(self, position: int) -> int:
        """Which line a position of :attr:`text` is in."""
        low, high = 0, len(self._starts)
        while high - low > 1:
            middle = (low + high) // 2
            if self._starts[middle] <= position:
                low = middle
            else:
                high = middle
        return low

    def line_at(self, position: int) -> Line:
        """The line that a position of :attr:`text` is in."""
        return self.lines[self.index_at(position)]

    def start_of(self, index: int) -> int:
        """Where a line starts in :attr:`text`."""
        return self._starts[index]

    def record(self, index: int, lines: int = 4) -> str:
        """A line and the next ones of its rank, as one line: a message that was wrapped."""
        first = self.lines[index]
        texts = [first.text]
        for line in self.lines[index + 1 : index + 40]:
            if len(texts) >= lines:
                break
            if line.rank == first.rank and line.pid == first.pid:
                texts.append(line.text)
        return " ".join(" ".join(texts).split())

    def went_on_after(self, index: int) -> bool:
        """The same rank made at least two more steps: what stood there was handled."""
        rank = self.lines[index].rank
        if rank not in self._progress:
            self._progress[rank] = _Progress(self.lines, rank)
        return self._progress[rank].goes_on_after(index)


def read(stream: BinaryIO) -> Log:
    """Reads to the end of the stream. Never more than some MiB are held."""
    sieve = _Sieve()
    while chunk := stream.read(CHUNK):
        sieve.feed(chunk)
    return sieve.finish()


class _Window(NamedTuple):
    """A part of the log as it came."""

    number: int
    """Of its first line."""
    at: int
    """Bytes before it."""
    raw: bytes


class _Sieve:
    """Keeps the head, the tail, and windows around hits between them."""

    def __init__(self) -> None:
        self._size = 0
        self._head = b""
        self._tail = bytearray()
        self._tail_line = 1
        self._tail_at = 0
        self._first: list[_Window] = []
        self._last: deque[_Window] = deque(maxlen=MAX_HITS)
        self._shapes: dict[bytes, int] = {}
        self._counts: Counter[bytes] = Counter()
        self._pattern = _pattern(_WORDS)

    def feed(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if len(self._head) < HEAD:
            self._head += chunk[: HEAD - len(self._head)]
        self._tail += chunk
        if len(self._tail) > 2 * CHUNK:
            self._shrink(len(self._tail) - CHUNK)

    def finish(self) -> Log:
        if self._size <= HEAD + TAIL:
            return Log(_lines(bytes(self._tail), 1), self._size)
        self._shrink(max(0, len(self._tail) - TAIL))
        head = _Window(1, 0, self._head[: self._head.rfind(b"\n") + 1 or None])
        tail = _Window(self._tail_line, self._tail_at, bytes(self._tail))
        windows = sorted([head, *self._first, *self._last, tail], key=lambda one: one.at)
        return Log(_in_order(windows), self._size, cut=True)

    def _shrink(self, surplus: int) -> None:
        """Search the oldest ``surplus`` bytes, up to the end of a line, then let them go."""
        end = self._tail.rfind(b"\n", 0, surplus) + 1 or surplus
        raw = bytes(self._tail[: end + AFTER + MAX_LINE])
        at = counted = 0
        line = self._tail_line
        while (match := self._pattern.search(raw, at, end)) is not None:
            at = match.end()
            shape = raw[match.start() : at + 60].translate(None, b"0123456789.")
            if not self._is_new(match.group(), shape):
                at = raw.find(b"\n", at, end) + 1 or end
                continue
            start = max(match.start() - BEFORE, counted)
            start = max(raw.find(b"\n", start, match.start()) + 1, start)
            line += raw.count(b"\n", counted, start)
            counted, stop = start, match.end() + AFTER
            stop = raw.find(b"\n", stop, stop + MAX_LINE) + 1 or stop + MAX_LINE
            window = _Window(line, self._tail_at + start, raw[start:stop])
            (self._first if len(self._first) < MAX_HITS else self._last).append(window)
        self._tail_line = line + raw.count(b"\n", counted, end)
        self._tail_at += end
        del self._tail[:end]

    def _is_new(self, word: bytes, shape: bytes) -> bool:
        """Of what repeats a few windows are enough."""
        self._counts[word] += 1
        if self._counts[word] == TOO_MANY:
            self._pattern = _pattern(one for one in _WORDS if self._counts[one.encode()] < TOO_MANY)
        seen = self._shapes.get(shape, 0)
        if seen or len(self._shapes) < 4096:
            self._shapes[shape] = seen + 1
        return seen < 3


def _pattern(words: Iterable[str]) -> re.Pattern[bytes]:
    return re.compile("|".join(map(re.escape, words)).encode() or rb"(?!)")


def _in_order(windows: Iterable[_Window]) -> Iterator[Line]:
    """Lines of windows that may overlap, each once."""
    end = 0
    for number, at, raw in windows:
        known = max(0, end - at)
        if known < len(raw):
            yield from _lines(raw[known:], number + raw.count(b"\n", 0, known))
            end = at + len(raw)


def _lines(raw: bytes, number: int) -> Iterator[Line]:
    text = _ESCAPE.sub("", raw.decode("utf-8", errors="replace"))
    rows = text.split("\n")
    numbered = sum(1 for row in rows if _TASK.match(row)) * 3 >= len(rows) >= 3
    for offset, row in enumerate(rows):
        for state in _states(row):
            for piece in _SPLICE.split(state):
                line = _line(number + offset, piece, numbered)
                if line.text:
                    yield line


def _states(row: str) -> Iterator[str]:
    """What a terminal shows of it in turn: of a progress bar only the last state."""
    states = [state for state in row.split("\r") if state.strip()]
    for at, state in enumerate(states):
        if at == len(states) - 1 or len(state) > 300 or not _PROGRESS.search(state):
            yield state


def _line(number: int, piece: str, numbered: bool) -> Line:
    if len(piece) > MAX_LINE:
        piece = f"{piece[: MAX_LINE // 2]} … {piece[-MAX_LINE // 2 :]}"
    rank = pid = None
    node = None
    for _ in range(4):
        match = _PREFIX.match(piece) or (_TASK.match(piece) if numbered else None)
        if match is None:
            break
        found = match.groupdict()
        piece = piece[match.end() :]
        rank = _number(found.get("rank") or found.get("task") or found.get("local"), rank)
        pid = _number(found.get("pid") or found.get("hpid"), pid)
        node = found.get("node") or found.get("host") or node
    if rank is None and (named := _NAMED_RANK.search(piece)):
        rank = int(named[1] or named[2])
    text = _BLANKS.sub(" " * 40, _CONTROL.sub(" ", piece)).rstrip()
    return Line(number, text, rank, node, pid)


def _number(text: str | None, otherwise: int | None) -> int | None:
    return int(text) if text else otherwise
