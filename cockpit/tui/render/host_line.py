"""The title line (which machine, what state the cockpit is in) and the host line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cockpit.model.gpu import Gpu
from cockpit.model.history import HOST, History
from cockpit.model.host import Host
from cockpit.model.snapshot import Snapshot
from cockpit.model.text import GIB, rate
from cockpit.tui.line import Line, Role
from cockpit.tui.render.cells import crop, ends, fit_line, foreign, join, line_width, merged
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.trace import spark


@dataclass(frozen=True, slots=True)
class TitleState:
    """What the title line says about the cockpit itself."""

    clock: str = ""
    """Already written, such as ``14:02:11``."""
    demo: str | None = None
    """The scenario; None: no demo."""
    replay: str | None = None
    """Where a replay stands, from :func:`replay_words`; None: no replay."""
    paused: bool = False
    readonly: bool = False
    recording: bool = False
    disconnected: bool = False


def replay_words(position_s: float, duration_s: float, speed: float, paused: bool = False) -> str:
    """``1:05/10:00 ×2``."""
    words = f"{_minutes(position_s)}/{_minutes(duration_s)}"
    if paused:
        return f"{words} held"
    return words if speed == 1 else f"{words} ×{speed:g}"


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    return f"{minutes}:{rest:02d}"


def title_line(snapshot: Snapshot, state: TitleState, width: int, glyphs: Glyphs) -> Line:
    """The state words stand first: a demo that looks like a machine would be a lie."""
    right = _right(snapshot, state)
    room = width - line_width(right) - 2
    left = _left(snapshot, state, room)
    return glyphs.finish(fit_line(ends(left, right, width), width))


def _right(snapshot: Snapshot, state: TitleState) -> Line:
    """Clock, interval and own CPU: what moves stands together."""
    cpu = snapshot.sampler.cpu_pct
    parts = [state.clock, f"{snapshot.sampler.interval_s:g}s"]
    if cpu is not None:
        parts.append(f"own {cpu:.1f}%")
    return (("  ".join(part for part in parts if part) + " ", "dim"),)


def _left(snapshot: Snapshot, state: TitleState, room: int) -> Line:
    """As many parts as fit, the telling ones first."""
    parts: list[Line] = [((word, role),) for word, role in _state_words(state)]
    parts.append(((foreign(snapshot.host.name or "this host"), "title"),))
    error = snapshot.driver.error
    broken = error is not None and error.code not in ("no_devices", "no_such_gpu")
    what = "driver unusable" if broken else models(snapshot.gpus)
    parts.append(((what, "error" if broken else "strong"),))
    if snapshot.driver.version:
        parts.append(((f"driver {foreign(snapshot.driver.version)}", ""),))
    if snapshot.driver.cuda_version:
        parts.append(((f"CUDA {foreign(snapshot.driver.cuda_version)}", ""),))
    if snapshot.host.container:
        parts.append(((f"in {foreign(snapshot.host.container)}", ""),))
    line: Line = ()
    for part in parts:
        longer = join((line, part))
        if line and line_width(longer) + 1 > room:
            break
        line = longer
    return merged(((" ", ""), *line))


def _state_words(state: TitleState) -> list[tuple[str, Role]]:
    words: list[tuple[str, Role]] = []
    if state.demo is not None:
        words.append((f"DEMO {foreign(state.demo)}".rstrip(), "warn"))
    if state.replay is not None:
        words.append((f"REPLAY {state.replay}", "warn"))
    if state.disconnected:
        words.append(("NO ENGINE", "error"))
    if state.paused:
        words.append(("PAUSED", "warn"))
    if state.readonly:
        words.append(("READONLY", "accent"))
    if state.recording:
        words.append(("REC", "error"))
    return words


def models(gpus: Sequence[Gpu]) -> str:
    """``8×H200``, ``2×A100 1×T4``, ``no GPU``."""
    counts = Counter(short_model(gpu.name) for gpu in gpus)
    return " ".join(f"{count}×{name}" for name, count in counts.items()) or "no GPU"


def short_model(name: str | None) -> str:
    """``H200`` of ``NVIDIA H200``, ``A100 80GB`` of ``NVIDIA A100-SXM4-80GB``."""
    words = foreign(name or "GPU")
    for prefix in ("NVIDIA ", "Tesla ", "GeForce ", "Quadro "):
        words = words.removeprefix(prefix)
    for form in ("-SXM4-", "-SXM5-", "-PCIE-", "-SXM2-", "-PCIe-"):
        words = words.replace(form, " ")
    return crop(words, 20)


def host_line(host: Host, width: int, glyphs: Glyphs, history: History | None = None) -> Line:
    """CPU with its last seconds, load, memory, disk: what starves a GPU."""
    parts = [_cpu(host, glyphs, history, width), _load(host), _memory(host), _swap(host)]
    parts += [_shm(host), _iowait(host), _disk(host)]
    line: Line = ()
    for part in parts:
        longer = join((line, part))
        if line_width(longer) + 1 <= width:
            line = longer
    return glyphs.finish(fit_line(merged(((" ", ""), *line)), width))


def _field(label: str, value: str, role: Role = "") -> Line:
    return ((f"{label} ", "label"), (value, role))


def _pct(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}%"


def _cpu(host: Host, glyphs: Glyphs, history: History | None, width: int) -> Line:
    value = host.cpu_pct
    field = _field("CPU", f"{_pct(value):>4}", "warn" if (value or 0.0) >= 95.0 else "")
    if history is None:
        return field
    cells = 9 if width < 120 else 17
    trace = spark(history, HOST, "cpu", cells, glyphs)
    return merged((field[0], trace, (" ", ""), field[1]))


def _load(host: Host) -> Line:
    if host.load_1m is None:
        return ()
    high = host.cpu_count is not None and host.load_1m > 1.5 * host.cpu_count
    digits = 1 if host.load_1m < 9.95 else 0
    words = f"{host.load_1m:.{digits}f}"
    cores = "" if host.cpu_count is None else f"/{host.cpu_count}"
    return merged((*_field("load", words, "warn" if high else ""), (cores, "dim")))


def _memory(host: Host) -> Line:
    used, total = host.memory_used_bytes, host.memory_total_bytes
    if used is None or not total:
        return _field("RAM", "–")
    digits = 1 if total < 100 * GIB else 0
    words = f"{used / GIB:.{digits}f}/{total / GIB:.0f}G"
    return _field("RAM", words, "warn" if used > 0.92 * total else "")


def _swap(host: Host) -> Line:
    used = host.swap_used_bytes
    if used is None:
        return ()
    busy = used > GIB
    return _field(
        "swap", f"{used / GIB:.1f}G" if used >= 0.05 * GIB else "0", "warn" if busy else ""
    )


def _shm(host: Host) -> Line:
    """A full /dev/shm kills DataLoader workers with a bus error, so it is always in sight."""
    used, total = host.shm_used_bytes, host.shm_total_bytes
    if used is None or not total:
        return ()
    share = used / total
    small = total < 0.1 * GIB  # docker's default of 64 MiB
    words = f"{100 * share:.0f}%" + (" of 64M" if small else "")
    return _field("shm", words, "warn" if share > 0.8 else "")


def _iowait(host: Host) -> Line:
    if host.iowait_pct is None:
        return ()
    return _field("io wait", _pct(host.iowait_pct), "warn" if host.iowait_pct >= 20.0 else "")


def _disk(host: Host) -> Line:
    if host.disk_read_bytes_per_s is None and host.disk_write_bytes_per_s is None:
        return ()
    read, write = rate(host.disk_read_bytes_per_s), rate(host.disk_write_bytes_per_s)
    return _field("disk", f"r {read} w {write}")
