"""The kill dialog: exactly what would be signalled and what is lost by it; then what came of it."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.model.action import KillPlan, KillResult, PlannedTarget
from cockpit.model.process import Process
from cockpit.model.text import gib, plural, size
from cockpit.tui.line import Line, Role
from cockpit.tui.render.cells import fit_line, foreign, pad, width_of, wrapped
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.process_words import command_words

_ROLE_WORDS = {"target": "", "child": "child", "rank": "rank", "holder": "holds the device"}
_FEW = 3
"""So many targets have their whole command lines shown: it is they that are to be recognised."""
_GOOD = frozenset({"freed", "ended", "signalled"})

MEANINGS: dict[str, str] = {
    "TERM": "a request to end, with time to clean up",
    "INT": "as ctrl+c: Python raises KeyboardInterrupt",
    "HUP": "as if the terminal went away",
    "QUIT": "ends with a core dump",
    "KILL": "an end at once, without a clean-up",
    "STOP": "a pause; the GPU memory stays",
    "CONT": "the end of a pause",
    "USR1": "whatever the program does with it (Slurm: often a checkpoint)",
    "USR2": "whatever the program does with it",
}
"""What a signal does, for the menu."""


def plan_lines(plan: KillPlan, width: int, glyphs: Glyphs) -> list[Line]:
    """Signal, targets, refusals, losses; what has to be typed."""
    allowed = [target for target in plan.targets if target.refusal is None]
    refused = [target for target in plan.targets if target.refusal is not None]
    lines: list[Line] = [*_headline(plan, allowed, width), ()]
    most = _FEW if len(plan.targets) <= _FEW else 1
    for target in allowed:
        lines += _target_lines(target, width, glyphs, most)
    if refused:
        lines += [*([()] if allowed else []), ((" Left alone", "label"),)]
        for target in refused:
            lines += _target_lines(target, width, glyphs, most)
    lines += _loss_lines(plan, width) if allowed else []
    if plan.typed is not None and allowed:
        lines += [(), ((f" Type {foreign(plan.typed)} to go on.", "accent"),)]
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def _headline(plan: KillPlan, allowed: Sequence[PlannedTarget], width: int) -> list[Line]:
    if not allowed:
        return [((" Nothing can be signalled.", "error"),)]
    held = sum(target.vram_bytes or 0 for target in allowed)
    memory = f", {gib(held)} GiB of GPU memory" if held else ""
    what = f" SIG{foreign(plan.signal)} to {plural(len(allowed), 'process')}{memory}"
    meaning = MEANINGS.get(plan.signal, "")
    if width_of(what) + width_of(meaning) + 3 <= width:
        return [((what, "strong"), (f": {meaning}." if meaning else ".", ""))]
    return [((what, "strong"),), *(((f"   {part}", ""),) for part in wrapped(meaning, width - 3))]


def _target_lines(target: PlannedTarget, width: int, glyphs: Glyphs, most: int) -> list[Line]:
    """``  4711  ml1   88.0 GiB  python train.py``, then its note or why it is refused.

    The command takes ``most`` lines at the most.
    """
    sign = glyphs.no if target.refusal else " "
    role: Role = "dim" if target.refusal else ""
    kin = _ROLE_WORDS[target.role]
    text = f" {sign} {target.pid:>7}  {pad(foreign(target.user or '–'), 8)}"
    text += f"  {size(target.vram_bytes):>9}  "
    words = f"{f'({kin}) ' if kin else ''}{_command(target)}"
    left = width_of(text)
    parts = wrapped(words, max(8, width - left - 1)) if most > 1 and width >= 2 * left else [words]
    if len(parts) > most:
        parts[most - 1 :] = [" ".join(parts[most - 1 :])]  # cropped below
    lines: list[Line] = [fit_line(((text + parts[0], role),), width)]
    lines += [fit_line(((" " * left + part, role),), width) for part in parts[1:]]
    for sentence, tone in ((target.refusal_sentence, "error"), (target.note, "warn")):
        if sentence:
            lines += _sentence(foreign(sentence), width, 12, tone)  # type: ignore[arg-type]
    return lines


def _command(target: PlannedTarget) -> str:
    return command_words(Process(pid=target.pid, command=tuple(target.command.split(" "))))


def _sentence(text: str, width: int, indent: int, role: Role) -> list[Line]:
    indent = indent if width > 40 else 3
    return [((" " * indent + part, role),) for part in wrapped(text, max(8, width - indent - 1))]


def _loss_lines(plan: KillPlan, width: int) -> list[Line]:
    lines: list[Line] = [(), ((" You lose", "label"),)]
    for sentence in plan.loses or ("Nothing that the cockpit knows of.",):
        lines += _sentence(foreign(sentence), width, 3, "")
    waits = f"Then the cockpit waits up to {plan.grace_s:g} s and looks whether memory comes back."
    return [*lines, *_sentence(waits, width, 1, "dim")]


def result_lines(results: Sequence[KillResult], width: int, glyphs: Glyphs) -> list[Line]:
    """One sentence a process with ✓ or ✗, the sum of what came back, the offer that remains."""
    lines: list[Line] = []
    for result in results:
        good = result.outcome in _GOOD
        sign = glyphs.yes if good else glyphs.no
        texts = wrapped(foreign(result.sentence), max(8, width - 14))
        role: Role = "good" if good else "error"
        lines.append(((f" {sign} {result.pid:>7}  ", role), (texts[0], "")))
        lines += [((" " * 12 + text, ""),) for text in texts[1:]]
    lines += _sum_lines(results)
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def _sum_lines(results: Sequence[KillResult]) -> list[Line]:
    lines: list[Line] = []
    freed = [r.freed_bytes for r in results if r.freed_bytes is not None]
    if len(freed) > 1:
        lines.append(((f"   {size(sum(freed))} of GPU memory came back in all.", "strong"),))
    offered = [result.pid for result in results if result.offer_kill]
    if offered:
        who = "it" if len(offered) == 1 else f"these {len(offered)}"
        lines.append(((f"   SIGKILL would end {who}: nothing is saved or cleaned up.", "warn"),))
    return [(), *lines] if lines else []
