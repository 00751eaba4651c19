"""What names in a training script stand for: torch, the model, the loss, the device."""

from __future__ import annotations

import libcst as cst

from cockpit.act.rewrites.source import Change, Loop, Source

_STATES = frozenset({"parameters", "train", "eval", "state_dict", "load_state_dict", "to", "cuda"})
_USUAL = frozenset({"model", "net", "self.model", "self.net"})
FRAMEWORKS = ("Accelerator", "Fabric", "LightningModule", "deepspeed", "pytorch_lightning")
"""They move, scale and cast by themselves: a change by hand works against them."""


def torch_name(source: Source) -> str | None:
    """What the script calls torch: ``torch``, ``th`` of ``import torch as th``; None: nothing."""
    return module_name(source, "torch")


def module_name(source: Source, module: str) -> str | None:
    """The name that an import at the top level gives to a module."""
    for statement in source.module.body:
        if not isinstance(statement, cst.SimpleStatementLine):
            continue
        for small in statement.body:
            if isinstance(small, cst.Import):
                for alias in small.names:
                    if source.code(alias.name) == module:
                        return source.code(alias.asname.name) if alias.asname else module
    return None


def with_import(source: Source, module: str) -> tuple[str, dict[cst.CSTNode, Change]] | None:
    """Its name in the script and what has to be changed for it; None: the name is taken.

    A missing ``import`` goes after the one of its package, else before the first (after those of
    ``__future__``).
    """
    known = module_name(source, module)
    if known:
        return known, {}
    root = module.split(".")[0]
    package = module_name(source, root)
    if package is None and _is_taken(source, root):
        return None
    if package not in (None, root):
        return None  # import torch as th: ``torch`` may be anything
    imports = [one for one in source.module.body if _is_import(one)]
    after = [one for one in imports if package and f"import {root}" == source.code(one)]
    if not imports:
        return None
    return module, _importing(source, module, (after or imports)[0], behind=bool(after))


def _is_taken(source: Source, root: str) -> bool:
    """The name is used without a plain import: it is bound in some other way."""
    return any(
        not any(isinstance(up, cst.ImportFrom | cst.Import) for up in source.above(use))
        for use in source.uses(root)
    )


def _importing(
    source: Source, module: str, anchor: cst.CSTNode, *, behind: bool
) -> dict[cst.CSTNode, Change]:
    at = next(i for i, one in enumerate(source.module.body) if one is anchor)

    def insert(updated: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(updated, cst.Module)
        new = cst.SimpleStatementLine([cst.Import([cst.ImportAlias(_dotted(module))])])
        body = list(updated.body)
        moved = body[at]
        assert isinstance(moved, cst.SimpleStatementLine)
        if behind:
            body[at : at + 1] = [moved, new]
        else:
            # the comment above the first import stays above all of them
            above = new.with_changes(leading_lines=moved.leading_lines)
            body[at : at + 1] = [above, moved.with_changes(leading_lines=())]
        return updated.with_changes(body=body)

    return {source.module: insert}


def _dotted(module: str) -> cst.Attribute | cst.Name:
    package, _, last = module.rpartition(".")
    return cst.Attribute(_dotted(package), cst.Name(last)) if package else cst.Name(last)


def _is_import(statement: cst.CSTNode) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    first = statement.body[0]
    if isinstance(first, cst.ImportFrom):
        return not (isinstance(first.module, cst.Name) and first.module.value == "__future__")
    return isinstance(first, cst.Import)


def function_name(call: cst.Call) -> str:
    """``append`` of ``losses.append(x)``, ``DataLoader`` of ``data.DataLoader(…)``, else empty."""
    if isinstance(call.func, cst.Attribute):
        return call.func.attr.value
    return call.func.value if isinstance(call.func, cst.Name) else ""


def owner(source: Source, call: cst.Call) -> str:
    """``losses`` of ``losses.append(x)``; empty for a plain function."""
    return source.code(call.func.value) if isinstance(call.func, cst.Attribute) else ""


def is_model(source: Source, name: str) -> bool:
    """The script treats it as an nn.Module: ``NAME.parameters()``, ``NAME.train()`` …"""
    return name in _USUAL or any(
        function_name(call) in _STATES and owner(source, call) == name and not _moves(call, name)
        for call in source.every(cst.Call)
    )


def _moves(call: cst.Call, name: str) -> bool:
    """``x.to(…)`` of a one-letter batch says nothing: tensors have it too."""
    return function_name(call) in ("to", "cuda") and len(name) < 3


def model_call(source: Source, node: cst.CSTNode) -> cst.Call | None:
    """The first ``model(…)`` in a statement."""
    for call in source.every(cst.Call, node, into_scopes=False):
        if isinstance(call.func, cst.Name | cst.Attribute):
            name = source.code(call.func)
            if is_model(source, name) and not name.endswith((".to", ".cuda")):
                return call
    return None


def backward_calls(source: Source, below: cst.CSTNode) -> list[cst.Call]:
    """``loss.backward()``, ``accelerator.backward(loss)``: not in functions defined there."""
    calls = source.every(cst.Call, below, into_scopes=False)
    return [c for c in calls if function_name(c) in ("backward", "manual_backward")]


def differentiated(call: cst.Call) -> str | None:
    """The name whose gradient a backward call asks for; None: not a plain name, or not a scalar.

    ``scaler.scale(loss / 4).backward()`` and ``accelerator.backward(loss)`` are known.
    """
    if not isinstance(call.func, cst.Attribute):
        return None
    keywords = {arg.keyword.value for arg in call.args if arg.keyword}
    if keywords or any(arg.star for arg in call.args):
        return None  # retain_graph, create_graph: it is wanted later; gradient: not a scalar
    subject: cst.BaseExpression = call.func.value
    if len(call.args) == 1:
        subject = call.args[0].value  # accelerator.backward(loss)
        if not isinstance(call.func.value, cst.Name | cst.Attribute):
            return None
    elif call.args:
        return None
    return _plain_name(subject)


def _plain_name(node: cst.BaseExpression) -> str | None:
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Divide):
        return _plain_name(node.left)
    if isinstance(node, cst.Call) and function_name(node) == "scale" and len(node.args) == 1:
        return _plain_name(node.args[0].value)
    return None


def training_loop(source: Source, line: int) -> Loop | None:
    """The innermost loop around the line that holds a ``.backward()``."""
    at = source.statement_at(line)
    loops = source.loops_around(at) if at is not None else ()
    return next((loop for loop in loops if backward_calls(source, loop)), None)


def assigned(source: Source, below: cst.CSTNode) -> set[str]:
    """Plain names that are bound by ``=``, ``for``, ``with`` or parameters below a node."""
    targets: list[cst.CSTNode] = []
    for node in source.walk(below, into_scopes=False):
        if isinstance(node, cst.AssignTarget | cst.For | cst.CompFor | cst.AnnAssign):
            targets.append(node.target)
        elif isinstance(node, cst.AsName | cst.Param):
            targets.append(node.name)
    return {name.value for t in targets for name in _bound(t)}


def _bound(target: cst.CSTNode) -> list[cst.Name]:
    if isinstance(target, cst.Name):
        return [target]
    if isinstance(target, cst.Tuple | cst.List):
        return [name for element in target.elements for name in _bound(element.value)]
    if isinstance(target, cst.StarredElement):
        return _bound(target.value)
    return []
