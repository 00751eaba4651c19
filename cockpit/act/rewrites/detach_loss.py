"""``losses.append(loss)`` → ``.item()``: a kept loss keeps the activations of its step.

A value that is differentiated in the same loop has lost its graph after that, so that only its
number can be of use later: the change is certain. Where the sum or list is used as a tensor,
``.detach()`` keeps it one.
"""

from __future__ import annotations

import libcst as cst

from cockpit.act.rewrites.edit import Edit, Facts
from cockpit.act.rewrites.names import (
    backward_calls,
    differentiated,
    function_name,
    owner,
    training_loop,
)
from cockpit.act.rewrites.source import Change, Loop, Source

_FREED = frozenset({"item", "float", "detach", "numpy", "tolist", "cpu"})
_THROUGH = frozenset({"sum", "max", "min", "round", "abs"})
_ENDS = frozenset({"len", "float", "int", "print", "str", "mean", "median", "std", "plot"})
_ARRAYS = frozenset({"np", "numpy", "statistics", "plt"})


def rewrite(text: str, line: int, _facts: Facts) -> Edit | None:
    """All places of the training loop around the line that keep a differentiated value."""
    source = Source.parse(text)
    loop = training_loop(source, line) if source else None
    if source is None or loop is None:
        return None
    names = _differentiated(source, loop)
    changes = dict(_changes(source, loop, names)) if names else {}
    if not changes:
        return None
    return Edit(
        source.changed(changes).code,
        "keep the loss as a number, not with its graph",
        "nothing of the training; reading the number waits for the GPU once a step",
        "torch.cuda.memory_allocated() is the same after each step",
    )


def _differentiated(source: Source, loop: Loop) -> set[str]:
    found = {differentiated(call) for call in backward_calls(source, loop)}
    if None in found:
        return set()
    return {name for name in found if name and not _is_freed(source, loop, name)}


def _is_freed(source: Source, loop: Loop, name: str) -> bool:
    """Somewhere it becomes a plain number: which one is kept cannot be told."""
    return any(
        function_name(call) in _FREED
        for value in source.values_of(name, loop)
        for call in source.every(cst.Call, value)
    )


def _changes(source: Source, loop: Loop, names: set[str]) -> list[tuple[cst.CSTNode, Change]]:
    found: list[tuple[cst.CSTNode, Change]] = []
    for node in source.walk(loop.body, into_scopes=False):
        kept = _kept(source, node, names)
        if kept is None or kept[0] in names or _is_differentiated(source, node, kept[0]):
            continue
        ending = "item" if _stays_number(source, node, kept[0]) else "detach"
        found.append((kept[1], _called(ending)))
    return found


def _is_differentiated(source: Source, place: cst.CSTNode, keeper: str) -> bool:
    """Somewhere in the function a gradient is asked of what was kept."""
    scope = source.scope_of(place)
    for call in source.every(cst.Call, scope):
        if function_name(call) not in ("backward", "manual_backward", "grad"):
            continue
        roots = {n.value for n in source.every(cst.Name, call)}
        values = [v for root in roots for v in source.values_of(root, scope)]
        if any(source.uses(keeper, one) for one in (call, *values)):
            return True
    return False


def _kept(source: Source, node: cst.CSTNode, names: set[str]) -> tuple[str, cst.Name] | None:
    """(what keeps it, the name to change) of ``c.append(x)``, ``t += x``, ``t = t + x``."""
    if isinstance(node, cst.Call) and function_name(node) == "append" and len(node.args) == 1:
        value, keeper = node.args[0].value, owner(source, node)
        return (keeper, value) if isinstance(value, cst.Name) and value.value in names else None
    if isinstance(node, cst.AugAssign) and isinstance(node.operator, cst.AddAssign):
        one = _single(source, node.value, names)
        return (source.code(node.target), one) if one else None
    if isinstance(node, cst.Assign) and len(node.targets) == 1:
        target, value = source.code(node.targets[0].target), node.value
        if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Add):
            left, right = source.code(value.left) == target, source.code(value.right) == target
            rest = value.right if left else value.left if right else None
            one = _single(source, rest, names) if rest is not None else None
            return (target, one) if one else None
    return None


