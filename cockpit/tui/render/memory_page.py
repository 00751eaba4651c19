"""The memory of a run in lines: head, state, bar, chain; without an agent, the driver's view.

What is shown is what the allocator and the driver said. A run that does not answer is shown with
its age, never as live.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import suppress

from cockpit.model.run import Run, RunDevice
from cockpit.model.text import gib, size
from cockpit.tui.line import Line, Role, Span
from cockpit.tui.render.cells import (
    ends,
    fit_line,
    foreign,
    join,
    line_width,
    merged,
    toned_down,
    wrapped,
)
from cockpit.tui.render.gaps import gap_words
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.memory_bar import (
    Place,
    Slice,
    amount,
    bar_line,
    digits_for,
    legend_lines,
    slices_of,
)
from cockpit.tui.render.memory_outlook import (
    advice_of,
    fragmentation_lines,
    is_much_stuck,
    packed,
    trend_lines,
)
from cockpit.tui.render.memory_subject import OTHERS, Subject, place_of, segments_for
from cockpit.tui.render.process_words import command_words

WAYS = {
    "launch": "started by cockpit run",
    "import": "attached by import",
    "ptrace": "attached by ptrace",
    "remote_exec": "attached by remote_exec",
    "gdb": "attached by gdb",
}
HUNG_S = 60.0
"""No optimizer step for so long is said aloud."""

# -- the head


def memory_title(subject: Subject, width: int, glyphs: Glyphs) -> Line:
    """Pid, user, command; the state of the run at the right."""
    process, run = subject.process, subject.run
    left: list[Span] = [(f" pid {subject.pid}  ", "title")]
    if process is not None:
        left += [(f"{foreign(process.user or '–')}  ", "strong"), (command_words(process), "")]
    elif run is not None and run.name:
        left.append((foreign(run.name), "strong"))
    return glyphs.finish(ends(tuple(left), _state_word(run), width))


def _state_word(run: Run | None) -> Line:
    if run is None:
        return ((" no agent ", "dim"),)
    words: dict[str, Span] = {
        "running": ("", ""),
        "no_answer": (" ! does not answer ", "error"),
        "stopped": (" ! stopped ", "warn"),
        "ended": (" ended ", "warn"),
    }
    if run.state == "running":
        return ((f" step {run.step:,} ", "strong"),) if run.step is not None else ()
    return (words[run.state],)


def facts_line(subject: Subject, width: int) -> Line:
    """Rank, GPUs, torch, the way in, speed: as much as fits, whole words only."""
    process, run = subject.process, subject.run
    parts: list[str] = []
    if run is not None and run.name and (process is None or run.name != process.name):
        parts.append(foreign(run.name))
    on = " ".join(str(device.gpu) for device in run.devices) if run is not None else ""
    where = f"GPU {on}" if on else ""
    if process is not None and process.rank is not None:
        of = f" of {process.world_size}" if process.world_size is not None else ""
        where = f"rank {process.rank}{of}{' on ' if where else ''}{where}"
    parts.append(where)
    if run is not None:
        version = foreign(run.torch_version or "").partition("+")[0]
        parts += [f"torch {version}" if version else "", WAYS.get(run.attached_by or "", "")]
        parts.append(f"{run.steps_per_s:.2f} steps/s" if run.steps_per_s else "")
    line: Line = ()
    for part in filter(None, parts):
        longer = join([line, ((part, ""),)], "   ") if line else ((f" {part}", ""),)
        if line_width(longer) <= width:
            line = longer
    return line


def state_lines(subject: Subject, width: int, clock: str) -> list[Line]:
    """Why these numbers are not live; ``clock`` is the moment they are from."""
    run, pid = subject.run, subject.pid
    if run is None:
        return []
    heard = clock != "–"
    since = f"; its numbers are from {clock}" if heard else ""
    texts: list[tuple[str, Role]] = []
    if run.state == "no_answer" and not heard:
        texts.append((f"pid {pid} has not answered yet.", "dim"))
    elif run.state == "no_answer":
        texts.append((f"! pid {pid} does not answer: something holds the GIL{since}.", "error"))
        texts.append((f"  {subject.key('stacks')} reads its stacks from outside.", "dim"))
    elif run.state == "stopped":
        texts.append((f"! pid {pid} is stopped (SIGSTOP){since}.", "warn"))
    elif run.state == "ended":
        texts.append((f"! pid {pid} {_ended_how(run.exit_status)}{since}.", "warn"))
    elif run.cuda_initialized is False:
        words = f"pid {pid} trains on CPU: CUDA was never initialised in this process."
        texts.append((f"{words} {subject.key('census')} lists its tensors.", "warn"))
    elif not run.devices:
        texts.append((f"pid {pid} has reserved no GPU memory through torch yet.", "dim"))
    elif run.step_age_s is not None and run.step_age_s >= HUNG_S:
        age = f"{run.step_age_s:.0f} s"
        texts.append(
            (f"! No optimizer step for {age}. {subject.key('stacks')} shows where it is.", "warn")
        )
    if run.state == "running":
        texts += [(f"  {gap_words(reason)}", "dim") for reason in run.gaps.values()]
    return [((f" {part}", role),) for text, role in texts for part in wrapped(text, width - 2)]


def _ended_how(status: int | None) -> str:
    """As ``cockpit run`` heard it: 128 + n for signal n, as shells have it."""
    if status is None:
        return "has ended"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(status - 128).name}"
    return f"has ended with exit status {status}"


# -- without an agent


def driver_view_lines(subject: Subject, width: int, no_python: str | None = None) -> list[Line]:
    """The driver's number and what it is; ``no_python`` says why there is nothing to attach to."""
    pid, process, framework = subject.pid, subject.process, subject.framework
    vram = None if process is None else process.vram_bytes
    lines: list[Line] = []
    held = f"{size(vram)} held by pid {pid}"
    if vram is None:
        held = f"how much pid {pid} holds is not known"
    texts: tuple[str, ...]
    if framework in OTHERS:
        lines.append(((f" Driver view only: {held}.", "strong"),))
        texts = OTHERS[framework]
    elif no_python is not None:
        texts = (f"Driver view only: {held}.", foreign(no_python))
    elif process is not None and not process.visible:
        why = "It cannot be attached to from here: this /proc does not show it."
        texts = (f"Driver view only: {held}.", why)
    else:
        key = subject.key("attach")
        way = f"press {key} to attach" if key else "attach to it"
        texts = (
            f"Driver view only: {held} (context + cache + NCCL).",
            f'To split allocated/reserved, start it with "cockpit run -- …" or {way}.',
        )
    for text in texts:
        lines += [((f" {part}", ""),) for part in wrapped(text, max(8, width - 2))]
    return lines


