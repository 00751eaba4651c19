"""Where a job lies on the machine: over unequal GPUs, or over PCIe although NVLink is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from cockpit.diagnose.live.claim import Claim, said
from cockpit.diagnose.live.past import utilization
from cockpit.diagnose.live.view import View, main_gpu
from cockpit.model.gpu import Gpu, TopologyLink
from cockpit.model.process import Process
from cockpit.model.text import GIB, clean

LEAST_BYTES = GIB
"""Less on a GPU is a stray context, not a part of the job."""
WINDOW_S = 12.0
QUIET_NVLINK = 1e7
MUCH_PCIE = 2e9


def find(view: View) -> Iterator[Claim]:
    """Claims of this family."""
    links = {(link.a, link.b): link for link in view.snapshot.topology}
    for members in _jobs(view):
        gpus = [view.gpus[gpu] for gpu in _gpus_of(members) if gpu in view.gpus]
        if len(gpus) < 2:
            continue
        names = {gpu.name for gpu in gpus if gpu.name is not None}
        if len(names) > 1:
            yield _unequal(members[0], gpus)
        pairs = [links.get((min(a, b), max(a, b))) for a, b in combinations(_indices(gpus), 2)]
        yield from _over_pcie(view, members[0], gpus, [one for one in pairs if one is not None])


def _jobs(view: View) -> Iterator[tuple[Process, ...]]:
    """Ranks together, and single programs that compute on several GPUs."""
    grouped = set()
    for job in view.jobs:
        grouped |= {rank.pid for rank in job}
        yield job
    for process in view.snapshot.processes:
        computes = process.kind != "graphics" and process.stray is None
        if len(process.devices) > 1 and computes and process.pid not in grouped:
            yield (process,)


def _gpus_of(members: Sequence[Process]) -> list[int]:
    if len(members) > 1:
        return sorted({gpu for one in members if (gpu := main_gpu(one)) is not None})
    uses = members[0].devices
    return sorted({use.gpu for use in uses if (use.vram_bytes or 0) >= LEAST_BYTES})


def _indices(gpus: Sequence[Gpu]) -> list[int]:
    return [gpu.index for gpu in gpus]


def _listed(gpus: Sequence[Gpu]) -> str:
    return ", ".join(str(gpu.index) for gpu in gpus[:8])


def _unequal(first: Process, gpus: Sequence[Gpu]) -> Claim:
    by_name: dict[str, list[int]] = {}
    for gpu in gpus:
        by_name.setdefault(clean(gpu.name or "?"), []).append(gpu.index)
    parts = [f"GPU {', '.join(map(str, which))}: {name}" for name, which in by_name.items()]
    capabilities = sorted({gpu.compute_capability or "?" for gpu in gpus})
    return Claim(
        cause="straggler",
        title=f"Job over unequal GPUs ({_listed(gpus)})",
        says=(
            said(f"{'; '.join(parts)}."),
            said(f"Compute capabilities: {', '.join(capabilities)}."),
        ),
        confidence=0.7,
        pid=first.pid,
        facts={"gpus": _indices(gpus)},
        hold_s=10.0,
        at_once=True,
    )


def _over_pcie(
    view: View, first: Process, gpus: Sequence[Gpu], pairs: Sequence[TopologyLink]
) -> Iterator[Claim]:
    without = [one for one in pairs if one.nvlinks == 0]
    if without:
        better = _island(view.snapshot.topology, _indices(gpus))
        if better:
            pair = without[0]
            words = f"GPU {pair.a} and GPU {pair.b} have no NVLink to each other ({pair.level})."
            yield _pcie(first, gpus, words, f"GPUs {better} are joined by NVLink.", 0.8)
    elif pairs and all(one.nvlinks for one in pairs) and _moves_over_pcie(view, gpus):
        words = "Much goes over PCIe and nothing over NVLink, which joins these GPUs."
        yield _pcie(first, gpus, words, "NCCL_P2P_DISABLE or an IOMMU may be the reason.", 0.6)


def _pcie(first: Process, gpus: Sequence[Gpu], one: str, two: str, confidence: float) -> Claim:
    return Claim(
        cause="pcie_width",
        title=f"Job on GPUs {_listed(gpus)} over PCIe, not NVLink",
        says=(said(one), said(two)),
        confidence=confidence,
        pid=first.pid,
        severity="warning",
        facts={"gpus": _indices(gpus)},
        also=(("p2p_acs", "peer traffic may be blocked or redirected"),),
        hold_s=10.0,
        at_once=confidence > 0.7,
    )


def _island(topology: Sequence[TopologyLink], job: Sequence[int]) -> str | None:
    """GPUs joined by NVLink, as many as the job has; None where the machine has none better."""
    joined: dict[int, set[int]] = {}
    for link in topology:
        if link.nvlinks:
            both = joined.setdefault(link.a, {link.a}) | joined.setdefault(link.b, {link.b})
            for gpu in both:
                joined[gpu] = both
    for group in joined.values():
        if len(group) >= len(job):
            return ", ".join(map(str, sorted(group)[:8]))
    return None


def _moves_over_pcie(view: View, gpus: Sequence[Gpu]) -> bool:
    for gpu in gpus:
        rates = (gpu.nvlink_rx_bytes_per_s, gpu.nvlink_tx_bytes_per_s)
        if any(rate is None or rate > QUIET_NVLINK for rate in rates):
            return False
        moved = view.past.mean(gpu.index, _pcie_rate, WINDOW_S)
        if moved is None or moved < MUCH_PCIE:
            return False
        if (view.past.mean(gpu.index, utilization, WINDOW_S) or 0.0) < 50.0:
            return False
    return True


def _pcie_rate(gpu: Gpu) -> float | None:
    """Both ways: a host copy goes one way, peers send and receive alike."""
    rx, tx = gpu.pcie_rx_bytes_per_s, gpu.pcie_tx_bytes_per_s
    return None if rx is None or tx is None else 2 * min(rx, tx)
