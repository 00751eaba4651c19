"""How the GPUs of the machine reach each other. Read once, in a thread of its own: the first
question takes 19 ms, each pair 2 ms.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations

from cockpit.collect import nvml
from cockpit.collect.nvml import Handle, NvmlError
from cockpit.model.gpu import TopologyLink

_LEVELS = {0: "INTERNAL", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_MAX_LINKS = 18
_REMOTE_GPU = 0
_P2P_READ = 0


@dataclass(slots=True)
class _Links:
    """Active NVLinks of one GPU, by what is at the other end."""

    shared: int = 0
    """To switches: they reach every GPU there."""
    direct: Counter[str] = field(default_factory=Counter)
    """Bus id of a GPU → links to it."""


def read_topology(indices: tuple[int, ...]) -> tuple[TopologyLink, ...]:
    """Every pair of GPUs that can be asked. Lost ones are left out."""
    handles = {index: handle for index in indices if (handle := _handle(index)) is not None}
    links = {index: _links(handle) for index, handle in handles.items()}
    bus_ids = {index: _bus_id(handle) for index, handle in handles.items()}
    return tuple(
        TopologyLink(
            a=a,
            b=b,
            level=_level(handles[a], handles[b]),
            nvlinks=_nvlinks(links[a], links[b], bus_ids[b]),
            p2p=_p2p(handles[a], handles[b]),
        )
        for a, b in combinations(sorted(handles), 2)
    )


def _handle(index: int) -> Handle | None:
    try:
        return nvml.device(index)
    except NvmlError:
        return None


def _bus_id(handle: Handle) -> str:
    try:
        return (nvml.text(nvml.ask("nvmlDeviceGetPciInfo", handle).busId) or "").lower()
    except NvmlError:
        return ""


def _level(a: Handle, b: Handle) -> str | None:
    try:
        return _LEVELS.get(nvml.ask("nvmlDeviceGetTopologyCommonAncestor", a, b))
    except NvmlError:
        return None


def _p2p(a: Handle, b: Handle) -> str | None:
    try:
        return nvml.p2p_names().get(nvml.ask("nvmlDeviceGetP2PStatus", a, b, _P2P_READ))
    except NvmlError:
        return None


def _nvlinks(a: _Links | None, b: _Links | None, bus_id_b: str) -> int | None:
    """Between two GPUs: what joins them directly, or what both have to the same switches."""
    if a is None or b is None:
        return None
    return a.direct[bus_id_b] if a.direct else min(a.shared, b.shared)


def _links(handle: Handle) -> _Links | None:
    """None: could not be read. A GPU without NVLink has none."""
    links = _Links()
    for link in range(_MAX_LINKS):
        try:
            active = nvml.ask("nvmlDeviceGetNvLinkState", handle, link)
        except NvmlError as error:
            if error.is_lost or error.is_driver_gone:
                return None
            break  # not supported, or beyond the last link
        if active:
            _count(handle, link, links)
    return links


def _count(handle: Handle, link: int, links: _Links) -> None:
    try:
        kind = nvml.ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
        if kind == _REMOTE_GPU:
            remote = nvml.ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
            links.direct[(nvml.text(remote.busId) or "").lower()] += 1
            return
    except NvmlError:
        links.shared += 1  # virtual machines hide the other end
        return
    links.shared += 1
