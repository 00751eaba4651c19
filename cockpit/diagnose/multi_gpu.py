"""Runs over several GPUs: who left the others waiting, and where the start went wrong."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator

from cockpit.diagnose.candidate import (
    ECHO,
    EXCEPTION,
    NOTICE,
    SEVERAL_RANKS,
    SPECIFIC,
    STATE,
    Candidate,
    Facts,
    Sign,
    candidates,
    compiled,
    search,
)
from cockpit.diagnose.log_reader import Log

_TIMEOUT = re.compile(
    r"(?:\[Rank (?P<rank>\d+)\] )?Watchdog caught collective operation timeout: WorkNCCL\("
    r"SeqNum=(?P<seq>\d+), OpType=(?P<op>\w+)(?:, NumelIn=(?P<numel>\d+), NumelOut=(?P<out>\d+))?"
    r"(?:, Timeout\(ms\)=(?P<ms>\d+))?"
)
_ENQUEUED = re.compile(
    r"\bRank (?P<rank>\d+)\].{0,500}?last enqueued (?:NCCL )?work: (?P<enqueued>-?\d+), last "
    r"completed "
    r"(?:NCCL )?work: (?P<completed>-?\d+)",
    re.IGNORECASE,
)
_SECONDS = re.compile(
    r"\brank ?(?P<rank>\d{1,5})\b[^\n]{0,40}?(?P<seconds>\d{1,6}\.\d{1,4}) ?(?P<unit>ms|s)\b", re.I
)
_BATCHES = re.compile(
    r"\brank ?(?P<rank>\d{1,5})\b[^\n]{0,40}?(?P<count>\d{1,9}) (?:batches|steps|iterations)\b",
    re.I,
)
_PEER = (
    r"(?:Connection closed by remote peer|Socket (?:closed|reset) by (?:remote )?peer|closed by "
    r"peer"
    r"|reset by peer)(?:[^\S\n]{0,3}\[?(?P<peer>[\w.:-]{2,60}\w))?"
)
_ECHO = (
    rf"{_PEER}|ncclRemoteError|remote process exited or there was a network error"
    r"|Watchdog caught collective"
)
_MOST_ECHOES = 50
_COLLECTIVE = re.compile(r"NCCL|Gloo|c10d|TCPStore|ProcessGroup|Watchdog|\bDist|remote p", re.I)
"""Of the line that says that a connection ended: one between ranks."""
_WEB = re.compile(r"https?\b|\brequests\.|urllib3|wandb|aiohttp|botocore|huggingface", re.I)
"""A connection to a server, which loggers and downloads make anew."""
_PYTHON_DEATH = re.compile(
    r"^\s*(?:[\w.]{1,80}\.)?(?P<name>[A-Z]\w{1,60}(?:Error|Exception|Interrupt))\b"
)
_ECHO_NAMES = re.compile(
    r"DistBackendError|DistNetworkError|ChildFailedError|EngineDeadError|SignalException"
    r"|DistStoreError"
    r"|RayTaskError|ActorDiedError|NCCL|Gloo|gloo|Connection (?:closed|reset)|Broken pipe|CUDA|HIP"
    r"|CUDNN"
)

_NO_NAME = r"Name or service not known|Temporary failure in name resolution"
_RENDEZVOUS = (
    r"c10d|torch\.distributed|torch/distributed|torchrun|rdzv|rendezvous|MASTER_(?:ADDR|PORT)"
    r"|master[_ ](?:addr|port)|TCPStore|socket\.cpp"
)
"""In the logs of ranks that look for each other; the word "torch" is in any."""

SIGNS: tuple[Sign, ...] = (
    Sign(
        "shm_too_small",
        r"Error while creating shared memory segment|failed to extend /dev/shm|posix_fallocate "
        r"failed"
        r"|Unexpected bus error encountered in worker|out of shared memory\. Please try to raise"
        r"|insufficient shared memory \(shm\)|unable to (?:write to|open) (?:file|shared memory "
        r"object)"
        r" <?/torch_(?!.{0,120}?(?:Too many open files|No such file|Permission denied))"
        r"|killed by signal: Bus error|No space left on device: '/dev/shm",
        SPECIFIC + 4,
        0.95,
    ),
    Sign(
        "shm_too_small",
        r"exitcode ?: -7\b|exit (?:code|status):? 135\b|SIGBUS\b|Bus error \(core dumped\)",
        ECHO + 6,
        0.7,
    ),
    Sign(
        "duplicate_gpu",
        r"Duplicate GPU detected ?: rank (?P<rank>\d+) and rank \d+",
        SPECIFIC + 4,
        0.97,
    ),
    Sign(
        "too_many_ranks",
        r"invalid device ordinal|cudaErrorInvalidDevice\b",
        EXCEPTION,
        0.85,
        also=(("cvd_hides_gpus", "CUDA_VISIBLE_DEVICES may hide GPUs that the machine has"),),
    ),
    Sign(
        "port_in_use",
        r"EADDRINUSE|Address already in use",
        SPECIFIC,
        0.95,
        needs=(rf"{_RENDEZVOUS}|29500",),
        more=(
            r"users:\(\([^\n]{0,60}?pid=(?P<pid>\d+)",
            r"(?:port[:=]? ?|\]:|\d:|localhost:|sport = :)(?P<port>\d{4,5})\b",
        ),
    ),
    Sign(
        "nccl_version_mismatch",
        r"Mismatched NCCL version detected|NCCL version mismatch|mismatch.{0,30}NCCL versions?"
        r"|Message truncated ?: received \d+ bytes instead of|NCCL versions? (?:differ|do not "
        r"match)",
        SPECIFIC + 3,
        0.9,
    ),
    Sign(
        "rendezvous",
        r"client socket has (?:timed out|failed to connect)|RendezvousTimeoutError"
        r"|RendezvousConnectionError|DistStoreError|while trying to connect to"
        r"|TCPStore.{0,80}?timed out"
        r"|Timed out (?:after|waiting).{0,80}?(?:clients? joined|for clients)|No route to host"
        rf"|(?:{_NO_NAME}).{{0,200}}?(?:c10d|socket\.cpp|TCPStore)"
        rf"|(?:c10d|socket\.cpp|TCPStore|MASTER_ADDR).{{0,300}}?(?:{_NO_NAME})"
        r"|failed to (?:connect|recv).{0,60}?(?:TCPStore|master)",
        SPECIFIC - 8,
        0.85,
        needs=(rf"{_RENDEZVOUS}|NCCL",),
        more=(
            r"connect to \(?\[?(?P<master_addr>[\w.:-]{1,60}?)\]?[,:] ?(?P<master_port>\d{2,5})\)?",
        ),
    ),
    Sign(
        "uneven_inputs",
        r"Detected mismatch between collectives on ranks|at least one rank .{0,30}?exhausted "
        r"(?:its )?inputs"
        r"|ranks? .{0,40}different number of (?:batches|inputs|samples)|collective.{0,40}shape "
        r"mismatch",
        SPECIFIC + 3,
        0.9,
    ),
    Sign(
        "p2p_acs",
        r"ACSCtl: ?SrcValid\+|IO_PAGE_FAULT|DMAR: .{0,60}?fault",
        SPECIFIC - 3,
        0.9,
        needs=(r"NCCL|P2P|all_reduce|nccl|peer",),
    ),
    Sign(
        "p2p_acs",
        r"NCCL_P2P_DISABLE=1.{0,300}?(?:OK|works|passes|Avg bus bandwidth)",
        SPECIFIC - 4,
        0.8,
    ),
    Sign(
        "io_stall",
        r"blocked for more than \d+ seconds|server \S{1,60} not responding"
        r"|(?:wchan|stack).{0,80}?(?:nfs_|lustre|rpc_wait|io_schedule|fuse_)|\bD[sl+<]* "
        r".{0,30}(?:nfs|rpc_wait)",
        SPECIFIC - 9,
        0.75,
        needs=(r"rank|NCCL|torchrun|watchdog|c10d",),
    ),
    Sign(
        "benign",
        r"devices used by this process are currently unknown|barrier\(\): using the device under "
        r"current"
        r"|destroy_process_group\(\) was not called",
        NOTICE,
        0.85,
        facts=lambda _: {"severity": "info"},
    ),
)


def find(log: Log) -> Iterator[Candidate]:
    """Candidates of this family."""
    yield from candidates(log, SIGNS)
    yield from _timeouts(log)
    yield from _peer_died(log)
    yield from _straggler(log)


def _timeouts(log: Log) -> Iterator[Candidate]:
    found = list(_TIMEOUT.finditer(log.text))[:2000]
    if not found:
        yield from _nothing_started(log)
        return
    index = log.index_at(found[0].start())
    seqs: dict[int, tuple[int, str, str | None]] = {}
    for one in found:
        rank = int(one["rank"]) if one["rank"] else log.line_at(one.start()).rank
        if rank is not None:
            seqs.setdefault(rank, (int(one["seq"]), one["op"], one["numel"]))
    counters = {
        int(one["rank"]): (int(one["enqueued"]), int(one["completed"]))
        for one in _ENQUEUED.finditer(log.text)
    }
    facts: Facts = {
        "timed_out_ranks": sorted(seqs),
        "seq": int(found[0]["seq"]),
        "op": found[0]["op"],
    }
    if found[0]["ms"]:
        facts["timeout_s"] = int(found[0]["ms"]) / 1000
    cause, confidence, why, more = _judge(log, seqs, counters)
    yield Candidate(cause, ECHO + 8, index, confidence, facts | more, why=why)


def _nothing_started(log: Log) -> Iterator[Candidate]:
    """Only dumps of the counters, all at -1: the processes never came to their first collective."""
    rows = list(_ENQUEUED.finditer(log.text))[:2000]
    if len(rows) >= 2 and all(row["enqueued"] == row["completed"] == "-1" for row in rows):
        why = "No rank had started or ended a collective (-1, -1 everywhere)."
        yield Candidate("io_stall", ECHO + 8, log.index_at(rows[0].start()), 0.8, why=why)


def _judge(
    log: Log,
    seqs: dict[int, tuple[int, str, str | None]],
    counters: dict[int, tuple[int, int]],
) -> tuple[str, float, str, Facts]:
    if len(counters) >= 2 and all(one == (-1, -1) for one in counters.values()):
        return "io_stall", 0.8, "No rank had started or ended a collective (-1, -1 everywhere).", {}
    kinds = {(op, numel) for _, op, numel in seqs.values()}
    same_seq = len({seq for seq, _, _ in seqs.values()}) == 1
    if same_seq and len(kinds) > 1:
        return "uneven_inputs", 0.85, "The ranks wait in different calls with one number.", {}
    enqueued = {rank: one[0] for rank, one in counters.items()}
    awaited = max((seq for seq, _, _ in seqs.values()), default=0)
    behind = [rank for rank, number in enqueued.items() if number < awaited]
    if behind and len(behind) < max(2, len(enqueued)):
        culprit = min(behind, key=lambda rank: enqueued[rank])
        why = (
            f"Rank {culprit} stopped at collective {enqueued[culprit]}, while the others waited in "
            f"{awaited}."
        )
        return "rank_behind", 0.92, why, {"culprit_rank": culprit}
    if len({seq for seq, _, _ in seqs.values()}) > 1:
        lowest = min(seqs, key=lambda rank: seqs[rank][0])
        ops = [seqs[rank][1] for rank in seqs]
        if len(set(ops)) > 1:
            return "uneven_inputs", 0.75, "The ranks wait in different collectives.", {}
        why = f"Rank {lowest} waits in an earlier collective than the others."
        return "rank_behind", 0.7, why, {"culprit_rank": lowest}
    everyone = _world(log)
    missing = sorted(everyone - set(seqs))
    if seqs and len(missing) == 1:
        why = f"All ranks but {missing[0]} report the time-out."
        return "rank_behind", 0.7, why, {"culprit_rank": missing[0]}
    absent = f" Nothing came from {', '.join(map(str, missing))}." if missing else ""
    return "collective_timeout", 0.75, f"Ranks {sorted(seqs)} waited.{absent}", {}


def _world(log: Log) -> set[int]:
    size = search(log, r"world[_ ]?size\W{1,4}(\d{1,5})\b|nproc[_-]per[_-]node\W(\d{1,3})\b")
    if size:
        return set(range(min(int(size[1] or size[2]), 65536)))
    return {line.rank for line in log.lines if line.rank is not None}


def _peer_died(log: Log) -> Iterator[Candidate]:
    """The end of a connection between ranks, and the rank whose end was before it."""
    echoes = list(_echoes(log)) if _has_ranks(log) else []
    deaths = _deaths(log) if echoes else []
    peer = next((match["peer"] for _, match in echoes if match["peer"]), None)
    facts: Facts = {"peer": peer} if peer else {}
    for index, _ in echoes:
        if (died := _death_before(log, deaths, index)) is not None:
            yield _died(log, died, index, facts)
            return
    for index, match in echoes:
        is_named = log.lines[index].rank is not None or _COLLECTIVE.search(log.lines[index].text)
        if is_named and not match[0].lower().startswith("watchdog"):
            yield Candidate("peer_died", ECHO + 4, index, 0.7, facts)
            return


def _echoes(log: Log) -> Iterator[tuple[int, re.Match[str]]]:
    """Lines that say that a connection between ranks ended."""
    for match in itertools.islice(compiled(_ECHO).finditer(log.text), _MOST_ECHOES):
        index = log.index_at(match.start())
        text = log.lines[index].text
        if _COLLECTIVE.search(text) or not (_WEB.search(text) or log.went_on_after(index)):
            yield index, match


def _died(log: Log, died: int, echo: int, facts: Facts) -> Candidate:
    line = log.lines[died]
    if line.rank is not None:
        facts["rank"] = line.rank
    facts["fatal"] = line.text.strip()[:200]
    why = f"What ended it is in line {line.number}: {line.text.strip()[:160]}"
    return Candidate("peer_died", ECHO + 12, died, 0.85, facts, lines=(echo,), why=why)


def _has_ranks(log: Log) -> bool:
    """Else a loader's process may have ended, or a server of the web: no peer died."""
    return any(line.rank is not None for line in log.lines) or (
        search(log, SEVERAL_RANKS) is not None
    )


