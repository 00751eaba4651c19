"""Everything about one process: facts, its GPUs, its family, its environment."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cockpit.model.process import DeviceUse, Process, ProcessDetails, Relative
from cockpit.model.text import age, clean_command, plural, size
from cockpit.model.time import seconds_since
from cockpit.tui.line import Line, Role
from cockpit.tui.render.cells import ends, fit_line, foreign, merged, wrapped
from cockpit.tui.render.facts import Block, Fact, block_lines, column_width, in_columns
from cockpit.tui.render.flow_preview import folded
from cockpit.tui.render.gaps import gap_words
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.process_words import (
    STATE_WORDS,
    command_words,
    hidden_words,
    is_idle,
    stray_words,
)
from cockpit.tui.render.times import clock


def process_title(process: Process, width: int, glyphs: Glyphs) -> Line:
    """Pid, user, short command; what is the matter with it at the right."""
    words = command_words(process) if process.visible or process.command else hidden_words(process)
    left: Line = (
        (f" pid {process.pid}  ", "title"),
        (f"{foreign(process.user or '–')}  ", "strong"),
        (words, ""),
    )
    return glyphs.finish(ends(left, _matter(process), width))


def _matter(process: Process) -> Line:
    if process.stray is not None:
        return ((f" ! stray: {stray_words(process.stray)} ", "warn"),)
    if process.state == "Z":
        return ((" ! zombie ", "warn"),)
    return ((" idle ", "dim"),) if is_idle(process) else ()


def process_page(
    process: Process,
    details: ProcessDetails | None,
    width: int,
    glyphs: Glyphs,
    now_s: float | None = None,
    utc_offset_s: float = 0.0,
) -> list[Line]:
    """Facts, GPUs, whole command and family. ``details`` None: they are on their way."""
    gaps = _gaps(process, details)
    each = column_width(width)
    blocks = [block_lines(b, gaps, each) for b in _blocks(process, details, now_s, utc_offset_s)]
    lines = [*_stray_lines(process, width), *in_columns(blocks, width)]
    lines += [(), *_command_lines(process, width), (), *_device_lines(process)]
    if details is None:
        lines += [(), ((" reading the rest …", "dim"),)]
    else:
        lines += [(), *family_lines(process, details, width, glyphs), *_file_lines(details)]
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def _gaps(process: Process, details: ProcessDetails | None) -> dict[str, str]:
    """Here it is not the GPU that does not support it."""
    gaps = {**process.gaps, **(details.gaps if details else {})}
    return {
        field: "not_supported_here" if reason == "not_supported" else reason
        for field, reason in gaps.items()
    }


def _stray_lines(process: Process, width: int) -> list[Line]:
    if process.stray is None:
        return []
    texts = wrapped(f"! {foreign(process.stray.sentence)}", max(8, width - 2))
    return [*(((f" {text}", "warn"),) for text in texts), ()]


def _blocks(
    process: Process, details: ProcessDetails | None, now_s: float | None, utc_offset_s: float
) -> list[Block]:
    blocks = [
        Block("Process", _identity(process, now_s, utc_offset_s)),
        Block("Use", _use(process, details)),
        Block("Place", _place(process)),
    ]
    if details is not None and details.limits:
        blocks.append(Block("Limits", [Fact(name, value) for name, value in details.limits]))
    return blocks


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _identity(process: Process, now_s: float | None, utc_offset_s: float) -> list[Fact]:
    since = seconds_since(process.started_at, now_s)
    started = None if since is None else f"{age(since)} ago"
    at = "" if since is None else f"at {clock(process.started_at, utc_offset_s)}"
    state = process.state
    words = None if state is None else STATE_WORDS.get(state, state)
    bad: Role = "warn" if state in ("Z", "D") else ""
    return [
        Fact("pid", str(process.pid), aside=f"start ticks {process.start_ticks or '–'}"),
        Fact("user", process.user, "user", aside="" if process.uid is None else f"{process.uid}"),
        Fact("started", started, "started_at", aside=at),
        Fact("state", words, "state", bad),
        Fact("parent", _text(process.ppid), "ppid"),
        Fact("terminal", process.tty, "tty"),
        Fact("framework", process.framework, "framework"),
    ]


def _use(process: Process, details: ProcessDetails | None) -> list[Fact]:
    cpu = None if process.cpu_pct is None else f"{process.cpu_pct:.0f} %"
    facts = [
        Fact("GPU memory", _size(process.vram_bytes), "vram_bytes"),
        Fact("CPU", cpu, "cpu_pct", aside="of one core"),
        Fact("host memory", _size(process.rss_bytes), "rss_bytes"),
        Fact("kind", process.kind, "kind"),
    ]
    if details is not None:
        facts += [
            Fact("threads", _text(details.threads), "threads"),
            Fact("waits in", details.wchan, "wchan"),
            Fact("session, group", _pair(details.session_id, details.group_id), "session_id"),
        ]
    return facts


def _pair(session: int | None, group: int | None) -> str | None:
    return None if session is None and group is None else f"{session or '–'}, {group or '–'}"


def _size(value: int | None) -> str | None:
    return None if value is None else size(value)


def _place(process: Process) -> list[Fact]:
    """Absent is the usual case here, so what is not there is left out."""
    world = "" if process.world_size is None else f"of {process.world_size}"
    local = None if process.local_rank is None else str(process.local_rank)
    rows = [
        Fact("rank", _text(process.rank), aside=world),
        Fact("local rank", local),
        Fact("container", process.container),
        Fact("pod", process.pod),
        Fact("Slurm job", process.slurm_job),
        Fact("conda env", process.conda_env),
        Fact("tmux", process.tmux),
        Fact("directory", process.cwd, "cwd"),
    ]
    return [fact for fact in rows if fact.value is not None or fact.field in process.gaps] or [
        Fact("", "nothing special")
    ]


def _command_lines(process: Process, width: int) -> list[Line]:
    """All of it, within reason: 4,000 characters of arguments are not read by anybody."""
    command = foreign(clean_command(process.command, process.name))
    if not process.visible and not process.command:
        command = hidden_words(process)
    texts = wrapped(command[:8000], max(8, width - 3))
    lines: list[Line] = [((" Command", "strong"),)]
    lines += [((f"  {text}", ""),) for text in texts[:12]]
    if len(texts) > 12:
        lines.append(((f"  … {plural(len(texts) - 12, 'more line')}", "dim"),))
    return lines


def _device_lines(process: Process) -> list[Line]:
    lines: list[Line] = [((" GPUs", "strong"),)]
    lines += [_device_line(use) for use in process.devices]
    return lines if process.devices else [*lines, (("  none listed", "dim"),)]


def _device_line(use: DeviceUse) -> Line:
    where = f"{use.gpu}" if use.mig_instance is None else f"{use.gpu}:{use.mig_instance}"
    sm = "no SM sample" if use.sm_pct is None else f"SM {use.sm_pct:.0f} %"
    return ((f"  GPU {where:6}", "label"), (f"{size(use.vram_bytes):>10}  {sm}", ""))


def family_lines(
    process: Process, details: ProcessDetails, width: int, glyphs: Glyphs
) -> list[Line]:
    """Ancestors from the furthest down, the process, its children."""
    lines: list[Line] = [((" Family", "strong"),)]
    depth = 0
    for relative in reversed(details.ancestors):
        lines.append(_relative_line(relative, depth, glyphs.tree[1], "dim"))
        depth += 1
    own = Relative(
        pid=process.pid,
        ppid=process.ppid,
        name=process.name or "?",
        command=process.command,
        user=process.user,
    )
    lines.append(_relative_line(own, depth, glyphs.tree[1], "strong"))
    for number, child in enumerate(details.children):
        last = number == len(details.children) - 1
        lines.append(_relative_line(child, depth + 1, glyphs.tree[1 if last else 0], ""))
    return [fit_line(line, width) for line in lines]


def _relative_line(relative: Relative, depth: int, branch: str, role: Role) -> Line:
    depth = min(depth, 12)
    stand_in = Process(pid=relative.pid, command=relative.command, name=relative.name)
    indent = "  " + ("  " * (depth - 1) + branch if depth else "")
    words = f"{relative.pid}  {foreign(relative.user or '–')}  {command_words(stand_in)}"
    return ((indent, "dim"), (words, role))


def _file_lines(details: ProcessDetails) -> list[Line]:
    lines: list[Line] = []
    if details.executable is not None:
        lines.append(((" executable ", "label"), (foreign(details.executable), "")))
    if details.cgroup is not None:
        lines.append(((" cgroup ", "label"), (foreign(details.cgroup), "")))
    if details.device_files:
        files = " ".join(foreign(name) for name in details.device_files)
        lines.append(((" device files ", "label"), (files, "")))
    return [(), *lines] if lines else []


def environment_lines(
    details: ProcessDetails, width: int, glyphs: Glyphs, wanted: str = ""
) -> list[Line]:
    """Names and values, folded: a path is read to its end; ``wanted`` keeps those that contain it,
    in either."""
    if details.environment is None:
        words = _why_no_environment(details.gaps.get("environment"))
        parts = wrapped(words, max(8, width - 2))
        return [glyphs.finish(((f" {part}", "warn"),)) for part in parts]
    pairs = _matching(details.environment, wanted.lower())
    lines = [line for name, value in pairs for line in _variable(name, value, width)]
    if not lines:
        lines = [((" nothing matches" if wanted else " empty", "dim"),)]
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def _variable(name: str, value: str, width: int) -> list[Line]:
    """``NAME=value`` on as many lines as it needs, a monster cropped."""
    name, value = foreign(name), foreign(value)
    first, *rest = folded(f"{name}={value}", width - 2)
    if len(rest) >= _MOST_OF_A_VALUE:
        rest[_MOST_OF_A_VALUE - 1 :] = [f"    … {plural(len(value), 'character')} in all"]
    below: list[Line] = [((f" {part}", ""),) for part in rest]
    if not first.startswith(f"{name}="):  # a name longer than the line
        return [((f" {first}", _env_tone(name)),), *below]
    spans: Line = ((f" {name}", _env_tone(name)), ("=", "dim"), (first[len(name) + 1 :], ""))
    return [merged(spans), *below]


_MOST_OF_A_VALUE = 12
"""Lines: LS_COLORS alone would be a screen and a half."""
_TO_READ_IT = {
    "other_user": "only its owner or root can read it (sudo cockpit)",
    "no_permission": "only its owner or root can read it (sudo cockpit)",
    "other_namespace": "start the cockpit on the host, or where that process runs",
    "hidden": "root sees it (sudo cockpit), or /proc mounted without hidepid",
    "hidepid": "root sees it (sudo cockpit), or /proc mounted without hidepid",
}
"""Reason of a gap → what to do about it."""


def _why_no_environment(reason: str | None) -> str:
    advice = _TO_READ_IT.get(reason or "")
    why = f"Its environment cannot be read: {gap_words(reason)}"
    return f"{why}; {advice}." if advice else f"{why}."


def _matching(environment: Sequence[tuple[str, str]], wanted: str) -> list[tuple[str, str]]:
    return [pair for pair in environment if wanted in f"{pair[0]}={pair[1]}".lower()]


_TRAINING = re.compile(
    "CUDA|NCCL|NVIDIA|TORCH|PYTORCH|OMP_|MKL_|RANK|LOCAL_RANK|WORLD_SIZE|MASTER_|SLURM|LD_|HF_|XLA_"
)
"""Beginnings of names that bear on training."""


def _env_tone(name: str) -> Role:
    return "accent" if _TRAINING.match(name) else "label"
