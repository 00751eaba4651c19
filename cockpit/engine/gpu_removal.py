"""Commands that take a GPU away from whoever uses it: a reset, MIG on or off, its module unloaded.

Never of a GPU in use (design, section 5). The driver refuses most of it as well; that is no reason
to offer it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from cockpit.act.action import Console
from cockpit.act.admin import AdminStep
from cockpit.collect import holders
from cockpit.model.gpu import Gpu
from cockpit.model.ledger import Ledger
from cockpit.model.remedy import Outcome, Preview
from cockpit.model.snapshot import Snapshot
from cockpit.model.text import clean

NOBODYS = frozenset(("context_overhead", "unified_memory"))
"""Explanations of memory that need no process that is not listed."""


@dataclass(frozen=True)
class Removal:
    """What would be taken away."""

    which: str | None
    """As `nvidia-smi -i` has it: indices, UUIDs or bus ids; None: all GPUs."""
    typed: str
    """To confirm it."""


def removal(words: Sequence[str]) -> Removal | None:
    """None: the command takes no GPU away."""
    names = [os.path.basename(word) for word in words]
    if "nvidia-smi" in names and {"-r", "--gpu-reset", "-mig"} & set(words):
        which = _identifier(words)
        return Removal(which, which or "all")
    unloads = "rmmod" in names or ("modprobe" in names and any(map(_removes, words)))
    if unloads and any(name.startswith("nvidia") for name in names):
        return Removal(None, "nvidia")
    return None


def why_not(wanted: Removal, snapshot: Snapshot) -> str | None:
    """Who uses what would be taken away, or why that cannot be seen; None: nobody does."""
    blind = "Not run from here: whether anything uses the GPU cannot be seen"
    if snapshot.driver.error is not None or not snapshot.gpus:
        return f"{blind}, for the driver does not answer."
    if snapshot.host.container is not None:
        return f"{blind} from inside a container."
    gpus = _meant(wanted, snapshot.gpus)
    if not gpus:
        return f"{blind}: there is no GPU {clean(wanted.which or '')}."
    ledgers = {one.gpu: one for one in snapshot.ledger}
    if wanted.which is None and len(gpus) < len(holders.device_minors()):
        return f"{blind}: only some of this machine's GPUs are looked at."
    for gpu in gpus:
        pids = [p.pid for p in snapshot.processes for use in p.devices if use.gpu == gpu.index]
        if pids:
            told = ", ".join(str(pid) for pid in sorted(set(pids))[:5])
            return f"Not while GPU {gpu.index} is in use: pid {told}. End or move that first."
        if _is_hidden(gpu, ledgers.get(gpu.index)):
            return f"{blind} (GPU {gpu.index}). Look first: sudo fuser -v /dev/nvidia*"
    return None


@dataclass(frozen=True)
class GuardedStep:
    """An administrator's step that is told only while a GPU is in use, and typed otherwise.

    Each preview looks again: one that is made when it is confirmed speaks of that moment.
    """

    step: AdminStep
    wanted: Removal
    newest: Callable[[], Snapshot]

    def preview(self) -> Preview:
        """Without a terminal where it is refused."""
        preview = self.step.preview()
        refusal = why_not(self.wanted, self.newest())
        if refusal is not None:
            return replace(preview, form="text", terminal=None, refusal=refusal)
        return replace(preview, typed=self.wanted.typed)

    def run(self, console: Console) -> Outcome:
        """After the face has run it."""
        return self.step.run(console)


def _identifier(words: Sequence[str]) -> str | None:
    for at, word in enumerate(words):
        name, sign, value = word.partition("=")
        if name in ("-i", "--id"):
            return value if sign else next(iter(words[at + 1 :]), "")
    return None


def _removes(word: str) -> bool:
    """``-r``, ``-rv``, ``--remove``, ``--remove-dependencies``."""
    return word.startswith("--remove") or (word[:1] == "-" != word[1:2] and "r" in word)


def _meant(wanted: Removal, gpus: Sequence[Gpu]) -> list[Gpu]:
    """Empty where one of the identifiers names none."""
    if wanted.which is None:
        return list(gpus)
    found: list[Gpu] = []
    for word in wanted.which.lower().split(","):
        mine = [one for one in gpus if word and word in _names(one)]
        if not mine:
            return []
        found += mine
    return found


def _names(gpu: Gpu) -> set[str]:
    bus = (gpu.pci_bus_id or "").lower()
    return {str(gpu.index), (gpu.uuid or "").lower(), bus, f"0000{bus}", bus.removeprefix("0000")}


def _is_hidden(gpu: Gpu, ledger: Ledger | None) -> bool:
    """Somebody may use it whom the driver does not list."""
    if gpu.state != "ok" or "processes" in gpu.gaps or gpu.mig_enabled:
        return True
    return ledger is not None and any(one.kind not in NOBODYS for one in ledger.explanations)
