"""Failures without a known cause, and what is told all the same: exception, place, advice."""

from __future__ import annotations

import io

import pytest

from cockpit.diagnose import diagnose
from cockpit.model.finding import Finding

WORKER = """Traceback (most recent call last):
  File "/home/u/train.py", line 12, in <module>
    for x in loader:
ValueError: Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/v/lib/python3.12/site-packages/torch/utils/data/_utils/worker.py", line 3, in _worker_loop
    data = fetcher.fetch(index)
  File "/home/u/data.py", line 17, in __getitem__
    raise ValueError(text)
ValueError: bad sample 17: corrupt JPEG.
"""
CRASH = """Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/v/lib/python3.12/site-packages/torch/nn/functional.py", line 3 in linear
  File "/home/u/train.py", line 12 in forward
  File "/home/u/train.py", line 90 in main
Segmentation fault (core dumped)
"""


def of(text: str) -> Finding:
    return diagnose(io.BytesIO(text.encode()))


def test_the_exception_of_a_loader_worker_is_named_with_its_own_line() -> None:
    found = of(WORKER)
    assert found.cause == "unknown"
    assert found.title == "ValueError: bad sample 17: corrupt JPEG (/home/u/data.py:17)"
    assert [one.line for one in found.evidence] == [8, 10]
    assert [one.value for one in found.fixes] == ["/home/u/data.py:17", "cockpit run -- <command>"]


def test_a_traceback_without_a_known_kind_of_name_ends_at_its_last_line() -> None:
    text = (
        'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    g()\napp.Stop: no\n'
    )
    assert of(text).title.endswith("app.Stop: no (a.py:3)")


def test_a_long_message_is_cut_between_words() -> None:
    title = of("ValueError: " + "longword " * 30).title
    assert title.endswith("longword…")


def test_an_error_that_speaks_of_the_gpu_still_sends_to_the_kernel_log() -> None:
    found = of("RuntimeError: the GPU did something new\n")
    assert any("journalctl" in one.value for one in found.fixes)


@pytest.mark.parametrize(
    "text",
    [CRASH, "step 1 loss 2\n[the run was ended by SIGSEGV]", "step 1 loss 2\n[exit status 139]"],
)
def test_a_segmentation_fault_asks_for_stacks_and_libraries(text: str) -> None:
    found = of(text)
    values = " ".join(one.value for one in found.fixes)
    assert found.cause == "unknown"
    assert "segmentation fault" in found.title
    assert "coredumpctl" in values
    assert "ldd" in values
    assert "CUDA_LAUNCH_BLOCKING" not in values
    assert ("PYTHONFAULTHANDLER" in values) is (text is not CRASH)


def test_the_place_of_a_crash_is_the_innermost_frame_of_the_user() -> None:
    assert of(CRASH).facts["place"] == "/home/u/train.py:12"


def test_the_end_of_a_run_counts_only_where_it_is_bad() -> None:
    for text in ("step 1 loss 2\n[exit status 0]", "[exit status 0]"):
        assert of(text).cause == "benign"
        assert of(text).title == "The run ended with status 0"
    assert of("step 1 loss 2\n[the run was ended by SIGINT]").cause == "benign"
    assert of("step 1 loss 2\n[exit status 3]").cause == "unknown"


def test_a_traceback_before_a_kill_is_what_is_told() -> None:
    found = of("step 1 loss 2\nValueError: no\n[the run was ended by SIGKILL]")
    assert (found.cause, [one.cause for one in found.also]) == ("unknown", ["host_oom"])


def test_an_error_and_the_line_that_raised_it_are_one_evidence() -> None:
    text = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB"
    found = of(f'    raise torch.OutOfMemoryError("{text}")\ntorch.OutOfMemoryError: {text}\n')
    assert [one.line for one in found.evidence] == [2]


@pytest.mark.parametrize(
    ("line", "sets"),
    [
        ('os.environ["CUDA_VISIBLE_DEVICES"] = "0"', True),
        ('if os.environ["CUDA_VISIBLE_DEVICES"] == "": fail()', False),
    ],
)
def test_reading_the_visible_devices_is_not_setting_them(line: str, sets: bool) -> None:
    found = of(f"    {line}\nRuntimeError: No CUDA GPUs are available\n")
    assert (found.cause == "cvd_after_init") is sets
