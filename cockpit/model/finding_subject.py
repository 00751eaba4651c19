"""What a finding is about: its GPUs, processes and Xids, from its fields and its facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cockpit.model.finding import Finding
from cockpit.model.process import Process

_GPU_FACTS = ("gpus",)
_PID_FACTS = ("pids", "kill", "holders")
_XID_FACTS = ("xid", "xids")


def gpus_of(finding: Finding, processes: Sequence[Process] = ()) -> tuple[int, ...]:
    """The GPU it names, else those of its facts, else those that its processes use."""
    if finding.gpu is not None:
        return (finding.gpu,)
    named = _integers(finding, _GPU_FACTS)
    if named:
        return named
    pids = set(pids_of(finding))
    used = {use.gpu for one in processes if one.pid in pids for use in one.devices}
    return tuple(sorted(used))


def pids_of(finding: Finding) -> tuple[int, ...]:
    """The process it names and those of its facts, that one first."""
    first = () if finding.pid is None else (finding.pid,)
    return tuple(dict.fromkeys((*first, *_integers(finding, _PID_FACTS))))


def xids_of(finding: Finding) -> tuple[int, ...]:
    """The driver's error numbers it rests on."""
    return _integers(finding, _XID_FACTS)


def _integers(finding: Finding, names: Iterable[str]) -> tuple[int, ...]:
    """Facts come from logs and other machines: anything may stand in them."""
    found: list[int] = []
    for name in names:
        value = finding.facts.get(name)
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, int) and not isinstance(one, bool):
                found.append(one)
    return tuple(found)
