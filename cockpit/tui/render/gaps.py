"""Why a value is missing, in words. One table for every page."""

from __future__ import annotations

import re

from cockpit.tui.render.cells import foreign

_WORDS = {
    "not_supported": "not supported by this GPU",
    "no_permission": "no permission",
    "gpu_lost": "GPU is lost",
    "lost": "GPU is lost",
    "timeout": "no answer from the driver",
    "driver_too_old": "driver too old",
    "mig": "MIG is on",
    "wsl": "not available under WSL",
    "other_namespace": "other namespace",
    "unified_memory": "unified memory: the host's",
    "hidepid": "hidden by hidepid",
    "hidden": "hidden by hidepid",
    "other_user": "another user's",
    "gone": "process is gone",
    "gpu_is_lost": "GPU is lost",
    "not_found": "not found",
    "not_read_yet": "not read yet",
    "not_supported_here": "not supported here",
    "not_listed": "not in the driver's list",
    "no_driver": "no driver",
    "partial": "only partly known",
    "cgroup_limit": "limit of the cgroup",
    "recording": "not recorded",
    "no_data": "no data",
    "library_not_found": "no NVIDIA library",
    "unknown": "not known",
    "error": "reading failed",
}


_TAIL = re.compile(r"(:| (by|while|under|in|from) ).*")


def gap_words(reason: str | None, width: int = 1000) -> str:
    """The reason of a gap as people say it; a reason that the table lacks is made readable.

    Where it is longer than ``width`` it loses its second half: ``not supported``.
    """
    if not reason:
        return "not known"
    words = _WORDS.get(reason) or foreign(reason).replace("_", " ")
    return words if len(words) <= width else _TAIL.sub("", words)
