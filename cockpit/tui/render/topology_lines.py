"""How the GPUs reach each other, as ``nvidia-smi topo -m`` shows it, with what the words mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cockpit.model.gpu import Gpu, TopologyLink
from cockpit.tui.line import Line, Role
from cockpit.tui.render.cells import fit_line, foreign, merged, wrapped
from cockpit.tui.render.glyphs import Glyphs
from cockpit.tui.render.gpu_ranges import ranges

_MEANING: dict[str, str] = {
    "NV": "that many NVLinks",
    "INT": "on one board",
    "PIX": "one PCIe switch at most",
    "PXB": "several PCIe switches, no host bridge",
    "PHB": "the PCIe host bridge of a CPU",
    "NODE": "host bridges of one NUMA node",
    "SYS": "the link between two CPU sockets: slow",
}
_CELL = 5

Links = Mapping[tuple[int, int], TopologyLink]


def topology_lines(
    topology: Sequence[TopologyLink], gpus: Sequence[Gpu], width: int, glyphs: Glyphs
) -> list[Line]:
    """The matrix where it fits, else one line a GPU; legend; pairs without peer access."""
    lines: list[Line] = [((" Topology", "strong"),)]
    indices = sorted(gpu.index for gpu in gpus)
    if len(indices) < 2:
        return [*lines, ((" one GPU: nothing to connect", "dim"),)]
    if not topology:
        return [*lines, ((" not known", "dim"),)]
    links = {(link.a, link.b): link for link in topology}
    numa = {gpu.index: gpu.numa_node for gpu in gpus}
    fits = 12 + _CELL * len(indices) <= width
    lines += _matrix(indices, links, numa) if fits else _lists(indices, links, width)
    lines += [(), *_legend(topology), *_peers(topology, width)]
    return [glyphs.finish(fit_line(line, width)) for line in lines]


def word_of(link: TopologyLink | None) -> str:
    """``NV18``, ``SYS``; ``–`` where it could not be read."""
    if link is None:
        return "–"
    if link.nvlinks:
        return f"NV{link.nvlinks}"
    return "INT" if link.level == "INTERNAL" else foreign(link.level or "–")


def _between(a: int, b: int, links: Links) -> str:
    return "X" if a == b else word_of(links.get((min(a, b), max(a, b))))


def _matrix(indices: Sequence[int], links: Links, numa: Mapping[int, int | None]) -> list[Line]:
    header = "".join(f"{f'G{index}':>{_CELL}}" for index in indices)
    lines: list[Line] = [((f"       {header}  NUMA", "label"),)]
    for a in indices:
        node = "–" if numa[a] is None else str(numa[a])
        spans: list[tuple[str, Role]] = [(f" GPU {a:<2}", "label")]
        for b in indices:
            word = _between(a, b, links)
            spans.append((f"{word:>{_CELL}}", _tone(word)))
        lines.append(merged([*spans, (f"  {node:>4}", "")]))
    return lines


def _tone(word: str) -> Role:
    return "dim" if word in ("X", "–") else "good" if word.startswith("NV") else ""


def _lists(indices: Sequence[int], links: Links, width: int) -> list[Line]:
    """``GPU 0   NV18 1-7   SYS 8-15``."""
    lines: list[Line] = []
    for a in indices:
        groups: dict[str, list[int]] = {}
        for b in indices:
            if a != b:
                groups.setdefault(_between(a, b, links), []).append(b)
        words = "   ".join(f"{word} {ranges(which)}" for word, which in groups.items())
        lines += _under(f" GPU {a:<2}  ", words, width)
    return lines


def _under(label: str, words: str, width: int) -> list[Line]:
    texts = wrapped(words, max(8, width - len(label)))
    return [
        ((label if not n else " " * len(label), "label"), (text, ""))
        for n, text in enumerate(texts)
    ]


def _legend(topology: Iterable[TopologyLink]) -> list[Line]:
    """Only the words that this machine shows."""
    seen = {"NV" if word.startswith("NV") else word for word in map(word_of, topology)}
    known = [(word, meaning) for word, meaning in _MEANING.items() if word in seen]
    return [((f" {word:5}", ""), (f" {meaning}", "dim")) for word, meaning in known]


def _peers(topology: Sequence[TopologyLink], width: int) -> list[Line]:
    """Whether GPUs can read each other's memory: one line when all can, else the pairs."""
    reasons: dict[str, list[str]] = {}
    for link in topology:
        if link.p2p is not None:
            reasons.setdefault(link.p2p, []).append(f"{link.a}-{link.b}")
    working = reasons.pop("ok", [])
    if not reasons:
        words = "works between all of them" if working else "not known"
        return [((" P2P  ", "label"), (words, "good" if working else "dim"))]
    lines: list[Line] = []
    for reason, pairs in reasons.items():
        words = f"! not between {', '.join(pairs)}: {foreign(reason).replace('_', ' ')}"
        lines += [(span[0], (span[1][0], "warn")) for span in _under(" P2P  ", words, width)]
    return lines