def _deaths(log: Log) -> list[int]:
    """Python exceptions that are no echo and no GPU error: what ended a rank."""
    return [
        index
        for index, line in enumerate(log.lines)
        if (found := _PYTHON_DEATH.match(line.text))
        and not _ECHO_NAMES.search(line.text)
        and found["name"] != "KeyboardInterrupt"
        and not log.went_on_after(index)
    ]


def _death_before(log: Log, deaths: list[int], echo: int) -> int | None:
    """Above the line, or of another rank: files of ranks may stand one below the other."""
    rank = log.lines[echo].rank
    for index in deaths:
        other = log.lines[index].rank
        if index < echo or (rank is not None and other not in (None, rank)):
            return index
    return None


def _straggler(log: Log) -> Iterator[Candidate]:
    times: dict[int, list[float]] = defaultdict(list)
    first = None
    for one in _SECONDS.finditer(log.text):
        first = first or one
        times[int(one["rank"])].append(float(one["seconds"]))
    if len(times) >= 2 and first is not None:
        means = {rank: sum(values) / len(values) for rank, values in times.items()}
        slowest = max(means, key=lambda rank: means[rank])
        rest = sorted(value for rank, value in means.items() if rank != slowest)
        median = rest[len(rest) // 2]
        if means[slowest] > 1.3 * median > 0 and not search(log, r"Watchdog caught"):
            why = f"Rank {slowest} needs {means[slowest]:.2f}, the others {median:.2f}."
            place = log.index_at(first.start())
            yield Candidate("straggler", STATE + 8, place, 0.85, {"rank": slowest}, why=why)
    counts: dict[int, int] = {}
    for one in _BATCHES.finditer(log.text):
        counts[int(one["rank"])] = int(one["count"])
        first = first or one
    if len(set(counts.values())) > 1 and search(log, r"Watchdog|timeout|hang|no further output"):
        why = "Batches of the ranks: " + ", ".join(
            f"{k}: {v}" for k, v in sorted(counts.items())[:8]
        )
        yield Candidate(
            "uneven_inputs", ECHO + 14, log.index_at(first.start() if first else 0), 0.85, why=why
        )
