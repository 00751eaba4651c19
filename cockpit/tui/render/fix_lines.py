"""What can be done in a run: each fix, what happens, what is lost by it; then its outcome."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.model.memory import AttachPlan, RunOutcome, RunRequest
from cockpit.model.run import Run, RunDevice
from cockpit.model.text import gib
from cockpit.tui.line import Line, Row, Span
from cockpit.tui.render.cells import fit_line, foreign, merged, pad, wrapped
from cockpit.tui.render.fix import STEP, Fix
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.memory_bar import Slice, amount
from cockpit.tui.render.memory_subject import OTHERS
from cockpit.tui.render.tuning_fixes import profile, thresholds

_WAYS = {
    "agent": "An agent is there already: nothing is paused or loaded, it is only asked.",
    "remote_exec": "sys.remote_exec: the interpreter itself runs our file at its next safe point.",
    "ptrace": "ptrace: one thread stops for about 1 ms; a pending call loads the agent.",
    "gdb": "gdb: the whole process stops for about 0.2 s; a pending call loads the agent.",
}


def fixes_of(run: Run, slices: Sequence[Slice], framework: str | None) -> list[Fix]:
    """What is offered for this run, the gentlest first. ``slices`` of all its devices together."""
    pid = run.pid
    cuda = bool(run.devices) and run.cuda_initialized is not False
    fixes = [_gc(pid)]
    if cuda and framework not in OTHERS:
        fixes.append(_empty_cache(pid, slices))
    if cuda:
        fixes += [*_expandable(pid), *_history(pid), _snapshot(pid), *thresholds(pid)]
    fixes += [profile(pid), *_precision(pid)]
    return [fix.pinned(run.start_ticks) for fix in fixes]


def detach_fix(run: Run) -> Fix:
    """Not in the menu: it has a key of its own."""
    return Fix(
        "detach",
        "detach",
        "",
        RunRequest(pid=run.pid, op="detach", start_ticks=run.start_ticks),
        ("The agent's thread, socket and optimizer hook are taken out of the process.",),
        "the numbers of its allocator, until it is attached again. The training goes on.",
    )


def undo_fix(request: RunRequest) -> Fix:
    """The opposite of what was just done."""
    what = (
        f"{request.name} back to {request.value}"
        if request.op == "set"
        else (f"{request.op} {request.name or ''}".strip())
    )
    happens = ("It is done between two steps, as the first time.",)
    return Fix("undo", f"undo: {foreign(what)}", "", request, happens, "nothing.")


def _gc(pid: int) -> Fix:
    return Fix(
        "gc",
        "collect garbage",
        "gc.collect()",
        RunRequest(pid=pid, op="gc"),
        (STEP, "That step takes longer: about 0.1 s a million Python objects."),
        "nothing. Tensors that only reference cycles held become cache.",
    )


def _empty_cache(pid: int, slices: Sequence[Slice]) -> Fix:
    back, stuck = amount(slices, "returnable"), amount(slices, "stuck")
    if back is None or stuck is None:
        aside, words = "", "How much of the cache can come back is not known for this torch."
    else:
        graphs = amount(slices, "graphs") or 0
        cached = back + stuck + graphs
        aside = f"{gib(back)} GiB come back, {gib(stuck)} stuck"
        words = f"{gib(back)} of {gib(cached)} GiB cached can come back"
        words += f"; {gib(stuck)} GiB sit in split blocks and stay." if stuck else "."
        if back < stuck:
            words = (
                f"Only {gib(back)} of {gib(cached)} GiB cached can be returned; {gib(stuck)} GiB "
                "sit in split blocks (fragmentation)"
            )
            words += f", {gib(graphs)} GiB belong to CUDA graphs. " if graphs else ". "
            words += "Try expandable_segments:True."
    return Fix(
        "empty_cache",
        "give cache back to the GPU",
        aside,
        RunRequest(pid=pid, op="empty_cache"),
        (words, STEP),
        "speed for a few steps: what was given back is asked for again with cudaMalloc.",
    )


def _expandable(pid: int) -> list[Fix]:
    loses = (
        "nothing that is allocated. Tensors sent to other processes by CUDA IPC stop working for "
        "new segments."
    )
    on = ("New segments grow in place instead of splitting; those that are there stay.", STEP)
    off = ("New segments are fixed again; expandable ones that are there stay.", STEP)
    return [
        Fix(
            f"expandable_{word}",
            f"expandable segments {word}",
            aside,
            RunRequest(pid=pid, op="set", name="expandable_segments", value=value),
            happens,
            loses if value else "nothing.",
        )
        for word, value, happens, aside in (
            ("on", True, on, "against split blocks"),
            ("off", False, off, ""),
        )
    ]


def _history(pid: int) -> list[Fix]:
    on = "Recording allocations (python stacks, last 100 000 events, about 2 µs each)."
    return [
        Fix(
            "history_start",
            "record allocations",
            "by stack, 2 µs each",
            RunRequest(pid=pid, op="history", name="start"),
            (on, "Only what is allocated from then on has a stack."),
            "about 2 µs an allocation, and some host memory.",
        ),
        Fix(
            "history_stop",
            "stop recording",
            "",
            RunRequest(pid=pid, op="history", name="stop"),
            ("Allocations are recorded no longer.",),
            "the stacks that were recorded.",
        ),
    ]


def _snapshot(pid: int) -> Fix:
    return Fix(
        "snapshot",
        "write a memory snapshot",
        "for pytorch.org/memory_viz",
        RunRequest(pid=pid, op="snapshot"),
        (
            "Segments, and the recorded allocations, go to a file that only you can read.",
            "With 100 000 recorded allocations that step takes about 0.7 s more.",
        ),
        "nothing.",
    )


def _precision(pid: int) -> list[Fix]:
    words = {
        "high": ("TF32 matmul on", "fp32 products in TF32: several times faster, 10-bit mantissa"),
        "highest": ("TF32 matmul off", "fp32 products in full fp32"),
    }
    return [
        Fix(
            f"precision_{value}",
            title,
            f"matmul precision {value}",
            RunRequest(pid=pid, op="set", name="matmul_precision", value=value),
            (f"{meaning}.", "bf16 and fp16 products are not touched. " + STEP),
            "bit-identical results with the steps before.",
        )
        for value, (title, meaning) in words.items()
    ]


# -- lines


def fix_rows(fixes: Sequence[Fix], width: int, glyphs: Glyphs) -> list[Row]:
    """The menu."""
    rows = []
    for fix in fixes:
        line = merged(((f" {pad(fix.title, 28)}", ""), (f" {fix.aside}", "dim")))
        rows.append(Row(fix.key, glyphs.finish(fit_line(line, width))))
    return rows


def fix_lines(fix: Fix, pid: int, width: int, glyphs: Glyphs) -> list[Line]:
    """The question: what happens, what is lost."""
    lines: list[Line] = [((f" {fix.title}", "strong"), (f"  in pid {pid}", "")), ()]
    if fix.choices:
        lines += [choice_line(fix), ()]
    for text in fix.happens:
        lines += [((f" {part}", ""),) for part in wrapped(text, max(8, width - 2))]
    parts = wrapped(f"You lose: {fix.loses}", max(8, width - 2))
    lines += [(), *(((f" {part}", "label"),) for part in parts)]
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def choice_line(fix: Fix) -> Line:
    """All values, the chosen one in brackets: colour is never the only sign."""
    spans: list[Span] = []
    for one in fix.choices:
        chosen = one.request == fix.request
        spans.append((f" [{one.word}]" if chosen else f"  {one.word} ", "strong" if chosen else ""))
    return merged(spans)


def attach_lines(plan: AttachPlan, width: int, glyphs: Glyphs) -> list[Line]:
    """The plan's sentence, and what its way means."""
    refused = plan.way is None
    sign = f"{glyphs.no} " if refused else ""
    parts = wrapped(f"{sign}{foreign(plan.sentence)}", max(8, width - 2))
    lines: list[Line] = [((f" {part}", "error" if refused else "strong"),) for part in parts]
    if plan.way is not None:
        texts = [_WAYS[plan.way]]
        if plan.way != "agent":
            texts.append("You lose: nothing. Detach takes the agent out again.")
        lines.append(())
        for text in texts:
            lines += [((f" {part}", ""),) for part in wrapped(text, max(8, width - 2))]
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def outcome_lines(outcome: RunOutcome, width: int, glyphs: Glyphs) -> list[Line]:
    """✓ or ✗ with the sentence, before and after side by side, the file, more to read."""
    sign, role = (glyphs.yes, "good") if outcome.ok else (glyphs.no, "error")
    parts = wrapped(foreign(outcome.sentence), max(8, width - 4))
    lines: list[Line] = [
        ((f" {sign if not n else ' '} ", role), (part, ""))  # type: ignore[misc]
        for n, part in enumerate(parts)
    ]
    lines += before_after(outcome.before, outcome.after)
    if outcome.path:
        path = wrapped(foreign(outcome.path), max(8, width - 4))
        lines += [(), *(((f"   {part}", "accent"),) for part in path)]
    lines += [((f"   {foreign(line)}", ""),) for line in outcome.lines]
    return [glyphs.finish(fit_line(line, width)) for line in lines]


