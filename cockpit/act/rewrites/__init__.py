"""Changes of training scripts, one module a family: (text, line, facts) → Edit, None when unsure.

libcst (0.15 s to import) is loaded with the first rewrite asked for, not with this package.
"""

from __future__ import annotations

from importlib import import_module

from cockpit.act.rewrites.edit import Edit, Facts, Rewrite

KINDS = (
    "autocast_bf16",
    "dataloader",
    "detach_loss",
    "gradient_checkpointing",
    "map_location",
    "no_grad",
    "set_device",
    "sync_free",
    "to_device",
)
"""Each is a module of this package with a function ``rewrite``."""


def rewrite(kind: str, text: str, line: int, facts: Facts) -> Edit | None:
    """The certain edit of one kind (KeyError: no such kind); None: there is none."""
    if kind not in KINDS:
        raise KeyError(kind)
    function: Rewrite = import_module(f"{__name__}.{kind}").rewrite
    found = function(text, line, facts)
    return None if found is None or found.text == text else found


__all__ = ["KINDS", "Edit", "Facts", "Rewrite", "rewrite"]
