"""Hand-made findings for the four H200s of the scenario ``stray``."""

from __future__ import annotations

from typing import Any

from cockpit.model.finding import Also, Evidence, Finding, Fix
from cockpit.model.text import GIB

HOSTILE = "\x1b[31mred\x1b]0;owned\x07\r\nnext\u202eevil\u200b"


def a_fix(title: str = "End the strays", **changes: Any) -> Fix:
    values: dict[str, Any] = {
        "title": title,
        "kind": "kill",
        "value": "kill -TERM 5602 5617",
        "risk": "confirm",
        "why": "their parent is gone and they compute nothing",
        "loses": "what they have not saved",
        "verify": "the memory of GPU 3 falls to the baseline",
    }
    return Fix(**(values | changes))


def a_finding(**changes: Any) -> Finding:
    """Strays on GPU 3: the finding with everything in it."""
    values: dict[str, Any] = {
        "flow": "vram-held",
        "cause": "orphans",
        "severity": "warning",
        "confidence": 0.9,
        "title": "GPU 3: 70.0 GiB held by 3 strays",
        "explanation": "Their parent is gone; nothing will end them by itself.",
        "evidence": (
            Evidence(
                text="pid 5602 holds 61.0 GiB (python): its leader has exited and a thread of it "
                "still holds the device.",
                line=None,
                source="/proc",
            ),
            Evidence(text="GPU 3: 74.8 of 139.8 GiB are in use.", line=None, source="NVML"),
        ),
        "facts": {"pids": [5602, 5617, 5844], "held_bytes": 70 * GIB, "idle_s": 93_600.0},
        "fixes": (
            a_fix(),
            a_fix(
                "Start jobs so that they end together",
                kind="code-change",
                value="systemd-run --user --scope python train.py",
                risk="safe",
                why="ending the scope ends the workers too",
                loses="nothing",
            ),
        ),
        "also": (Also(cause="unkillable", why="a thread of it waits in the kernel"),),
        "not_": ("not another user's: all of them are yours",),
        "gpu": 3,
        "pid": 5602,
    }
    return Finding(**(values | changes))


def heat(gpu: int, **changes: Any) -> Finding:
    """No process to it, an administrator's matter."""
    values: dict[str, Any] = {
        "flow": "slow",
        "cause": "thermal",
        "title": f"GPU {gpu}: slowed by heat",
        "explanation": "It is too hot and lowers its clock.",
        "evidence": (
            Evidence(text=f"GPU {gpu}: 1110 of 1980 MHz, 91 °C.", line=None, source="NVML"),
        ),
        "facts": {"temperature_c": 91, "sm_clock_mhz": 1110},
        "fixes": (a_fix("Clean the filters", kind="hardware", value="fans", risk="admin"),),
        "also": (),
        "not_": (),
        "gpu": gpu,
        "pid": None,
    }
    return a_finding(**(values | changes))


def rank_behind(**changes: Any) -> Finding:
    """An error about a process, with evidence of a log."""
    values: dict[str, Any] = {
        "flow": "multi-gpu",
        "cause": "rank_behind",
        "severity": "error",
        "title": "Rank 0 never called the collective that the others wait in",
        "explanation": "Rank 0 stopped at collective 77, the others wait in 78.",
        "evidence": (
            Evidence(
                text="[rank1]:[E810 02:50:27 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught "
                "collective operation timeout: WorkNCCL(SeqNum=78, OpType=BROADCAST)",
                line=4711,
                source="output of pid 4712",
            ),
        ),
        "facts": {"culprit_rank": 0, "timed_out_ranks": [1, 2, 3], "timeout_s": 600.0},
        "fixes": (
            a_fix(
                "See where each rank is while it hangs",
                kind="command",
                value="py-spy dump --pid 4711",
                risk="safe",
                why="the rank outside of a collective is the one",
                loses="nothing",
                verify="the job passes the failing step",
            ),
        ),
        "also": (),
        "not_": ("not the network: rank 0 is on this machine",),
        "gpu": None,
        "pid": 4711,
    }
    return a_finding(**(values | changes))


def three() -> tuple[Finding, ...]:
    return (a_finding(), heat(1), rank_behind())
