"""Moving what a loop reads from its DataLoader to the GPU, at the top of the loop's body."""

from __future__ import annotations

import libcst as cst

from cockpit.act.rewrites.build import inserting
from cockpit.act.rewrites.devices import moves_of, script_device
from cockpit.act.rewrites.names import function_name, model_call, owner, torch_name
from cockpit.act.rewrites.source import Change, Source

_LOSSES = frozenset({"criterion", "loss_fn", "loss_func", "loss_function", "self.criterion"})
_HOST_ONLY = frozenset({"np", "numpy", "plt", "cv2", "Image"})


def batch_move(
    source: Source, at: cst.CSTNode, model: str | None, device: str | None
) -> dict[cst.CSTNode, Change] | None:
    """The statement that moves it; None where what is read need not be tensors."""
    if source.mentions("collate_fn"):
        return None  # lists of tensors, or anything else
    for loop in source.loops_around(at):
        if isinstance(loop, cst.For) and isinstance(loop.body, cst.IndentedBlock):
            names = _read(source, loop)
            where = device or script_device(source, at, model)
            if names and where is not None:
                found = _in_loop(source, loop, names, where)
                if found is not None or _consumed(source, loop, set(names)):
                    return found
    return None


def _read(source: Source, loop: cst.For) -> list[str]:
    """The names that a step binds; without the counter of ``enumerate``."""
    target: cst.BaseExpression = loop.target
    if isinstance(loop.iter, cst.Call):
        name = function_name(loop.iter)
        if name in ("range", "trange", "zip"):
            return []
        if _is_counted(source, loop.iter) and isinstance(target, cst.Tuple):
            target = target.elements[1].value if len(target.elements) == 2 else target
    if isinstance(target, cst.Name):
        return [target.value]
    if isinstance(target, cst.Tuple | cst.List):
        return [e.value.value for e in target.elements if isinstance(e.value, cst.Name)]
    return []


def _is_counted(source: Source, call: cst.Call) -> bool:
    return any(function_name(c) == "enumerate" for c in source.every(cst.Call, call))


def _in_loop(
    source: Source, loop: cst.For, names: list[str], device: str
) -> dict[cst.CSTNode, Change] | None:
    assert isinstance(loop.body, cst.IndentedBlock)
    at = 0
    first = loop.body.body[0]
    if len(names) == 1:
        unpacked = _unpacked(source, first, names[0])
        if unpacked:
            names, at = unpacked, 1
        elif not isinstance(loop.target, cst.Tuple):
            code = _whole(source, loop, names[0], device)
            return inserting(loop.body, 0, code) if code else None
    wanted = _consumed(source, loop, set(names))
    left = [name for name in names if name in wanted and not moves_of(source, name)]
    if not left or any(_is_unsafe(source, loop, name, first if at else None) for name in left):
        return None
    values = ", ".join(f"{name}.to({_arguments(source, device)})" for name in left)
    return inserting(loop.body, at, f"{', '.join(left)} = {values}")


def _unpacked(source: Source, statement: cst.CSTNode, batch: str) -> list[str]:
    """``x, y = batch``."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return []
    assign = statement.body[0]
    if not isinstance(assign, cst.Assign) or source.code(assign.value) != batch:
        return []
    target = assign.targets[0].target
    if not isinstance(target, cst.Tuple) or len(assign.targets) != 1:
        return []
    return [e.value.value for e in target.elements if isinstance(e.value, cst.Name)]


def _whole(source: Source, loop: cst.For, batch: str, device: str) -> str | None:
    """``batch`` itself: a tensor, or a mapping of tensors."""
    uses = source.uses(batch, loop.body)
    if moves_of(source, batch) or _is_unsafe(source, loop, batch, None) or not uses:
        return None
    arguments = _arguments(source, device)
    parents = [source.parent(use) for use in uses]
    if any(isinstance(up, cst.CompFor | cst.Attribute) for up in parents):
        return None  # {k: v.to(…) for k, v in batch.items()}: it is moved in some way
    stars = [up for up in parents if isinstance(up, cst.Arg) and up.star == "**"]
    if stars and len(stars) == len(uses):
        return f"{batch} = {{k: v.to({arguments}) for k, v in {batch}.items()}}"
    torch = torch_name(source)
    if torch and all(_is_key(up) or up in stars for up in parents):
        if any(moves_of(source, text) for text in _moved_texts(source, loop)):
            return None
        kept = f"v.to({arguments}) if {torch}.is_tensor(v) else v"
        return f"{batch} = {{k: {kept} for k, v in {batch}.items()}}"
    plain = all(isinstance(up, cst.Arg) and not up.star for up in parents)
    consumed = batch in _consumed(source, loop, {batch})
    return f"{batch} = {batch}.to({arguments})" if plain and consumed else None


def _moved_texts(source: Source, loop: cst.For) -> list[str]:
    return [source.code(c) for c in source.every(cst.Call, loop.body)]


def _is_key(up: cst.CSTNode | None) -> bool:
    """``batch["pixels"]``: a mapping."""
    if not isinstance(up, cst.Subscript) or len(up.slice) != 1:
        return False
    index = up.slice[0].slice
    return isinstance(index, cst.Index) and isinstance(index.value, cst.SimpleString)


def _consumed(source: Source, loop: cst.For, names: set[str]) -> set[str]:
    """Those that go into a model or a loss as they are: tensors."""
    found = set()
    for call in source.every(cst.Call, loop.body, into_scopes=False):
        if _takes_tensors(source, call):
            found |= {a.value.value for a in call.args if isinstance(a.value, cst.Name)}
    return found & names


def _takes_tensors(source: Source, call: cst.Call) -> bool:
    name = source.code(call.func)
    if name in _LOSSES or name.startswith(("F.", "nn.functional.", "torch.nn.functional.")):
        return True
    if any(_makes_loss(value) for value in source.values_of(name)):
        return True
    return model_call(source, call) is call


def _makes_loss(value: cst.BaseExpression) -> bool:
    """``nn.CrossEntropyLoss()``."""
    return isinstance(value, cst.Call) and function_name(value).endswith("Loss")


def _is_unsafe(source: Source, loop: cst.For, name: str, unpacking: cst.CSTNode | None) -> bool:
    """It is bound anew in the body, or goes to what only reads host memory."""
    for target in source.every(cst.AssignTarget, loop.body, into_scopes=False):
        inside = unpacking is not None and unpacking in source.above(target)
        if not inside and source.uses(name, target):
            return True
    for call in source.every(cst.Call, loop.body, into_scopes=False):
        root = source.code(call.func).split(".")[0]
        if owner(source, call).split(".")[0] == name and function_name(call) == "numpy":
            return ".cpu()" not in source.code(call)
        if root in _HOST_ONLY and any(source.uses(name, arg) for arg in call.args):
            return True
    return False


def _arguments(source: Source, device: str) -> str:
    """``non_blocking`` only helps with pinned memory."""
    pinned = any(
        arg.keyword is not None
        and arg.keyword.value == "pin_memory"
        and source.code(arg.value) == "True"
        for call in source.every(cst.Call)
        for arg in call.args
    )
    return f"{device}, non_blocking=True" if pinned else device