def _single(source: Source, value: cst.BaseExpression, names: set[str]) -> cst.Name | None:
    """The one differentiated name of ``loss``, ``loss * n``, ``loss / len(loader)``."""
    if isinstance(value, cst.Name):
        return value if value.value in names else None
    if not isinstance(value, cst.BinaryOperation):
        return None
    if not isinstance(value.operator, cst.Multiply | cst.Divide):
        return None
    left = _single(source, value.left, names)
    right = _single(source, value.right, names)
    if (left is None) == (right is None):
        return None
    rest = value.right if left else value.left
    return (left or right) if _is_count(source, rest) else None


def _is_count(source: Source, node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.Integer | cst.Float):
        return True
    if isinstance(node, cst.Call):
        return function_name(node) in ("len", "size")
    return ".shape[" in source.code(node) or isinstance(node, cst.Name | cst.Attribute)


def _called(method: str) -> Change:
    def change(node: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(node, cst.Name)
        return cst.Call(cst.Attribute(node, cst.Name(method)))

    return change


def _stays_number(source: Source, place: cst.CSTNode, keeper: str) -> bool:
    """Nothing that is done with the sum or list needs a tensor."""
    if "[" in keeper or "(" in keeper:
        return False  # history["loss"]: it may be read under another name
    below = source.module if "." in keeper else source.scope_of(place)
    return _all_numbers(source, below, keeper, frozenset())


def _all_numbers(source: Source, below: cst.CSTNode, name: str, seen: frozenset[str]) -> bool:
    if name in seen:
        return True
    return all(
        _is_number_use(source, below, use, seen | {name}) for use in source.uses(name, below)
    )


def _is_number_use(
    source: Source, below: cst.CSTNode, use: cst.CSTNode, seen: frozenset[str]
) -> bool:
    """The context of one reading takes a Python number as well as a tensor."""
    node, up = use, source.parent(use)
    while up is not None:
        if isinstance(up, cst.BinaryOperation | cst.Arg) or _is_through(up):
            node, up = up, source.parent(up)
            continue
        break
    if isinstance(up, cst.Attribute):
        return up.attr.value in ("append", "clear") and node is use
    if isinstance(up, cst.Element):
        return _starts_plain(source, up)
    if isinstance(up, cst.Call):
        known = function_name(up)
        return known in _ENDS and owner(source, up) in {"", *_ARRAYS}
    if isinstance(up, cst.Assign):
        targets = [source.code(t.target) for t in up.targets]
        return all(_all_numbers(source, below, one, seen) for one in targets)
    return isinstance(
        up,
        cst.AugAssign
        | cst.AssignTarget
        | cst.FormattedStringExpression
        | cst.ComparisonTarget
        | cst.Comparison
        | cst.Expr,
    ) and not (isinstance(up, cst.AssignTarget) and _starts_as_tensor(source, up))


def _starts_plain(source: Source, element: cst.Element) -> bool:
    """``losses, total = [], 0.0``."""
    target = source.parent(source.parent(element) or element)
    assign = source.parent(target) if isinstance(target, cst.AssignTarget) else None
    return isinstance(assign, cst.Assign) and not source.every(cst.Call, assign.value)


def _is_through(node: cst.CSTNode) -> bool:
    return (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Name)
        and node.func.value in _THROUGH
    )


def _starts_as_tensor(source: Source, target: cst.AssignTarget) -> bool:
    """``total = torch.zeros(1)``: a tensor from the start."""
    assign = source.parent(target)
    return (
        isinstance(assign, cst.Assign)
        and isinstance(assign.value, cst.Call)
        and owner(source, assign.value) not in ("", *_ARRAYS)
    )
