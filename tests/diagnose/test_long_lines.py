"""Logs that are nothing but runs of one kind of character: read in time that grows with size."""

from __future__ import annotations

import io
import time

import pytest

from cockpit.diagnose import diagnose

SIZE = 100_000
"""Bytes: of a log of any size three times as many are kept."""
LINE = 8_000
"""As much of a line as is kept."""
WITHIN_S = 3.0
"""Of CPU time; a tenth of it is used, and it was minutes."""
RUNS = {
    "digits": "1",
    "letters": "a",
    "capitals": "A",
    "underscores": "_",
    "not ASCII": "é",
    "hexadecimal": "ab12",
    "names": "a_A.",
    "numbers": "1.",
    "blanks": " ",
    "tabs": "\t",
    "dots": ".",
    "dashes": "-",
    "slashes": "/",
    "opening brackets": "[",
    "opening parentheses": "(",
    "brackets": "[]",
    "escapes": "\x1b",
    "begun escape sequences": "\x1b[",
    "begun titles": "\x1b]",
    "quotes": "'",
    "backticks": "`",
    "bars": "| ",
    "percents": "1%",
    "list items": "1, ",
    "columns": "1 a ",
    "scopes": "a::",
    "paths": "a/",
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_run_of_one_kind_of_character_is_read_in_time(run: str) -> None:
    text = run * (SIZE // len(run.encode()))
    raw = "\n".join(text[at : at + LINE] for at in range(0, len(text), LINE)).encode()
    begun = time.process_time()
    diagnose(io.BytesIO(raw))
    assert time.process_time() - begun < WITHIN_S


def test_thousands_of_handled_exceptions_are_read_in_time() -> None:
    begun = time.process_time()
    text = "".join(f"step {step} loss 2\nValueError: no\n" for step in range(6_000))
    diagnose(io.BytesIO(text.encode()))
    assert time.process_time() - begun < WITHIN_S


def test_thousands_of_errors_that_wrap_each_other_have_an_answer() -> None:
    found = diagnose(io.BytesIO(b"ValueError: Caught ValueError in worker 1\n" * 3_000))
    assert found.cause == "unknown"
