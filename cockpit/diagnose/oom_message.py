"""The out-of-memory message of PyTorch, of every release and of HIP, as numbers in bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from cockpit.diagnose.log_reader import Log
from cockpit.diagnose.sizes import SIZE, parse, to_bytes

MIB = 1 << 20
HEAD = re.compile(
    r"(?P<backend>CUDA|HIP|XPU) out of memory[.:!]?\s{1,20}Tried to allocate\s{1,9}"
    rf"(?:(?P<absurd>more than \w+)|(?P<size>{SIZE}))",
    re.IGNORECASE,
)
_FIELDS = {
    "total": rf"({SIZE}) total capacity|total capac?i?ty of ({SIZE})",
    "free": rf"of which ({SIZE}) is free|({SIZE}) free",
    "allowed": rf"({SIZE}) allowed",
    "self": rf"this process has ({SIZE}) memory in use",
    "allocated": rf"({SIZE}) already allocated|({SIZE}) is allocated by PyTorch",
    "reserved_unalloc": rf"({SIZE}) is reserved by PyTorch but unallocated",
    "reserved_total": rf"({SIZE}) reserved in total|({SIZE}) cached",
    "private_pools": rf"({SIZE}) allocated in private pools",
}
_PATTERNS = {name: re.compile(text) for name, text in _FIELDS.items()}
_PROCESS = re.compile(rf"Process (\d{{1,9}}) has {SIZE} memory in use")
_GPU = re.compile(r"\bGPU (\d{1,3})\b")


@dataclass(frozen=True)
class OomMessage:
    """One message. What it does not say is None."""

    at: int
    """Index of its line."""
    backend: str
    gpu: int | None
    rank: int | None
    tried: int | None
    """None: ``more than 1EB memory``."""
    era: str
    sizes: dict[str, int]
    others: dict[str, int] = field(default_factory=dict)
    """Pid → bytes, as the message lists them."""

    def get(self, name: str) -> int:
        """Bytes of a clause; 0 where the message has none."""
        return self.sizes.get(name, 0)

    @property
    def reserved_unalloc(self) -> int:
        """Reserved but not allocated, from either wording."""
        if "reserved_unalloc" in self.sizes:
            return self.sizes["reserved_unalloc"]
        return max(0, self.get("reserved_total") - self.get("allocated"))

    @property
    def own(self) -> int:
        """What this process holds; without the clause, PyTorch's part of it."""
        return self.sizes.get("self") or self.get("allocated") + self.reserved_unalloc

    def facts(self) -> dict[str, Any]:
        """With the keys that a Finding has."""
        facts: dict[str, Any] = {f"{name}_bytes": size for name, size in self.sizes.items()}
        if self.tried is not None:
            facts["tried_bytes"] = self.tried
        facts |= {"era": self.era, "backend": self.backend}
        if self.gpu is not None:
            facts["gpu"] = self.gpu
        if self.rank is not None:
            facts["rank"] = self.rank
        if self.others:
            facts["other_procs_bytes"] = dict(self.others)
        return facts


def find(log: Log) -> list[OomMessage]:
    """All of them, in the order of the log."""
    found: list[OomMessage] = []
    for match in HEAD.finditer(log.text):
        index = log.index_at(match.start())
        offset = match.start() - log.start_of(index)
        record = log.record(index)
        begin = max(0, record.find("out of memory", max(0, offset - 200)))
        if len(found) < 64:
            found.append(_message(match, index, record[begin : begin + 2000], log))
    return found


def _message(match: re.Match[str], index: int, body: str, log: Log) -> OomMessage:
    again = HEAD.search(body, 40)
    if again:  # the next message on the same line: two ranks spliced together
        body = body[: again.start()]
    sizes: dict[str, int] = {}
    for name, pattern in _PATTERNS.items():
        found = pattern.search(body)
        size = parse(found.group()) if found else None
        if size is not None:
            sizes[name] = size
    gpu = _GPU.search(body)
    return OomMessage(
        at=index,
        backend=match["backend"].lower(),
        gpu=int(gpu[1]) if gpu else None,
        rank=log.lines[index].rank,
        tried=parse(match["size"]),
        era=_era(body, log.lines[index].text),
        sizes=sizes,
        others={pid: to_bytes(number, unit) for pid, number, unit in _PROCESS.findall(body)},
    )


def _era(body: str, line: str) -> str:
    if " cached" in body:
        return "torch<=1.3"
    if "reserved in total" in body:
        return "torch 1.11-2.0" if ">> allocated" in body else "torch 1.4-1.10"
    if "capacty" in body:
        return "torch 2.1"
    if re.search(r"\bPYTORCH_ALLOC_CONF", body):
        return "torch 2.9/2.10"
    if "torch.cuda.OutOfMemoryError" in line:
        return "torch 2.2-2.4"
    return "torch 2.5+" if "total capacity of" in body else "torch"
