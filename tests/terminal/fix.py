"""A person in a real terminal who is led through a fix: reads the screen, answers, counts keys.

Options are found by their titles, as a person finds them; nothing here knows a number.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.terminal.tmux import Terminal, terminal

COLS, ROWS = 180, 300
"""So large that a whole flow stands on it."""
PROMPT = re.compile(r"(?:Choose \[1-\d+\]:|\[y/N\]|^type (?P<typed>.+) to go on:)$", re.M)
OPTION = re.compile(r"^  (\d+)\. (.+)$")


class Walk:
    """One command line in a terminal, from Enter to its end."""

    def __init__(self, box: Terminal, command: str, *, within_s: float = 60.0) -> None:
        """Types the command line and waits for the first prompt, or its end."""
        self.box, self.keys = box, 0
        self.began = time.monotonic()
        tag = f"status-{time.monotonic_ns()}"
        self._over = re.compile(rf"^{tag}=(\d+)$", re.M)
        box.start(f"{command}; echo {tag}=$?")
        self.screen = self._wait("", within_s)

    @property
    def seconds(self) -> float:
        """Since the command line was typed."""
        return time.monotonic() - self.began

    @property
    def status(self) -> int | None:
        """Of the command, once it has ended."""
        found = self._over.search(self.screen)
        return int(found[1]) if found else None

    @property
    def last_words(self) -> str:
        """What a command that has ended said last."""
        found = self._over.search(self.screen)
        said = self.screen[: found.start()].rstrip() if found else self.screen
        return " ".join(said.rpartition("\n\n")[2].split())

    @property
    def options(self) -> dict[int, str]:
        """Number → title of each option of the open choice, with the lines below it."""
        found: dict[int, str] = {}
        below: list[str] = []
        for line in reversed(self.screen.splitlines()):
            if option := OPTION.match(line):
                found[int(option[1])] = " ".join((option[2], *reversed(below)))
                if int(option[1]) == 1:
                    break
            below = [*below, line.strip()] if line.startswith("     ") else []
        return dict(sorted(found.items()))

    def offers(self, title: str) -> bool:
        """An option with this pattern in its title is there."""
        return self._number(title) is not None

    def says(self, words: str) -> bool:
        """They stand on the screen, wherever the lines were broken."""
        return words in " ".join(self.screen.split())

    def choose(self, title: str, *, within_s: float = 60.0) -> None:
        """The first option with this pattern in its title. Fails with the screen without one."""
        number = self._number(title)
        assert number is not None, f"no option `{title}` in {self.options}\n{self.screen}"
        self._answer(str(number), within_s)

    def consent(self, *, within_s: float = 60.0) -> None:
        """Yes to what is shown, or the word that is to be typed."""
        found = self._prompt()
        assert found is not None, f"no question\n{self.screen}"
        self._answer(found["typed"] or "y", within_s)

    def do(self, title: str, *, within_s: float = 60.0) -> None:
        """Choose and consent."""
        self.choose(title)
        self.consent(within_s=within_s)

    def leave(self) -> None:
        """The last option, always there."""
        self._answer(str(max(self.options)), 20.0)

    # -- inside

    def _number(self, title: str) -> int | None:
        return next((n for n, text in self.options.items() if re.search(title, text)), None)

    def _prompt(self) -> re.Match[str] | None:
        """The question that waits: it is the last thing on the screen."""
        screen = self.screen
        found = list(PROMPT.finditer(screen))
        return found[-1] if found and found[-1].end() == len(screen) else None

    def _answer(self, text: str, within_s: float) -> None:
        assert self.status is None, f"it has ended\n{self.screen}"
        self.keys += len(text) + 1
        before = self.screen
        self.box.type("-l", text)
        self.box.type("Enter")
        self.screen = self._wait(before, within_s)

    def _wait(self, before: str, within_s: float) -> str:
        def waits(screen: str) -> bool:
            self.screen = screen = screen.rstrip()
            asks = screen != before and self._prompt() is not None
            return asks or self._over.search(screen) is not None

        return self.box.wait_for(waits, within_s).rstrip()


@contextmanager
def desk(build: Path | None = None, **environ: str) -> Iterator[Terminal]:
    """A terminal that is large enough for whole flows."""
    with terminal(COLS, ROWS, build, **environ) as box:
        yield box
