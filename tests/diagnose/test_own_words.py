"""What an answer says where its cause's general words would say more than the log does."""

from __future__ import annotations

import io
import re

import pytest

from cockpit.diagnose import diagnose
from cockpit.diagnose.answer import REPAIRS
from cockpit.diagnose.fixes import render
from cockpit.diagnose.live import hardware
from cockpit.diagnose.tables import xids
from cockpit.model.finding import Finding
from cockpit.model.xid import XIDS

ALLOCATOR = "DefaultCPUAllocator: can't allocate memory: you tried to allocate {} bytes."
ARRAY = "numpy._core._exceptions._ArrayMemoryError: Unable to allocate {} for an array"
FRAME = 'Traceback (most recent call last):\n  File "/home/u/train.py", line 12, in <module>\n'
LOAD = f"{FRAME}    state = torch.load(path)\n"


def of(text: str) -> Finding:
    return diagnose(io.BytesIO(text.encode()))


@pytest.mark.parametrize(
    "text",
    [
        f"RuntimeError: [enforce fail] err == 0. {ALLOCATOR.format(34359738368)}",
        ARRAY.format("48.0 GiB"),
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
    ],
)
def test_host_memory_names_the_kernel_only_where_the_kernel_did_it(text: str) -> None:
    found = of(text)
    assert found.cause == "host_oom"
    assert "kernel killed" not in found.title + found.explanation


def test_an_absurd_size_of_host_memory_is_told_with_its_size() -> None:
    found = of(ARRAY.format("72.8 TiB"))
    assert found.facts["tried_bytes"] == round(72.8 * (1 << 40))
    assert "memory is not short" in found.title


def test_pinned_memory_is_the_hosts_and_may_be_a_full_gpu() -> None:
    found = of(f"{FRAME}    x.pin_memory()\nRuntimeError: CUDA error: out of memory\n")
    assert [one.cause for one in found.also] == ["oom_other_process"]
    assert "lock" in found.title


def test_an_error_that_the_run_outlived_is_told_beside_what_ended_it() -> None:
    found = of(
        "step 1 loss 2\nskipped: CUDA error: out of memory\nstep 2 loss 2\nstep 3 loss 2\n"
        f"{FRAME}ValueError: no\n"
    )
    assert found.title == "ValueError: no (/home/u/train.py:12)"
    (also,) = found.also
    assert also.why == "seen in line 2; the run went on after it"


def test_of_equal_errors_the_one_that_ended_the_run_is_shown() -> None:
    error = "RuntimeError: CUDA error: out of memory"
    found = of(f"step 1 loss 2\n{error}\nstep 2 loss 2\nstep 3 loss 2\n{FRAME}{error}\n")
    assert [one.line for one in found.evidence] == [7]
    assert found.facts["place"] == "/home/u/train.py:12"


@pytest.mark.parametrize(
    "error",
    [
        "on a CUDA device but torch.cuda.is_available() is False.",
        "on CUDA device 7 but torch.cuda.device_count() is 1.",
    ],
)
def test_a_checkpoint_that_cannot_be_loaded_names_the_load_and_its_change(error: str) -> None:
    found = of(f"{LOAD}RuntimeError: Attempting to deserialize object {error}\n")
    assert (found.flow, found.cause) == ("no-cuda", "checkpoint_device")
    assert found.facts["place"] == "/home/u/train.py:12"
    assert found.fixes[0].kind == "code-change"
    assert "map_location='cpu'" in found.fixes[0].value


@pytest.mark.parametrize(
    ("text", "words", "value"),
    [
        ("OSError: [Errno 24] Too many open files", "more files", "ulimit -n"),
        ("OSError: [Errno 28] No space left on device: '/x'", "is full", "df -h"),
        ("OSError: [Errno 98] Address already in use", "port", "ss -ltnp"),
        ("ImportError: a.so: undefined symbol: _ZN3c104cuda9SetDeviceEi", "another rel", "pip"),
        ("train.py: error: unrecognized arguments: --x", "arguments", ""),
        ("bash: torchrun: command not found", "not there", ""),
        ("slurmstepd: error: *** JOB 1 ON n CANCELLED AT 2026 DUE TO TIME LIMIT ***", "time", ""),
    ],
)
def test_a_usual_failure_without_a_cause_has_its_sentence(
    text: str, words: str, value: str
) -> None:
    found = of(f"{text}\n")
    assert (found.cause, found.severity) == ("unknown", "error")
    assert words in found.explanation
    assert "Nothing in this log" not in found.explanation
    assert value in " ".join(fix.value for fix in found.fixes)


def test_an_xid_without_a_cause_is_told_in_words() -> None:
    found = of("[1.0] NVRM: Xid (PCI:0000:3b:00): 32, pid=12, name=python, channel 8\n")
    assert found.explanation == f"Xid 32: {XIDS[32].meaning}; {XIDS[32].hint}."


def test_a_model_of_llama_cpp_that_does_not_fit_is_told_with_its_size() -> None:
    found = of(
        "alloc_buffer: allocating 15360.00 MiB on device 1: cudaMalloc failed: out of memory\n"
    )
    assert (found.facts["tried_bytes"], found.gpu) == (15360 << 20, 1)
    assert "model does not fit" in found.title


def test_a_cpu_index_error_speaks_of_no_kernel() -> None:
    found = of(f"{FRAME}IndexError: index out of range in self\n")
    assert found.cause == "index_out_of_range"
    assert "kernel" not in found.explanation


def test_hidden_gpus_without_the_variable_in_sight_are_a_guess() -> None:
    found = of("RuntimeError: No CUDA GPUs are available\n")
    assert "may hide" in found.title


def test_a_log_and_the_driver_mean_the_same_by_an_xid() -> None:
    assert hardware.CAUSE_OF_XID is xids.CAUSE_OF_XID
    for code, cause in xids.CAUSE_OF_XID.items():
        found = of(f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=12, name=python, x\n")
        assert found.cause == cause, code
    assert not xids.HARMLESS & set(xids.CAUSE_OF_XID)


@pytest.mark.parametrize(
    ("line", "environment"),
    [
        ('File "/home/u/venv/lib/python3.11/site-packages/torch/cuda/__init__.py", line 3', "venv"),
        ('File "/home/u/rh/lib64/python3.9/site-packages/torch/__init__.py", line 3', "rh"),
        ("/home/u/conda/envs/x/bin/python3.11: No module named torch", "conda/envs/x"),
        ('File "/home/u/venv/lib/python3.11/site-packages/transformers/a.py", line 3', None),
    ],
)
def test_the_environment_of_a_runs_python_is_read_from_its_log(
    line: str, environment: str | None
) -> None:
    found = of(f"{line}\nAssertionError: Torch not compiled with CUDA enabled\n")
    assert found.cause == "cpu_wheel"
    assert found.facts.get("environment") == (environment and f"/home/u/{environment}")


@pytest.mark.parametrize("cause", sorted(REPAIRS))
def test_what_is_not_known_leaves_no_gap_where_nobody_could_fill_it_in(cause: str) -> None:
    for fix in render(REPAIRS[cause], {}):
        assert "<" not in fix.title
        assert not re.search(r"<\w", fix.why)
        assert not re.search(r"<(?:wheel|group|kernel|lib)>", fix.value)
