"""Fewer waits for the GPU: ``.item()`` once an epoch, printing every 100 steps."""

from __future__ import annotations

import libcst as cst

from cockpit.act.rewrites.build import inserting, wrapping
from cockpit.act.rewrites.edit import Edit, Facts
from cockpit.act.rewrites.names import function_name
from cockpit.act.rewrites.source import Change, Source, merged

_EVERY = 100
_SPEAKS = frozenset({"print", "info", "debug", "log", "add_scalar", "set_postfix"})
_READS = frozenset({"item", "tolist", "cpu", "numpy"})
_NARROW = ("bfloat16", "half", "float16")


def rewrite(text: str, line: int, _facts: Facts) -> Edit | None:
    """The statement at the line: one that adds ``loss.item()`` up, or one that prints it."""
    source = Source.parse(text)
    at = source.statement_at(line) if source else None
    if source is None or not isinstance(at, cst.SimpleStatementLine) or len(at.body) != 1:
        return None
    loop = next(source.loops_around(at), None)
    place = source.block_of(at)
    if loop is None or place is None or place[0] is not loop.body:
        return None  # below an ``if`` it does not happen each step
    if isinstance(at.body[0], cst.AugAssign):
        changes = _summed(source, at.body[0], loop)
    else:
        changes = _printed(source, at, loop, place[1])
    if changes is None:
        return None
    return Edit(
        source.changed(changes).code,
        "wait for the GPU less often",
        "lines of the output between, or the last digits of a sum in 32 bits",
        "the time of a step falls; the GPU's utilisation rises",
    )


def _summed(
    source: Source, add: cst.AugAssign, loop: cst.For | cst.While
) -> dict[cst.CSTNode, Change] | None:
    """``total += loss.item()`` → ``.detach()``, and ``total = float(total)`` after the loop."""
    reads = [c for c in source.every(cst.Call, add.value) if function_name(c) == "item"]
    place = source.block_of(loop)
    if not isinstance(add.target, cst.Name) or not isinstance(add.operator, cst.AddAssign):
        return None
    if len(reads) != 1 or reads[0].args or place is None or source.mentions(*_NARROW):
        return None  # a sum in 16 bits loses its small parts
    name = add.target.value
    if not _starts_at_zero(source, place[0], place[1], name) or loop.orelse is not None:
        return None
    if len(source.uses(name, loop)) != 1 or not _is_loss_item(source, reads[0]):
        return None
    after = inserting(place[0], place[1] + 1, f"{name} = float({name})")
    return merged({reads[0]: _detached}, after)


def _is_loss_item(source: Source, call: cst.Call) -> bool:
    """``loss.item()``: a count would become a fraction by ``float``."""
    subject = call.func.value if isinstance(call.func, cst.Attribute) else None
    return isinstance(subject, cst.Name) and "loss" in source.code(subject)


def _detached(call: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(call, cst.Call)
    assert isinstance(call.func, cst.Attribute)
    return call.with_changes(func=call.func.with_changes(attr=cst.Name("detach")))


def _starts_at_zero(source: Source, block: cst.CSTNode, before: int, name: str) -> bool:
    """The last thing assigned to it before the loop, in the same block, is 0."""
    assert isinstance(block, cst.IndentedBlock | cst.Module)
    for statement in reversed(block.body[:before]):
        values = source.values_of(name, statement)
        if values:
            return (
                isinstance(values[-1], cst.Integer | cst.Float)
                and float(source.code(values[-1])) == 0
            )
        if source.uses(name, statement):
            return False
    return False


def _printed(
    source: Source,
    at: cst.SimpleStatementLine,
    loop: cst.For | cst.While,
    index: int,
) -> dict[cst.CSTNode, Change] | None:
    """``print(loss.item())`` → below ``if step % 100 == 0:`` with the loop's own counter."""
    small = at.body[0]
    call = small.value if isinstance(small, cst.Expr) else None
    if not isinstance(call, cst.Call) or function_name(call) not in _SPEAKS:
        return None
    inner = [function_name(c) for c in source.every(cst.Call, call)]
    counter = _counter(source, loop)
    if counter is None or not _READS & set(inner) or source.every(cst.NamedExpr, call):
        return None
    return wrapping(_body(loop), index, index, f"if {counter} % {_EVERY} == 0")


def _body(loop: cst.For | cst.While) -> cst.IndentedBlock:
    """The body of a loop whose statements have lines of their own."""
    assert isinstance(loop.body, cst.IndentedBlock)
    return loop.body


def _counter(source: Source, loop: cst.For | cst.While) -> str | None:
    """``i`` of ``for i, … in enumerate(…)``, of ``for i in range(…)``, or of ``i += 1``."""
    return _loop_counter(source, loop) or _own_counter(source, loop)


def _own_counter(source: Source, loop: cst.For | cst.While) -> str | None:
    """The only name that goes up by one each step."""
    adds = [
        source.code(one.target)
        for statement in _body(loop).body
        if isinstance(statement, cst.SimpleStatementLine)
        for one in statement.body
        if isinstance(one, cst.AugAssign)
        and isinstance(one.operator, cst.AddAssign)
        and source.code(one.value) == "1"
    ]
    return adds[0] if len(adds) == 1 else None


def _loop_counter(source: Source, loop: cst.For | cst.While) -> str | None:
    if not isinstance(loop, cst.For) or not isinstance(loop.iter, cst.Call):
        return None
    target: cst.CSTNode = loop.target
    name = function_name(loop.iter)
    if name == "tqdm" and loop.iter.args and isinstance(loop.iter.args[0].value, cst.Call):
        name = function_name(loop.iter.args[0].value)
    if name == "enumerate" and isinstance(target, cst.Tuple):
        target = target.elements[0].value
    elif name not in ("range", "trange"):
        return None
    written = [source.code(t.target) for t in source.every(cst.AssignTarget, loop.body)]
    if not isinstance(target, cst.Name) or target.value in written:
        return None
    return target.value
