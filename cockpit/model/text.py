"""Numbers and foreign text as people read them: in sentences, commands and on screens."""

from __future__ import annotations

import re
from collections.abc import Sequence

MIB = 1 << 20
GIB = 1 << 30

_CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def clean(text: str) -> str:
    """Text from outside, made harmless for a terminal and one line long.

    Control characters (C0, C1), bidirectional overrides, zero-width characters and lone surrogates
    become a visible stand-in, so that nobody can move the cursor, hide text or break the line.
    """
    if text.isascii() and text.isprintable():
        return text
    return _CONTROL.sub(_stand_in, text)


def _stand_in(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return "^" + chr(code + 0x40)
    return "^?" if code == 0x7F else "·"


def clean_command(command: tuple[str, ...], name: str | None = None) -> str:
    """argv as one harmless line; the short name where argv is empty (kernel thread, zombie)."""
    joined = " ".join(command).strip()
    return clean(joined if joined else f"[{name}]" if name else "?")


def sentence(text: str) -> str:
    """With a capital at its beginning and a full stop at its end."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?", ":")) else ".")


def words(name: str) -> str:
    """``data wait`` of ``data_wait``: a key as people read it."""
    return clean(name).replace("_", " ")


def shortened(text: str, most: int) -> str:
    """At most so many characters; ``…`` where something was left out."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def gib(size_bytes: float | None, digits: int = 1) -> str:
    """``14.2``: bytes in GiB, without the unit; ``–`` when not known."""
    return "–" if size_bytes is None else f"{size_bytes / GIB:.{digits}f}"


def size(size_bytes: float | None) -> str:
    """``14.2 GiB``, ``512 MiB``, ``8 kB``: bytes with the unit that fits; ``–`` when not known."""
    if size_bytes is None:
        return "–"
    for limit, unit, digits in ((GIB, "GiB", 1), (MIB, "MiB", 0), (1 << 10, "KiB", 0)):
        if abs(size_bytes) >= limit * 0.95:
            return f"{size_bytes / limit:.{digits}f} {unit}"
    return f"{size_bytes:.0f} B"


def rate(bytes_per_s: float | None) -> str:
    """``1.9G``: bytes per second, short, decimal units as disks and links are sold."""
    if bytes_per_s is None:
        return "–"
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if bytes_per_s >= limit * 0.9995:
            value = bytes_per_s / limit
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"
    return f"{bytes_per_s:.0f}"


def age(seconds: float | None) -> str:
    """``45s``, ``12m``, ``3h12``, ``2d04``: no seconds after the first minute.

    A column in which every row changes each second costs more bytes than all the rest of it.
    """
    if seconds is None:
        return "–"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes = whole // 60
    if minutes < 60:
        return f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02d}"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02d}" if days < 1000 else f"{days}d"


def gpus(indices: Sequence[int]) -> str:
    """``1 GPU (0)``, ``2 GPUs (2, 5)``."""
    return f"{plural(len(indices), 'GPU')} ({', '.join(map(str, indices))})"


def plural(count: int, noun: str) -> str:
    """``1 process``, ``2 processes``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}{'es' if noun.endswith(('s', 'x', 'ch')) else 's'}"