_SEEN_BYTES = 50 << 20
"""A change that is seen in tenths of a GiB."""
_COMPARED = (
    ("allocated", "allocated_bytes"),
    ("reserved", "reserved_bytes"),
    ("stuck in split blocks", "inactive_split_bytes"),
    ("seen by the driver", "driver_seen_bytes"),
)


def _moved(old: RunDevice, new: RunDevice, field: str) -> bool:
    a, b = getattr(old, field), getattr(new, field)
    return a is not None and b is not None and abs(b - a) >= _SEEN_BYTES


def before_after(before: Sequence[RunDevice], after: Sequence[RunDevice]) -> list[Line]:
    """One line a value that both readings have; nothing for a device on which nothing moved."""
    lines: list[Line] = []
    for old, new in zip(before, after, strict=False):
        if not any(_moved(old, new, field) for _, field in _COMPARED):
            continue
        lines += [(), ((f"   {f'GPU {new.gpu}':22} {'before':>8} {'after':>8} {'':>8}", "label"),)]
        for name, field in _COMPARED:
            a, b = getattr(old, field), getattr(new, field)
            if a is None or b is None:
                continue
            change = (b - a) / (1 << 30)
            text = f"{change:+.1f}".replace("-", "−") if abs(change) >= 0.05 else "·"
            role = "good" if change <= -0.05 else "dim"
            spans = ((f"   {name:22} {gib(a):>8} {gib(b):>8} ", ""), (f"{text:>8}", role))
            lines.append(spans)  # type: ignore[arg-type]
    return lines
