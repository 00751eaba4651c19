"""``DataLoader(…)`` with workers of its own, pinned memory, workers that stay, a longer queue."""

from __future__ import annotations

import re

import libcst as cst

from cockpit.act.rewrites.build import with_argument
from cockpit.act.rewrites.edit import Edit, Facts
from cockpit.act.rewrites.names import function_name
from cockpit.act.rewrites.source import Source
from cockpit.model.text import plural

_POSITIONS = {"num_workers": 5, "pin_memory": 7}
"""Places of the arguments in the signature of torch.utils.data.DataLoader."""
_PREFETCH = 4
"""Batches a worker has ready: twice the default, for steps that need different times."""
_MOVES = frozenset({"cuda", "to"})
_STARTS_ANEW = ("spawn", "forkserver")


def rewrite(text: str, line: int, facts: Facts) -> Edit | None:
    """The call at the line, the one its loop reads, or the only one.

    Facts: ``workers`` (how many to have), which is needed, and ``python_version``.
    """
    source = Source.parse(text)
    workers = facts.get("workers")
    if source is None or not isinstance(workers, int) or workers < 0:
        return None
    call = _call(source, line)
    if call is None or not _is_safe(source, call, facts):
        return None
    changed = _with_workers(call, workers)
    if source.code(changed) == source.code(call):
        return None
    return Edit(
        source.changed({call: lambda _: changed}).code,
        _title(changed, workers),
        "host memory: each worker has its own copy of what the data set touches",
        "the GPU's utilisation rises, the time of a step falls",
    )


def _call(source: Source, line: int) -> cst.Call | None:
    calls = [c for c in source.every(cst.Call) if function_name(c) == "DataLoader"]
    at = [call for call in calls if source.covers(call, line)]
    if len(at) == 1 or len(calls) == 1:
        return (at or calls)[0]
    if at:
        return None
    statement = source.statement_at(line)
    for loop in source.loops_around(statement) if statement is not None else ():
        if isinstance(loop, cst.For):
            read = [c for c in calls if _is_read_by(source, c, loop)]
            if read:
                return read[0] if len(read) == 1 else None
    return None


def _is_read_by(source: Source, call: cst.Call, loop: cst.For) -> bool:
    """``loader = DataLoader(…)`` and ``for … in enumerate(loader)``."""
    assign = source.parent(call)
    if not isinstance(assign, cst.Assign):
        return False
    targets = {source.code(target.target) for target in assign.targets}
    return any(bool(source.uses(name, loop.iter)) for name in targets)


def _is_safe(source: Source, call: cst.Call, facts: Facts) -> bool:
    if any(arg.star for arg in call.args) or source.mentions("IterableDataset"):
        return False  # what is in ** is not seen; each worker would read a whole stream again
    if source.mentions(*_MOVES) and (_loads_on_gpu(source) or _is_on_gpu(source, call)):
        return False
    if not (_starts_anew(facts) or source.mentions(*_STARTS_ANEW)):
        return True
    return _is_guarded(source) and not source.every(cst.Lambda, call)  # it has to be pickled


def _starts_anew(facts: Facts) -> bool:
    """New workers import the script: the default since Python 3.14."""
    found = re.match(r"3\.(\d+)", str(facts.get("python_version") or ""))
    return found is not None and int(found[1]) >= 14


def _loads_on_gpu(source: Source) -> bool:
    """A data set that moves its items: a forked worker cannot use CUDA."""
    return any(
        function_name(call) in _MOVES
        for function in source.every(cst.FunctionDef)
        if function.name.value in ("__getitem__", "__getitems__", "collate", "collate_fn")
        for call in source.every(cst.Call, function)
    )


def _is_on_gpu(source: Source, call: cst.Call) -> bool:
    """The data set is made of tensors that were moved: only host memory can be pinned."""
    if not call.args:
        return True
    first = call.args[0].value
    made = [first, *source.values_of(source.code(first))]
    made += [v for one in made for n in source.every(cst.Name, one) for v in _values(source, n)]
    return any(function_name(c) in _MOVES for one in made for c in source.every(cst.Call, one))


def _values(source: Source, name: cst.Name) -> list[cst.BaseExpression]:
    return source.values_of(name.value)


def _is_guarded(source: Source) -> bool:
    """``if __name__ == "__main__":`` is there: new processes import the script."""
    return any("__name__" in source.code(one.test) for one in source.every(cst.If))


def _title(call: cst.Call, workers: int) -> str:
    keywords = {arg.keyword.value: arg.value for arg in call.args if arg.keyword}
    if isinstance(keywords.get("num_workers"), cst.Name | cst.Attribute | cst.Call):
        return "pin the loader's memory (its workers are an argument of the script)"
    return f"load data in {plural(workers, 'worker')}"


def _with_workers(call: cst.Call, workers: int) -> cst.Call:
    new, known = with_argument(call, "num_workers", str(workers), _POSITIONS["num_workers"])
    new, _ = with_argument(new, "pin_memory", "True", _POSITIONS["pin_memory"])
    if not known:
        return new  # num_workers=args.workers: may be 0, with which the others are an error
    if workers == 0:
        return _without(new, "persistent_workers", "prefetch_factor")
    new, _ = with_argument(new, "persistent_workers", "True", None)
    new, _ = with_argument(new, "prefetch_factor", str(_PREFETCH), None)
    return new


def _without(call: cst.Call, *names: str) -> cst.Call:
    """The call without some keywords (a comma that is left at the end is allowed)."""
    kept = [arg for arg in call.args if arg.keyword is None or arg.keyword.value not in names]
    return call.with_changes(args=kept)
