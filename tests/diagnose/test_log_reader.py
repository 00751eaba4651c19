"""Bytes to lines: ranks apart, bars folded, gigabytes in little memory."""

from __future__ import annotations

import io

from cockpit.diagnose import log_reader
from cockpit.diagnose.log_reader import Line, read


def lines(raw: bytes) -> tuple[Line, ...]:
    return read(io.BytesIO(raw)).lines


class Pattern(io.RawIOBase):
    """``line`` again and again up to ``size`` bytes, ``inside`` once in the middle."""

    def __init__(self, line: bytes, size: int, inside: bytes) -> None:
        self._block = line * (log_reader.CHUNK // len(line))
        self._left, self._middle, self._inside = size, size // 2, inside

    def read(self, size: int = -1) -> bytes:
        if self._left <= 0:
            return b""
        block = self._block
        if self._inside and self._left < self._middle:
            block, self._inside = block + self._inside, b""
        self._left -= len(block)
        return block


def test_ranks_spliced_into_one_line_come_apart() -> None:
    first, second = lines(b"[rank3]: File a[rank1]: ValueError: b")
    assert (first.rank, first.text) == (3, " File a")
    assert (second.rank, second.text) == (1, " ValueError: b")
    assert first.number == second.number == 1


def test_prefixes_of_ray_and_vllm_are_taken_off_and_remembered() -> None:
    ray, vllm = lines(
        b"(TrainWorker pid=30, ip=10.0.0.12) boom\n"
        b"(EngineCore_DP0 pid=69) ERROR 02-24 20:21:58 [core.py:712] ValueError: x\n"
    )
    assert (ray.node, ray.pid, ray.text.strip()) == ("10.0.0.12", 30, "boom")
    assert (vllm.pid, vllm.text.strip()) == (69, "ValueError: x")


def test_task_numbers_of_srun_are_ranks_where_most_lines_have_one() -> None:
    assert [line.rank for line in lines(b"0: a\n1: b\n0: c\n")] == [0, 1, 0]
    assert [line.rank for line in lines(b"0: a\nb\nc\nd\n")] == [None] * 4


def test_of_a_progress_bar_the_last_state_is_kept() -> None:
    bar = b"\r".join(b" %d%%|# | %d/100 [00:01<00:09, 9it/s]" % (n, n) for n in range(100))
    assert [line.text.strip()[:3] for line in lines(bar + b"\nend\n")] == ["99%", "end"]


def test_colours_and_broken_utf8_do_not_hide_text() -> None:
    (line,) = lines(b"\x1b[31mRuntime\x1b[0mError: \xff\x00x\x1b]0;title\x07")
    assert line.text == "RuntimeError: \ufffd x"


def test_an_error_in_the_middle_of_a_large_log_is_found_with_its_line_number() -> None:
    stream = Pattern(b"a step without meaning\n", 8 << 20, b"RuntimeError: CUDA error: boom\n")
    log = read(stream)  # type: ignore[arg-type]
    (found,) = [line for line in log.lines if "boom" in line.text]
    assert log.cut
    before = 6 * (log_reader.CHUNK // 23)
    assert found.number == before + 1
    assert sum(len(line.text) for line in log.lines) < 1 << 20


def test_an_error_among_a_million_warnings_is_found() -> None:
    stream = Pattern(b"x.py:1: UserWarning: odd\n", 8 << 20, b"MemoryError: CUDA out of memory\n")
    log = read(stream)  # type: ignore[arg-type]
    assert any("out of memory" in line.text for line in log.lines)


def test_a_large_log_without_a_line_break_is_kept_in_parts() -> None:
    log = read(Pattern(b"\r 1%|# | 1/9 [00:01<00:09]", 8 << 20, b"\rOutOfMemoryError: x\r"))  # type: ignore[arg-type]
    assert any("OutOfMemoryError" in line.text for line in log.lines)


def test_steps_after_an_error_of_the_same_rank_mean_that_it_was_handled() -> None:
    log = read(io.BytesIO(b"[rank0]: step 1\n[rank0]: boom\n[rank0]: step 2\n[rank0]: step 3\n"))
    assert log.went_on_after(1)
    log = read(io.BytesIO(b"[rank0]: step 1\n[rank0]: boom\n[rank1]: step 2\n[rank1]: step 3\n"))
    assert not log.went_on_after(1)
