"""``zero_grad(set_to_none=True)``: the gradients' memory is free during the forward pass."""

from __future__ import annotations

import libcst as cst

from cockpit.act.rewrites.build import with_keyword
from cockpit.act.rewrites.edit import Edit, Facts
from cockpit.act.rewrites.names import function_name, training_loop
from cockpit.act.rewrites.source import Source


def rewrite(text: str, line: int, facts: Facts) -> Edit | None:
    """The calls of the training loop around the line.

    ``set_to_none=False`` always; a call without it only where the fact ``torch_version`` says
    that False is its default (before 2.0).
    """
    source = Source.parse(text)
    loop = training_loop(source, line) if source else None
    if source is None or loop is None or source.mentions("grad"):
        return None  # p.grad may be read where it would be None
    calls = [
        call
        for call in source.every(cst.Call, loop, into_scopes=False)
        if function_name(call) == "zero_grad" and _keeps(call, facts)
    ]
    if not calls:
        return None
    return Edit(
        source.changed(dict.fromkeys(calls, _freeing)).code,
        "free the gradients instead of zeroing them",
        "nothing",
        "memory before the backward pass falls by the size of the gradients",
    )


def _keeps(call: cst.Call, facts: Facts) -> bool:
    if not call.args:
        return str(facts.get("torch_version") or "").startswith(("0.", "1."))
    only = call.args[0]
    named = only.keyword is None or only.keyword.value == "set_to_none"
    return (
        len(call.args) == 1
        and named
        and isinstance(only.value, cst.Name)
        and only.value.value == "False"
    )


def _freeing(call: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(call, cst.Call)
    if call.args:
        return call.with_changes(args=[call.args[0].with_changes(value=cst.Name("True"))])
    return with_keyword(call, "set_to_none", "True")
