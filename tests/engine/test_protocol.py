"""The wire: whatever is written is read back, and nonsense is told apart."""

from __future__ import annotations

import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.engine import protocol
from cockpit.engine.wire import LineReader, LineWriter
from cockpit.model.action import KillRequest, Target

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
ids, pids, ticks = st.integers(0, 2**31), st.integers(1, 2**22), st.none() | st.integers(0, 2**53)
targets = st.lists(st.builds(Target, pid=pids, start_ticks=ticks), max_size=3).map(tuple)
kills = st.builds(KillRequest, targets=targets, signal=texts, job=st.booleans())
requests = st.one_of(
    st.builds(protocol.Watch, interval_s=st.none() | st.floats(0.1, 60), tree=st.booleans()),
    st.builds(protocol.AskDetails, id=ids, pid=pids, start_ticks=ticks),
    st.builds(protocol.RunKill, id=ids, plan=texts, typed=st.none() | texts),
    st.builds(protocol.AskKillPlan, id=ids, request=kills),
)


@given(requests)
def test_a_request_is_one_line_and_comes_back_equal(request: protocol.Message) -> None:
    line = protocol.encode(request)
    assert line.count(b"\n") == 1
    assert protocol.decode_to_engine(line) == request


@given(st.binary(max_size=200))
def test_nonsense_raises_decode_error_and_nothing_else(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        protocol.decode_from_engine(b"\x00" + line)


def test_a_newer_engine_may_send_fields_that_we_do_not_know() -> None:
    hello = b'{"kind":"hello","protocol":2,"version":"9","source":"live","colour":"blue"}'
    assert protocol.decode_from_engine(hello) == protocol.Hello(version="9", source="live")


@given(st.lists(st.binary(min_size=1, max_size=300).filter(lambda b: b"\n" not in b), max_size=8))
def test_lines_come_out_of_a_pipe_as_they_went_in(lines: list[bytes]) -> None:
    read_end, write_end = os.pipe()
    try:
        writer, reader = LineWriter(write_end), LineReader(read_end)
        for line in lines:
            assert writer.write(line + b"\n")
        os.close(write_end)
        got: list[bytes] = []
        while not reader.ended:
            got += reader.read()
    finally:
        os.close(read_end)
    assert got == lines


def test_a_writer_says_when_nobody_reads() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    assert LineWriter(write_end).write(b"x\n") is False
    os.close(write_end)
