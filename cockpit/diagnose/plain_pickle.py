"""Plain data out of a pickle: dictionaries, lists, tuples, texts, numbers, True, False and None.

Not the standard library's reader: that one is a machine that calls what a file names, and even
without any class a file of ten bytes makes it take gigabytes (a memo index of 2 ** 28 took 4 GiB).
Here there is no step that could import, call or build anything, and the memo is a dictionary.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

MOST_STEPS = 10_000_000
"""A dump of 2000 collectives takes some 300,000."""


def load(raw: bytes) -> Any:
    """The one value of a pickle of protocol 2 to 5. Raises ValueError for everything else."""
    try:
        return _Reader(raw).load()
    except (IndexError, KeyError, struct.error) as error:
        raise ValueError("it is cut off or damaged") from error
    except UnicodeDecodeError as error:
        raise ValueError("a text in it is damaged") from error


class _Reader:
    """The stack machine of a pickle, without the steps that do anything."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def load(self) -> Any:
        for _ in range(MOST_STEPS):
            code = self.raw[self.at]
            self.at += 1
            if code == _STOP:
                return self.stack.pop()
            step = _STEPS.get(code)
            if step is None:
                raise ValueError(f"it holds more than plain data (step {code:#04x})")
            step(self)
        raise ValueError("it has too many parts")

    def take(self, count: int) -> bytes:
        """The next bytes."""
        end = self.at + count
        if end > len(self.raw):
            raise ValueError("it is cut off")
        found = self.raw[self.at : end]
        self.at = end
        return found

    def number(self, form: str) -> Any:
        """In the form of the struct module."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self, length: int) -> None:
        self.stack.append(self.take(length).decode("utf-8", "surrogatepass"))

    def since_mark(self) -> list[Any]:
        begin = self.marks.pop()
        found = self.stack[begin:]
        del self.stack[begin:]
        return found

    def last(self, count: int) -> list[Any]:
        if count > len(self.stack):
            raise ValueError("it is damaged")
        found = self.stack[-count:]
        del self.stack[-count:]
        return found

    def extend(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise ValueError("it is damaged")
        target.extend(values)

    def update(self, pairs: list[Any]) -> None:
        """Only texts and numbers are keys: the hash of nested tuples may take for ever."""
        target = self.stack[-1]
        if not isinstance(target, dict) or len(pairs) % 2:
            raise ValueError("it is damaged")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, (str, int)):
                raise ValueError("it has a key that is no text")
            target[key] = value


def _push(form: str) -> Callable[[_Reader], None]:
    return lambda reader: reader.stack.append(reader.number(form))


def _constant(value: object) -> Callable[[_Reader], None]:
    return lambda reader: reader.stack.append(value)


def _text(form: str) -> Callable[[_Reader], None]:
    return lambda reader: reader.text(reader.number(form))


def _tuple(count: int) -> Callable[[_Reader], None]:
    return lambda reader: reader.stack.append(tuple(reader.last(count)))


def _put(form: str) -> Callable[[_Reader], None]:
    def step(reader: _Reader) -> None:
        reader.memo[reader.number(form)] = reader.stack[-1]

    return step


def _get(form: str) -> Callable[[_Reader], None]:
    return lambda reader: reader.stack.append(reader.memo[reader.number(form)])


def _memoize(reader: _Reader) -> None:
    reader.memo[len(reader.memo)] = reader.stack[-1]


def _protocol(reader: _Reader) -> None:
    if reader.number("B") > 5:
        raise ValueError("it is of a newer format")


_STOP = ord(".")
_STEPS: dict[int, Callable[[_Reader], None]] = {
    0x80: _protocol,
    0x95: lambda reader: reader.number("<Q"),  # how long the next part is: not needed
    ord("("): lambda reader: reader.marks.append(len(reader.stack)),
    ord("}"): lambda reader: reader.stack.append({}),
    ord("]"): lambda reader: reader.stack.append([]),
    ord(")"): _constant(()),
    ord("N"): _constant(None),
    0x88: _constant(True),
    0x89: _constant(False),
    ord("J"): _push("<i"),
    ord("K"): _push("B"),
    ord("M"): _push("<H"),
    ord("G"): _push(">d"),
    0x8A: lambda reader: reader.stack.append(
        int.from_bytes(reader.take(reader.number("B")), "little", signed=True)
    ),
    ord("X"): _text("<I"),
    0x8C: _text("B"),
    ord("a"): lambda reader: reader.extend(reader.last(1)),
    ord("e"): lambda reader: reader.extend(reader.since_mark()),
    ord("s"): lambda reader: reader.update(reader.last(2)),
    ord("u"): lambda reader: reader.update(reader.since_mark()),
    ord("t"): lambda reader: reader.stack.append(tuple(reader.since_mark())),
    0x85: _tuple(1),
    0x86: _tuple(2),
    0x87: _tuple(3),
    ord("q"): _put("B"),
    ord("r"): _put("<I"),
    0x94: _memoize,
    ord("h"): _get("B"),
    ord("j"): _get("<I"),
}
"""Protocol 2 as torch's C++ writes it, and what Python's protocols up to 5 add to plain data."""
