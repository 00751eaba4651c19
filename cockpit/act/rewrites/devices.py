"""How a script names its GPU: ``device``, ``args.device``, ``local_rank``, the model's own."""

from __future__ import annotations

import libcst as cst

from cockpit.act.rewrites.names import assigned, function_name, owner, torch_name
from cockpit.act.rewrites.source import Source


def moves_of(source: Source, name: str) -> set[str]:
    """Devices that a name is moved to: by ``x = x.to(D)``, ``x.cuda()`` or where it is made.

    ``x`` may be an expression: ``x.to(device)`` as an argument moves itself.
    """
    if name.endswith(")"):
        calls = [c for c in source.every(cst.Call) if source.code(c) == name][:1]
    else:
        calls = [c for c in source.every(cst.Call) if owner(source, c) == name]
        calls += [c for v in _assigned_values(source, name) for c in _chain(v)]
    return {device for call in calls if (device := _device_of(source, call)) is not None}


def is_moved(source: Source, model: str) -> bool:
    """The file moves it, or does not make it: then it is moved where it is made."""
    if moves_of(source, model):
        return True
    return not source.values_of(model)


def script_device(source: Source, at: cst.CSTNode, model: str | None) -> str | None:
    """The device as the script says it at a place; None: it says nothing, or several things."""
    own = moves_of(source, model) if model else set()
    if len(own) > 1:
        return None
    for name in (*own, "device", "args.device", "self.device"):
        if visible(source, name, at) and ("." not in name or source.uses(name)):
            return name
    return f"next({model}.parameters()).device" if model else None


def visible(source: Source, name: str, at: cst.CSTNode, *, before: bool = False) -> bool:
    """The name is bound in the function around a place or in the module (``before``: above it)."""
    if name.startswith(("'", '"')):
        return True
    root = name.split(".")[0]
    scope = source.scope_of(at)
    if isinstance(scope, cst.FunctionDef):
        parameters = {one.name.value for one in source.every(cst.Param, scope.params)}
        if root in parameters:
            return True
    for place in {scope, source.module}:
        if root in assigned(source, place) and (not before or _above(source, root, place, at)):
            return True
    return False


def _above(source: Source, root: str, scope: cst.CSTNode, at: cst.CSTNode) -> bool:
    lines = [
        source.line(target)
        for target in source.every(cst.AssignTarget, scope)
        if source.code(target.target) == root
    ]
    return bool(lines) and min(lines) < source.line(at)


def _assigned_values(source: Source, name: str) -> list[cst.BaseExpression]:
    """What is assigned to it, in tuples too: ``x, y = x.to(d), y.to(d)``."""
    found = source.values_of(name)
    for one in source.every(cst.Assign):
        target = one.targets[0].target
        if isinstance(target, cst.Tuple) and isinstance(one.value, cst.Tuple):
            pairs = zip(target.elements, one.value.elements, strict=False)
            found += [v.value for t, v in pairs if source.code(t.value) == name]
    return found


def _chain(value: cst.BaseExpression) -> list[cst.Call]:
    """``Net().eval().to(d)``: the calls of the chain, not those in its arguments."""
    found = []
    node: cst.CSTNode = value
    while isinstance(node, cst.Call | cst.Attribute):
        if isinstance(node, cst.Call):
            found.append(node)
            node = node.func
        else:
            node = node.value
    return found


def _device_of(source: Source, call: cst.Call) -> str | None:
    """``device`` of ``.to(device)``, ``"cuda"`` of ``.cuda()``; None: it moves nothing."""
    if not isinstance(call.func, cst.Attribute):
        return None
    positional = [arg for arg in call.args if arg.keyword is None and not arg.star]
    named = [arg for arg in call.args if arg.keyword and arg.keyword.value == "device"]
    if function_name(call) == "cuda":
        return source.code(call.args[0].value) if positional else '"cuda"'
    if function_name(call) != "to" or not (positional or named):
        return None
    value = (positional or named)[0].value
    text = source.code(value)
    torch = torch_name(source)
    is_dtype = torch is not None and text.startswith(f"{torch}.")
    plain = isinstance(value, cst.Name | cst.Attribute | cst.SimpleString)
    return text if plain and not is_dtype else None
