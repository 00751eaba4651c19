"""Recompute activations in the backward pass: by the model's own switch, or layer by layer."""

from __future__ import annotations

import re

import libcst as cst

from cockpit.act.rewrites.build import inserting, with_keyword
from cockpit.act.rewrites.edit import Edit, Facts
from cockpit.act.rewrites.names import FRAMEWORKS, function_name, owner, with_import
from cockpit.act.rewrites.source import Change, Source, merged

_ALREADY = ("gradient_checkpointing", "gradient_checkpointing_enable", "checkpoint_sequential")
_DOUBTFUL = (
    "get_peft_model",
    "deepspeed",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "CUDAGraph",
    "jit",
)
"""Adapters need gradients at the input; running statistics would be updated twice."""
_CACHES = re.compile(r"cache|past_key")
"""What a second forward pass would add to again."""
_HF_CLASS = re.compile(r"^(AutoModel\w*|\w+For\w+|\w+Model)$")
_ARGUMENTS = frozenset({"TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig"})
_MODULE = "torch.utils.checkpoint"


def rewrite(text: str, line: int, _facts: Facts) -> Edit | None:
    """A layer loop or sequential parts in the ``forward`` at the line; else the HF model."""
    source = Source.parse(text)
    if source is None or source.mentions(*_ALREADY, *_DOUBTFUL):
        return None
    changes = _layers(source, line)
    if changes is None:
        changes = _arguments(source) or _enabled(source)
    if changes is None:
        return None
    return Edit(
        source.changed(changes).code,
        "recompute activations in the backward pass",
        "about 30 % speed",
        "the peak of torch.cuda.max_memory_allocated() falls",
    )


# ── Hugging Face


def _arguments(source: Source) -> dict[cst.CSTNode, Change] | None:
    """``TrainingArguments(…, gradient_checkpointing=True)``."""
    calls = [c for c in source.every(cst.Call) if function_name(c) in _ARGUMENTS]
    if len(calls) != 1 or any(arg.star for arg in calls[0].args):
        return None
    changed = with_keyword(calls[0], "gradient_checkpointing", "True")
    return {calls[0]: lambda _: changed}


def _enabled(source: Source) -> dict[cst.CSTNode, Change] | None:
    """``model.gradient_checkpointing_enable()`` after it is made, and moved right after that."""
    made = [a for a in source.every(cst.Assign) if _is_hf_model(source, a.value)]
    if len(made) != 1 or len(made[0].targets) != 1 or source.mentions("Trainer", *FRAMEWORKS):
        return None
    name = source.code(made[0].targets[0].target)
    statement = source.statement_of(made[0])
    place = source.block_of(statement) if statement is not None else None
    if place is None or not source.mentions("backward") or "[" in name or "," in name:
        return None
    block, index = place
    while index + 1 < len(block.body) and _moves(source, block.body[index + 1], name):
        index += 1
    return inserting(block, index + 1, f"{name}.gradient_checkpointing_enable()")


def _is_hf_model(source: Source, value: cst.BaseExpression) -> bool:
    """``AutoModelForCausalLM.from_pretrained(…)``, perhaps with ``.to(device)`` behind it."""
    node: cst.CSTNode = value
    while isinstance(node, cst.Call):
        if function_name(node) in ("from_pretrained", "from_config"):
            return _HF_CLASS.match(owner(source, node).split(".")[-1]) is not None
        node = node.func.value if isinstance(node.func, cst.Attribute) else node.func
    return False


def _moves(source: Source, statement: cst.CSTNode, name: str) -> bool:
    """``model = model.to(device)``, ``model.cuda()``, ``model.train()``."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    small = statement.body[0]
    if not isinstance(small, cst.Expr | cst.Assign) or not isinstance(small.value, cst.Call):
        return False
    call = small.value
    return owner(source, call) == name and function_name(call) in ("to", "cuda", "train")


# ── the script's own module


def _layers(source: Source, line: int) -> dict[cst.CSTNode, Change] | None:
    at = source.statement_at(line)
    forward = source.scope_of(at) if at is not None else None
    if not isinstance(forward, cst.FunctionDef) or forward.name.value != "forward":
        return None
    code = source.code(forward)
    if source.class_of(forward) is None or "checkpoint" in code or _CACHES.search(code):
        return None
    calls = _in_loops(source, forward) or _sequential(source, forward)
    importing = with_import(source, _MODULE)
    if not calls or importing is None:
        return None
    function = f"{importing[0]}.checkpoint"
    return merged({call: _checkpointed(function) for call in calls}, importing[1])


def _in_loops(source: Source, forward: cst.FunctionDef) -> list[cst.Call]:
    """``x = layer(x)`` of ``for layer in self.layers``."""
    found = []
    for loop in source.every(cst.For, forward.body, into_scopes=False):
        target: cst.BaseExpression = loop.target
        read = loop.iter
        if isinstance(read, cst.Call) and function_name(read) == "enumerate" and read.args:
            read = read.args[0].value
            target = target.elements[-1].value if isinstance(target, cst.Tuple) else target
        if source.code(read).startswith("self.") and isinstance(target, cst.Name):
            found += _fed_back(source, loop.body, {target.value})
    return found


def _sequential(source: Source, forward: cst.FunctionDef) -> list[cst.Call]:
    """``x = self.encoder(x)`` of several nn.Sequential: one alone would save nothing."""
    owner_class = source.class_of(forward)
    parts = {
        source.code(assign.targets[0].target)
        for assign in source.every(cst.Assign, owner_class)
        if isinstance(assign.value, cst.Call) and function_name(assign.value) == "Sequential"
    }
    calls = _fed_back(source, forward.body, parts)
    return calls if len(calls) > 1 else []


def _fed_back(source: Source, below: cst.CSTNode, functions: set[str]) -> list[cst.Call]:
    """Calls of one of the functions whose first argument is a name that takes the result."""
    found = []
    for assign in source.every(cst.Assign, below, into_scopes=False):
        call = assign.value
        if not isinstance(call, cst.Call) or source.code(call.func) not in functions:
            continue
        named = {n.value for t in assign.targets for n in source.every(cst.Name, t)}
        first = call.args[0].value if call.args else None
        plain = all(not arg.star for arg in call.args)
        if isinstance(first, cst.Name) and first.value in named and plain:
            found.append(call)
    return found


def _checkpointed(function: str) -> Change:
    def change(node: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(node, cst.Call)
        space = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        first = cst.Arg(node.func, comma=space)
        moved = node.with_changes(func=cst.parse_expression(function), args=[first, *node.args])
        return with_keyword(moved, "use_reentrant", "False")

    return change