def driver_bars(subject: Subject, width: int, glyphs: Glyphs) -> list[Line]:
    """One bar a GPU: what the driver says this process holds, and the rest of the GPU."""
    lines: list[Line] = []
    for use in subject.process.devices if subject.process is not None else ():
        if use.vram_bytes is None:
            continue
        device = RunDevice(gpu=use.gpu, driver_seen_bytes=use.vram_bytes)
        place = place_of(subject.gpus.get(use.gpu))
        slices = slices_of(device)
        lines += [(), gpu_head(use.gpu, place, width)]
        lines.append(merged(((" ", ""), *bar_line(slices, place, max(4, width - 2), glyphs))))
        lines += legend_lines(slices, place, width, glyphs)
    return lines


def framework_lines(subject: Subject, width: int) -> list[Line]:
    """What an attached program reserves for itself; nothing for a plain training loop."""
    texts = OTHERS.get(subject.framework or "", ())
    return [((f" {part}", "dim"),) for text in texts for part in wrapped(text, max(8, width - 2))]


# -- a device of a run


def gpu_head(index: int, place: Place, width: int) -> Line:
    """``GPU 0  139.8 GiB`` and at the right what is used and free of it."""
    left: Line = ((f" GPU {index}", "strong"), (f"  {size(place.total_bytes)}", ""))
    if place.total_bytes is None or place.used_bytes is None:
        return fit_line(left if place.total_bytes is not None else left[:1], width)
    free = max(0, place.total_bytes - place.used_bytes)
    right: Line = ((f"{gib(place.used_bytes)} used   ", ""), (f"{gib(free)} free ", ""))
    return ends(left, right, width)


