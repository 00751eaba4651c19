"""Failures that are none of the causes, and what to say of them all the same: one row a message.

They are not the GPU's: the answer stays ``unknown``, with a sentence and a fix that fit.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cockpit.model.finding import Fix


class Plain(NamedTuple):
    """One kind of message."""

    pattern: re.Pattern[str]
    words: str
    """Instead of advice for what nobody knows."""
    fixes: tuple[Fix, ...] = ()


def _plain(pattern: str, words: str, *fixes: Fix) -> Plain:
    return Plain(re.compile(pattern, re.IGNORECASE), words, fixes)


def _command(title: str, value: str, why: str, verify: str) -> Fix:
    return Fix(
        title=title,
        kind="command",
        value=value,
        risk="safe",
        why=why,
        loses="nothing",
        verify=verify,
    )


PLAIN: tuple[Plain, ...] = (
    _plain(
        r"Too many open files",
        "The process may open no more files: with many loader workers each tensor that is handed "
        "over needs one.",
        _command(
            "Raise the limit of open files",
            "ulimit -n 65536   # in the shell that starts the run; `ulimit -Hn` is the most",
            "1024 is the usual limit",
            "`ulimit -n` prints the new limit; the run passes the point",
        ),
        Fix(
            title="Or hand tensors over without open files",
            kind="code-change",
            value="torch.multiprocessing.set_sharing_strategy('file_system')",
            risk="safe",
            why="names in /dev/shm instead of open files",
            loses="files are left in /dev/shm when a process is killed",
            verify="the run passes the point",
        ),
    ),
    _plain(
        r"No space left on device|Disk quota exceeded",
        "The disk, or this user's share of it, is full.",
        _command(
            "See which disk is full",
            "df -h . /tmp /dev/shm; df -i .; quota -s",
            "a disk may also run out of inodes",
            "the file system of the path has space again",
        ),
    ),
    _plain(
        r"Address already in use|EADDRINUSE",
        "Another process listens on the port that this program asks for.",
        _command(
            "See who listens",
            "ss -ltnp | grep :<port>",
            "an earlier run of the same program, most often",
            "nobody listens there, or the program has another port",
        ),
    ),
    _plain(
        r"Temporary failure in name resolution|Name or service not known|NameResolutionError",
        "The name of a server could not be resolved: this machine has no network to it. Compute "
        "nodes often have none.",
        _command(
            "Ask for the name",
            "getent hosts <server>   # Hugging Face: HF_HUB_OFFLINE=1 uses what was downloaded",
            "tells a missing network from a wrong name",
            "it prints an address",
        ),
    ),
    _plain(
        r"two devices, cuda:\d+ and cuda:\d+|is on cuda:\d+, different from other tensors on cuda:",
        "Both tensors are on GPUs, on two different ones: a model that is spread over GPUs, or "
        "data that was sent to another GPU than the model.",
    ),
    _plain(
        r"torch\.cuda\.\w+Tensor\) and (?:weight|bias) type \(torch\.cuda\.",
        "Both are on the GPU, in two types of numbers: cast one of them, or compute under "
        "torch.autocast.",
    ),
    _plain(
        r"undefined symbol: _ZN(?:K?3c10|K?2at|K?5torch)",
        "An extension was compiled for another release of torch than the one that is installed.",
        _command(
            "Compile the extension for the installed torch",
            "python -m pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps "
            "<extension>",
            "or install the wheel that names this release of torch and this Python",
            "python -c 'import torch, <extension>' ends without an error",
        ),
    ),
    _plain(
        r"CANCELLED AT .{0,60}DUE TO TIME LIMIT",
        "The scheduler ended the job at its time limit: ask for more time, or go on from a "
        "checkpoint.",
    ),
    _plain(
        r"CANCELLED AT .{0,60}DUE TO (?:PREEMPTION|NODE FAILURE)",
        "The scheduler ended the job, which had not failed: start it again from a checkpoint.",
    ),
    _plain(
        r"\berror: (?:unrecognized arguments|the following arguments are required|argument "
        r"|invalid choice)",
        "The program was started with arguments that it does not know, and did nothing.",
    ),
    _plain(
        r"can't open file|command not found|No such file or directory",
        "What was to be started, or read, is not there: look at the path, the directory it was "
        "started in and the environment that is active.",
    ),
)
"""The first that matches the line of the failure."""


def plain_of(text: str) -> Plain | None:
    """The row for a failure's own line."""
    return next((row for row in PLAIN if row.pattern.search(text)), None)
