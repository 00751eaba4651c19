"""Why a value is missing, in words. One table for every page and command."""

from __future__ import annotations

from cockpit.model.text import words

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


def gap_words(reason: str | None) -> str:
    """The reason of a gap as people say it; one that the table lacks is made readable."""
    return _WORDS.get(reason, words(reason)) if reason else "not known"