def device_lines(subject: Subject, device: RunDevice, width: int, glyphs: Glyphs) -> list[Line]:
    """Bar, legend, chain, trend, fragmentation, advice of one device."""
    run = subject.run
    assert run is not None
    place = place_of(subject.gpus.get(device.gpu))
    slices = slices_of(device, segments_for(subject.segments, run, device))
    if subject.framework == "vllm":
        name = "weights, KV cache"
        slices = [one._replace(name=name) if one.key == "live" else one for one in slices]
    stuck = is_much_stuck(device, slices)
    lines = [gpu_head(device.gpu, place, width)]
    lines.append(merged(((" ", ""), *bar_line(slices, place, max(4, width - 2), glyphs))))
    lines += legend_lines(slices, place, width, glyphs, {"stuck": "warn"} if stuck else None)
    lines += [*_unknown_lines(device, slices, width), ()]
    lines += packed([chain(device, digits_for(slices)), *_counters(subject, device)], width)
    lines += trend_lines(subject, device, place, width)
    lines += fragmentation_lines(device, slices, width)
    lines = [glyphs.finish(fit_line(line, width)) for line in lines]
    if run.state != "running":
        return [toned_down(line) for line in lines]
    advice = advice_of(subject, device, slices, place)
    if advice:
        lines.append(())
    for text, role in advice:
        parts = wrapped(text, max(8, width - 4))
        lines += [((f" {'! ' if not n else '  '}{p}", role),) for n, p in enumerate(parts)]
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def chain(device: RunDevice, digits: int) -> Line:
    """``allocated 41.2 ≤ active 41.3 ≤ reserved 85.6 ≤ driver 88.0 GiB``."""
    values = (
        ("allocated", device.allocated_bytes),
        ("active", device.active_bytes),
        ("reserved", device.reserved_bytes),
        ("driver", device.driver_seen_bytes),
    )
    spans: list[Span] = [(" ", "")]
    for number, (name, value) in enumerate(values):
        spans += [(" ≤ ", "dim")] if number else []
        spans += [(f"{name} ", "label"), (gib(value, digits), "")]
    return merged((*spans, (" GiB", "dim")))


def _counters(subject: Subject, device: RunDevice) -> list[Line]:
    """Peak, retries with their rate, OOMs."""
    parts: list[Line] = []
    if device.allocated_peak_bytes is not None:
        parts.append((("peak ", "label"), (gib(device.allocated_peak_bytes), "")))
    if device.alloc_retries is not None:
        rate = subject.history.per_minute(subject.pid, device.gpu, "retries")
        grows = bool(rate and rate >= 0.5)
        more = f" (+{rate:.0f}/min)" if grows else ""
        text = f"{device.alloc_retries:,}{more}"
        parts.append((("retries ", "label"), (text, "warn" if grows else "")))
    if device.ooms is not None:
        role: Role = "error" if device.ooms else ""
        parts.append((("OOMs ", "label"), (f"{device.ooms:,}", role)))
    return parts


def _unknown_lines(device: RunDevice, slices: Sequence[Slice], width: int) -> list[Line]:
    """What could not be told apart, and why."""
    texts = []
    if amount(slices, "cache") is not None:
        texts.append("This torch does not tell which part of its cache can be given back.")
    if device.driver_seen_bytes is None:
        texts.append("The driver does not say what the process holds: context is not shown.")
    elif device.reserved_bytes is not None and device.driver_seen_bytes < device.reserved_bytes:
        texts.append("Driver and allocator were read at different moments: reserved is shown.")
    return [((f" {p}", "dim"),) for text in texts for p in wrapped(text, max(8, width - 2))]
