"""Tensors of the batch that were left on the CPU, a model that is never moved, ``device = "cpu"``.

Only what goes into the model or the loss is moved: the rest of a batch need not be tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import libcst as cst

from cockpit.act.rewrites.batch import batch_move
from cockpit.act.rewrites.devices import is_moved, moves_of, visible
from cockpit.act.rewrites.edit import Edit, Facts
from cockpit.act.rewrites.names import FRAMEWORKS, function_name, is_model, model_call, torch_name
from cockpit.act.rewrites.source import Change, Source, merged

_PLACED = ("device_map", "Trainer", "TrainingArguments", "load_in_8bit", "DistributedType")
Changes = Mapping[cst.CSTNode, Change]


def rewrite(text: str, line: int, facts: Facts) -> Edit | None:
    """By what the script lacks: the literal device, the model's move, the batch's move.

    Fact ``on_cpu``: nothing failed, the run only does not use the GPU.
    """
    source = Source.parse(text)
    if source is None or source.mentions(*_PLACED, *FRAMEWORKS):
        return None
    changes = _changes(source, line, bool(facts.get("on_cpu")))
    if not changes:
        return None
    return Edit(
        source.changed(changes).code,
        "bring model and batch to the same device",
        "nothing",
        "the step passes; the process holds memory on the GPU",
    )


def _changes(source: Source, line: int, on_cpu: bool) -> Changes | None:
    literal = _literal_cpu(source)
    if literal is not None:
        wanted = on_cpu or source.mentions("cuda")
        return {literal: _to_cuda} if wanted else None
    at = source.statement_at(line)
    if at is None:
        return None
    model = _model_name(source, at)
    if model is not None and not is_moved(source, model):
        return _both(source, at, model) if on_cpu else _model_move(source, at, model)
    return batch_move(source, at, model, None)


def _model_name(source: Source, at: cst.CSTNode) -> str | None:
    """The model at the line, or the one that its loop calls."""
    for node in (at, *source.loops_around(at)):
        call = model_call(source, node)
        if call is not None:
            return source.code(call.func)
    return None


# ── device = "cpu"


def _literal_cpu(source: Source) -> cst.SimpleString | None:
    """The string of the only ``device = "cpu"`` or ``torch.device("cpu")``, where it is used."""
    values = source.values_of("device")
    if len(values) != 1:
        return None
    value: cst.BaseExpression = values[0]
    if isinstance(value, cst.Call) and function_name(value) == "device" and len(value.args) == 1:
        value = value.args[0].value
    is_cpu = isinstance(value, cst.SimpleString) and value.evaluated_value == "cpu"
    used = any(
        function_name(call) == "to" and any(source.code(arg.value) == "device" for arg in call.args)
        for call in source.every(cst.Call)
    )
    return value if is_cpu and used and isinstance(value, cst.SimpleString) else None


def _to_cuda(node: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(node, cst.SimpleString)
    return node.with_changes(value=f"{node.quote}cuda{node.quote}")


# ── a model that is never moved


def _both(source: Source, at: cst.CSTNode, model: str) -> Changes | None:
    """Nothing in the script knows of a GPU: model and batch go there."""
    if source.mentions("cuda", "to", "device"):
        return None
    made = _made(source, model)
    moved = batch_move(source, at, model, '"cuda"')
    if made is None or moved is None or torch_name(source) is None:
        return None
    return merged({made: _moving('"cuda"')}, moved)


def _model_move(source: Source, at: cst.CSTNode, model: str) -> Changes | None:
    """The inputs are moved, the model is not: ``model = Net()`` → ``Net().to(device)``."""
    made = _made(source, model)
    devices = {device for name in _inputs(source, at, model) for device in moves_of(source, name)}
    if made is None or len(devices) != 1:
        return None
    device = next(iter(devices))
    return {made: _moving(device)} if visible(source, device, made, before=True) else None


def _made(source: Source, model: str) -> cst.Call | None:
    """The only ``model = Net(…)`` of the file."""
    values = source.values_of(model)
    only = values[0] if len(values) == 1 else None
    if not isinstance(only, cst.Call) or not is_model(source, model):
        return None
    return only if isinstance(source.parent(only), cst.Assign) else None


def _inputs(source: Source, at: cst.CSTNode, model: str) -> Iterator[str]:
    for node in (at, *source.loops_around(at)):
        for call in source.every(cst.Call, node):
            if source.code(call.func) == model:
                yield from (source.code(arg.value) for arg in call.args)


def _moving(device: str) -> Change:
    def change(node: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(node, cst.Call)
        argument = cst.Arg(cst.parse_expression(device))
        return cst.Call(cst.Attribute(node, cst.Name("to")), [argument])

    return change
