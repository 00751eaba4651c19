"""Forward pass and loss under ``torch.autocast``: activations of half the size."""

from __future__ import annotations

import libcst as cst

from cockpit.act.rewrites.build import wrapping
from cockpit.act.rewrites.edit import Edit, Facts
from cockpit.act.rewrites.names import FRAMEWORKS, function_name, model_call, with_import
from cockpit.act.rewrites.source import Block, Source, merged

_ALREADY = ("autocast", "GradScaler", "bfloat16", "half", "float16", "set_default_dtype", "amp")
_TRAINERS = ("Trainer", "TrainingArguments", "fp16", "bf16", *FRAMEWORKS)
_UNSAFE = ("BCELoss", "binary_cross_entropy", "double", "float64")
"""They raise an error under autocast, or were chosen for their precision."""


def rewrite(text: str, line: int, _facts: Facts) -> Edit | None:
    """The statements from ``model(…)`` to the loss, where all of them stand in one block.

    For compute capability 8.0 and newer (``Known.has_bf16``).
    """
    source = Source.parse(text)
    if source is None or source.mentions(*_ALREADY, *_TRAINERS, *_UNSAFE):
        return None
    found = _forward(source, line)
    torch = with_import(source, "torch")
    if found is None or torch is None:
        return None
    block, first, last = found
    if _reads_as_array(source, block):
        return None
    name, importing = torch
    header = f'with {name}.autocast("cuda", dtype={name}.bfloat16)'
    return Edit(
        source.changed(merged(wrapping(block, first, last, header), importing)).code,
        "compute the forward pass in bf16",
        "a little precision",
        "the peak of torch.cuda.max_memory_allocated() falls, the loss goes on falling",
    )


def _forward(source: Source, line: int) -> tuple[Block, int, int] | None:
    """(block, first, last): from the model's call to the last statement that makes the loss."""
    at = source.statement_at(line)
    place = source.block_of(at) if at is not None else None
    if place is None:
        return None
    block, index = place
    backward = next(
        (i for i in range(index, len(block.body)) if _steps_back(source, block.body[i])), None
    )
    if backward is None:
        return None
    calls = [i for i in range(backward) if _is_simple_call(source, block.body[i])]
    if len(calls) != 1:
        return None  # several models, or one that is called twice: which part is meant?
    loss = _loss_at(source, block, calls[0], backward)
    if loss is None or not all(_is_plain(block.body[i]) for i in range(calls[0], loss + 1)):
        return None
    return (block, calls[0], loss) if calls[0] <= index <= backward else None


def _is_simple_call(source: Source, statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and bool(model_call(source, statement))


def _steps_back(source: Source, statement: cst.CSTNode) -> bool:
    calls = source.every(cst.Call, statement, into_scopes=False)
    return isinstance(statement, cst.SimpleStatementLine) and any(
        function_name(call) == "backward" for call in calls
    )


def _is_plain(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and all(
        isinstance(small, cst.Assign | cst.Expr | cst.AugAssign) for small in statement.body
    )


def _loss_at(source: Source, block: Block, call: int, backward: int) -> int | None:
    """Where the root of what is differentiated gets its last value; None: not in this block."""
    for node in source.every(cst.Call, block.body[backward]):
        if function_name(node) == "backward":
            names = {n.value for n in source.every(cst.Name, node)}
            ends = [i for i in range(call, backward) if _assigns(source, block.body[i]) & names]
            return max(ends) if ends else None
    return None


def _assigns(source: Source, statement: cst.CSTNode) -> set[str]:
    targets = [t.target for t in source.every(cst.AssignTarget, statement)]
    targets += [a.target for a in source.every(cst.AugAssign, statement)]
    return {name.value for t in targets for name in source.every(cst.Name, t)}


def _reads_as_array(source: Source, block: Block) -> bool:
    """``out.numpy()``: NumPy has no bf16, it would raise an error."""
    scope = source.scope_of(block)
    return any(function_name(call) == "numpy" for call in source.every(cst.Call, scope))
