"""Makes the pictures of this folder from the running program, in a real terminal (tmux).

usage: screenshots/make.py            all demo pictures
       screenshots/make.py FILE.ansi  one picture of a captured screen (tests/gpu keeps such files)
"""

from __future__ import annotations

import io
import re
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.terminal.tmux import cockpit, terminal  # noqa: E402

HERE = Path(__file__).parent
WARM_S = 14.0
"""Traces and events need some history to look like anything."""

THEME = TerminalTheme((17, 20, 23), (211, 215, 219), *[[(0, 0, 0)] * 8] * 2)
"""Ground and text of cockpit-dark, for cells that the program left as they were."""

PICTURES = {
    # name: (columns, lines, flags, keys)
    "small": (80, 24, ["--demo", "stray"], []),
    "overview": (120, 36, ["--demo", "busy"], []),
    "kill": (100, 28, ["--demo", "stray"], ["j", "j", "x"]),
    "memory": (120, 30, ["--demo", "busy"], ["j", "j", "j", "j", "j", "m"]),
    "gpu": (120, 36, ["--demo", "throttle"], ["0"]),
    "findings": (110, 28, ["--demo", "stray"], ["i"]),
    "fix": (100, 32, ["--demo", "stray"], ["!"]),
}


def svg(ansi: str, title: str) -> str:
    """The screen as SVG, in any browser's own monospaced font."""
    text = Text.from_ansi(ansi.rstrip("\n"))
    width = max(line.cell_len for line in text.split("\n"))
    console = Console(
        record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(text, no_wrap=True, crop=False, overflow="ignore")
    picture = console.export_svg(title=title, theme=THEME)
    picture = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.S)  # no fonts from elsewhere
    return picture.replace("Fira Code, monospace", "monospace")


def capture(columns: int, lines: int, flags: list[str], keys: list[str]) -> str:
    """What stands on the terminal after the keys."""
    with terminal(columns, lines, COLORTERM="truecolor") as box:
        box.start("clear; " + cockpit(*flags))
        box.wait_for("DEMO")
        time.sleep(WARM_S)
        for key in keys:
            box.type(key)
            time.sleep(0.6)
        time.sleep(1.0)
        return box.screen(styled=True)


def main(arguments: list[str]) -> None:
    """See the module's first lines."""
    for name in arguments:
        source = Path(name)
        (HERE / f"{source.stem}.svg").write_text(svg(source.read_text(), source.stem))
    if not arguments:
        for name, how in PICTURES.items():
            (HERE / f"{name}.svg").write_text(svg(capture(*how), f"cockpit {' '.join(how[2])}"))


if __name__ == "__main__":
    main(sys.argv[1:])
