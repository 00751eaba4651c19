"""Each rank on its own GPU: ``torch.cuda.set_device`` of LOCAL_RANK, which torchrun sets."""

from __future__ import annotations

import libcst as cst

from cockpit.act.rewrites.build import inserting
from cockpit.act.rewrites.edit import Edit, Facts
from cockpit.act.rewrites.names import FRAMEWORKS, function_name, torch_name, with_import
from cockpit.act.rewrites.source import Block, Change, Source, merged

_OTHERWISE = ("set_device", "spawn", "init_method", "gloo", "mpi", "CUDA_VISIBLE_DEVICES")
"""Done already, not started by torchrun, not on GPUs, or each rank sees one GPU only."""
_LOCAL = "LOCAL_RANK"


def rewrite(text: str, _line: int, _facts: Facts) -> Edit | None:
    """After the only reading of LOCAL_RANK; else after the only ``init_process_group``."""
    source = Source.parse(text)
    torch = torch_name(source) if source else None
    if source is None or torch is None or source.mentions(*_OTHERWISE, *FRAMEWORKS):
        return None
    starts = [c for c in source.every(cst.Call) if function_name(c) == "init_process_group"]
    if len(starts) != 1 or any(_is_by_hand(arg) for arg in starts[0].args):
        return None
    changes = _changes(source, starts[0], torch)
    if changes is None:
        return None
    return Edit(
        source.changed(changes).code,
        "give each rank its own GPU",
        "nothing",
        "each rank's pid is on its own GPU in `cockpit ps`",
    )


def _is_by_hand(arg: cst.Arg) -> bool:
    """``rank=…``: started by something else, which need not set LOCAL_RANK."""
    return bool(arg.star) or (arg.keyword is not None and arg.keyword.value in ("rank", "store"))


def _changes(source: Source, start: cst.Call, torch: str) -> dict[cst.CSTNode, Change] | None:
    reads = [a for a in source.every(cst.Assign) if _reads_local_rank(source, a)]
    if reads:
        target = source.code(reads[0].targets[0].target)
        if len(reads) > 1 or len(reads[0].targets) > 1 or not target.isidentifier():
            return None
        return _after(source, reads[0], f"{torch}.cuda.set_device({target})")
    if source.mentions(_LOCAL):
        return None  # it is read in some other way
    importing = with_import(source, "os")
    if importing is None:
        return None
    number = f'int({importing[0]}.environ["{_LOCAL}"])'
    after = _after(source, start, f"{torch}.cuda.set_device({number})")
    return None if after is None else merged(after, importing[1])


def _reads_local_rank(source: Source, assign: cst.Assign) -> bool:
    """``int(os.environ["LOCAL_RANK"])``: a number."""
    value = source.code(assign.value)
    return (
        value.startswith("int(") and _LOCAL in value and ("environ" in value or "getenv" in value)
    )


def _after(source: Source, node: cst.CSTNode, code: str) -> dict[cst.CSTNode, Change] | None:
    statement = source.statement_of(node)
    if not isinstance(statement, cst.SimpleStatementLine):
        return None
    place = source.block_of(statement)
    if place is None or _is_conditional(source, place[0]):
        return None
    return inserting(place[0], place[1] + 1, code)


def _is_conditional(source: Source, block: Block) -> bool:
    """Below an ``if`` other than that of ``__main__``: perhaps not a run of several ranks."""
    up = source.parent(block)
    return isinstance(up, cst.BaseCompoundStatement) and not (
        isinstance(up, cst.FunctionDef)
        or (isinstance(up, cst.If) and "__name__" in source.code(up.test))
    )
