"""A pickle of plain data is read as Python reads it; nothing else is read, and nothing runs."""

from __future__ import annotations

import os
import pickle
import random
import resource
import time
from pathlib import Path

import pytest

from cockpit.diagnose import plain_pickle
from tests.diagnose.flights import dump, entry

SHARED = ["x" * 300, (1, 2)]
VALUE = {
    "numbers": [0, 255, 65535, -1, 1 << 31, 1 << 63, -(1 << 70), 1.5],
    "texts": ["", "rank", "größer", "\ud800"],
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
    "rest": [True, False, None, {}, [], {1: {"deep": [[[]]]}}],
    "twice": [SHARED, SHARED],
}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_data_comes_out_as_it_went_in(protocol: int) -> None:
    assert plain_pickle.load(pickle.dumps(VALUE, protocol)) == VALUE


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_that_calls_something_is_refused_before_it_does(
    tmp_path: Path, protocol: int
) -> None:
    never = tmp_path / "never"
    raw = pickle.dumps({"version": "2.10", "entries": [Evil(never)]}, protocol)
    with pytest.raises(ValueError, match="more than plain data"):
        plain_pickle.load(raw)
    assert not never.exists()
    pickle.loads(raw)  # the trap is a real one
    assert never.exists()


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", bytearray(b"x"), Path("x"), 1j, len])
def test_what_is_no_plain_data_is_refused(value: object) -> None:
    with pytest.raises(ValueError):
        plain_pickle.load(pickle.dumps(value))


def test_a_file_that_is_cut_off_anywhere_is_refused() -> None:
    raw = pickle.dumps(dump(entry(1), entry(2)), 2)
    for end in range(len(raw)):
        with pytest.raises(ValueError):
            plain_pickle.load(raw[:end])


def test_a_damaged_file_is_read_or_refused_and_nothing_else() -> None:
    chance = random.Random(5)
    whole = pickle.dumps(dump(entry(1), entry(2)), 2)
    for _ in range(3000):
        raw = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        try:
            plain_pickle.load(bytes(raw))
        except ValueError:
            continue


def test_a_few_bytes_take_no_gigabytes() -> None:
    """pickle.loads makes a table of 2 ** 30 places for the first of these."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    bombs = (
        b"\x80\x02}r\x00\x00\x00\x40.",
        b"\x80\x02X\xff\xff\xff\x7fabc.",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
    )
    for raw in bombs:
        try:
            plain_pickle.load(raw)
        except ValueError:
            continue
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB


def test_tuples_in_tuples_are_no_keys() -> None:
    """A tuple that holds the one before twice, a hundred times over: its hash would never end."""
    steps = [b"h%ch%c\x86q%c" % (at, at, at + 1) for at in range(100)]
    nested = b"\x80\x02)q\x00" + b"".join(steps)
    assert isinstance(plain_pickle.load(nested + b"."), tuple)
    with pytest.raises(ValueError, match="a key that is no text"):
        plain_pickle.load(nested + b"}h%cNs." % 100)


def test_a_full_buffer_is_read_in_a_second_or_two() -> None:
    raw = pickle.dumps(dump(*(entry(at) for at in range(1, 2001))), 2)
    began = time.monotonic()
    assert len(plain_pickle.load(raw)["entries"]) == 2000
    assert time.monotonic() - began < 5
