"""Xid codes and the cause that each of them has, for logs and for what the driver reports live.

Source: NVIDIA's Xid catalogue, https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
The words for each code are in cockpit.model.xid.
"""

from __future__ import annotations

BY_CAUSE: dict[str, tuple[int, ...]] = {
    "gpu_off_bus": (79,),
    "remap_failure": (64,),
    "gsp_timeout": (119, 120),
    "ecc_dbe": (95, 48, 171, 172),
    "nvlink_fault": (74, *range(144, 151), 155),
    "ecc_contained": (94, 63),
    "device_state_bad": (46, 61, 62, 109, 110, 136, 140, 143, 156, 158),
    "illegal_access": (13, 31),
}
"""From the worst to the least: what follows from another code decides nothing. 171 and 172 say of
48 which memory it was. 8, 32, 68 and 69 end a program as well, and have no cause of ours."""

CAUSE_OF_XID: dict[int, str] = {code: cause for cause, codes in BY_CAUSE.items() for code in codes}
"""Others are notices, or the consequence of an error that has its own."""

HARMLESS: frozenset[int] = frozenset((43, 44, 45, 92, 93, 121, 137, 154, 157, 160))
"""Notices and clean-up: alone nothing to repair."""
