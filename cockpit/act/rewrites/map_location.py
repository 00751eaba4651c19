"""``torch.load(path)`` → ``map_location="cpu"``: else tensors go where they were saved from."""

from __future__ import annotations

import libcst as cst

from cockpit.act.rewrites.build import with_keyword
from cockpit.act.rewrites.edit import Edit, Facts
from cockpit.act.rewrites.names import function_name, owner, torch_name
from cockpit.act.rewrites.source import Source

_SECOND = 1
"""Place of map_location among the positional arguments of torch.load."""


def rewrite(text: str, line: int, facts: Facts) -> Edit | None:
    """The call at the line, or the only one of the file.

    Fact ``cannot_load``: the load itself failed (saved on a GPU that is not here): then it is right
    whatever is done with the result. Else the result has to be copied into a model.
    """
    source = Source.parse(text)
    torch = torch_name(source) if source else None
    if source is None or torch is None:
        return None
    call = _call(source, torch, line)
    if call is None or _says_where(call):
        return None
    if not facts.get("cannot_load") and not _is_copied(source, call):
        return None
    changed = with_keyword(call, "map_location", '"cpu"')
    return Edit(
        source.changed({call: lambda _: changed}).code,
        "load the checkpoint into host memory",
        "nothing: load_state_dict copies to where the model is",
        "no rank holds memory on another rank's GPU; the load passes",
    )


def _call(source: Source, torch: str, line: int) -> cst.Call | None:
    calls = [
        call
        for call in source.every(cst.Call)
        if function_name(call) == "load" and owner(source, call) == torch
    ]
    at = [call for call in calls if source.covers(call, line)]
    found = at or calls
    return found[0] if len(found) == 1 else None


def _says_where(call: cst.Call) -> bool:
    positional = [arg for arg in call.args if arg.keyword is None]
    named = any(
        arg.keyword is not None and arg.keyword.value == "map_location" for arg in call.args
    )
    return named or any(arg.star for arg in call.args) or len(positional) > _SECOND


def _is_copied(source: Source, call: cst.Call) -> bool:
    """All that is read of it goes through ``load_state_dict``, or is no tensor by its name."""
    up = source.parent(call)
    if _is_argument(source, call):
        return True
    if isinstance(up, cst.Subscript):
        return _is_argument(source, up)
    if not isinstance(up, cst.Assign) or len(up.targets) != 1:
        return False
    name = source.code(up.targets[0].target)
    uses = [use for use in source.uses(name, source.scope_of(call)) if not _is_target(source, use)]
    return any(_copies(source, use) for use in uses) and all(
        _copies(source, use) or _is_plain(source, use) for use in uses
    )


def _is_argument(source: Source, node: cst.CSTNode) -> bool:
    """It stands in ``….load_state_dict(…)``, which copies (``assign=True`` does not)."""
    arg = source.parent(node)
    call = source.parent(arg) if isinstance(arg, cst.Arg) else None
    return (
        isinstance(call, cst.Call)
        and function_name(call) == "load_state_dict"
        and not any(one.keyword and one.keyword.value == "assign" for one in call.args)
    )


def _copies(source: Source, use: cst.CSTNode) -> bool:
    up = source.parent(use)
    return _is_argument(source, use) or (
        isinstance(up, cst.Subscript) and up.value is use and _is_argument(source, up)
    )


def _is_plain(source: Source, use: cst.CSTNode) -> bool:
    """``checkpoint["epoch"] + 1``, ``print(checkpoint["step"])``: a number."""
    up = source.parent(use)
    return isinstance(up, cst.Subscript) and any(
        word in source.code(up) for word in ("epoch", "step", "best", "iter", "arg", "config")
    )


def _is_target(source: Source, use: cst.CSTNode) -> bool:
    return isinstance(source.parent(use), cst.AssignTarget)
