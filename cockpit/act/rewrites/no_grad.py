"""An evaluation loop under ``torch.no_grad()``: nothing there is differentiated."""

from __future__ import annotations

import re

import libcst as cst

from cockpit.act.rewrites.build import wrapping
from cockpit.act.rewrites.edit import Edit, Facts
from cockpit.act.rewrites.names import backward_calls, function_name, owner, torch_name
from cockpit.act.rewrites.source import Block, Source

_ALREADY = ("no_grad", "inference_mode", "set_grad_enabled", "enable_grad")
_NEEDS_GRADIENTS = ("grad", "requires_grad", "requires_grad_", "backward", "autograd")
_EVALUATES = re.compile(
    r"(^|_)(eval|evaluate|evaluation|valid|validate|validation|test|predict)(_|$)"
)

_ATTACKS = re.compile(r"attack|adversar|perturb|pgd|fgsm", re.IGNORECASE)
"""They differentiate with respect to the input, also in an evaluation."""


def rewrite(text: str, line: int, _facts: Facts) -> Edit | None:
    """The outermost loop around the line that follows ``model.eval()`` or is an evaluation's."""
    source = Source.parse(text)
    torch = torch_name(source) if source else None
    loop = _loop(source, line) if source else None
    if source is None or loop is None or torch is None:
        return None
    place = source.block_of(loop)
    if place is None or _is_doubtful(source, loop):
        return None
    block, index = place
    if not (_is_evaluation(source, loop) or _after_eval(source, block, index)):
        return None
    return Edit(
        source.changed(wrapping(block, index, index, f"with {torch}.no_grad()")).code,
        "evaluate without a graph",
        "nothing",
        "torch.cuda.memory_allocated() does not rise during the evaluation",
    )


def _loop(source: Source, line: int) -> cst.For | None:
    """The outermost loop of the function around the line without a backward pass."""
    at = source.statement_at(line)
    loops = list(source.loops_around(at)) if at is not None else []
    quiet = [one for one in loops if not backward_calls(source, one)]
    last = quiet[-1] if quiet else None
    return last if isinstance(last, cst.For) else None


def _is_doubtful(source: Source, loop: cst.For) -> bool:
    """Gradients are asked for in it, it hands values out while it runs, or it is done already."""
    names = {n.value for n in source.every(cst.Name, loop)}
    if names & {*_ALREADY, *_NEEDS_GRADIENTS} or source.every(cst.Yield, loop):
        return True
    calls = {function_name(call) for call in source.every(cst.Call, loop)}
    if any(name == "step" or _ATTACKS.search(name) for name in calls):
        return True
    if any(
        _differentiates(source, one)
        for one in source.every(cst.FunctionDef)
        if one.name.value in calls
    ):
        return True
    return any(_is_guarded(source, up) for up in source.above(loop))


def _differentiates(source: Source, function: cst.FunctionDef) -> bool:
    """A function of the file that the loop calls."""
    return not {n.value for n in source.every(cst.Name, function)}.isdisjoint(_NEEDS_GRADIENTS)


def _is_guarded(source: Source, up: cst.CSTNode) -> bool:
    if isinstance(up, cst.With):
        return any(word in source.code(item) for item in up.items for word in _ALREADY)
    if isinstance(up, cst.FunctionDef):
        return any(word in source.code(one) for one in up.decorators for word in _ALREADY)
    return False


def _is_evaluation(source: Source, loop: cst.For) -> bool:
    """In a function called ``evaluate``, ``validate_epoch`` … that never goes backward."""
    scope = source.scope_of(loop)
    return (
        isinstance(scope, cst.FunctionDef)
        and _EVALUATES.search(scope.name.value) is not None
        and not backward_calls(source, scope.body)
    )


def _after_eval(source: Source, block: Block, index: int) -> bool:
    """``model.eval()`` stands before it in the same block, and no ``model.train()`` between."""
    for statement in reversed(block.body[:index]):
        if not isinstance(statement, cst.SimpleStatementLine):
            continue
        for call in source.every(cst.Call, statement):
            if function_name(call) in ("eval", "train") and owner(source, call) and not call.args:
                return function_name(call) == "eval"
    return False
