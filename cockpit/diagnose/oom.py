"""Out of memory: which of its causes, from the message's numbers and the log around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from cockpit.diagnose import oom_message
from cockpit.diagnose.candidate import (
    ECHO,
    EXCEPTION,
    HARDWARE,
    LOADER,
    LOADER_ENDED,
    NOTICE,
    SEVERAL_RANKS,
    SPECIFIC,
    STATE,
    Candidate,
    Facts,
    Sign,
    candidates,
    search,
)
from cockpit.diagnose.log_reader import Log
from cockpit.diagnose.oom_cause import cause_of
from cockpit.diagnose.oom_message import OomMessage
from cockpit.diagnose.sizes import SIZE, parse
from cockpit.model.text import size as size_text

COLLECTIVE_ECHO = (
    r"Watchdog caught collective|DistBackendError|ncclRemoteError|Connection closed by (?:remote )?"
    r"peer|Connection reset by peer|ncclInternalError|Some NCCL operations have failed"
)
_DTYPES = {"half": 2, "bfloat16": 2, "float": 4, "double": 8, "int32": 4, "int64": 8, "uint8": 1}
_PINNED = (
    r"(?:\.pin_memory\(|/pin_memory\.py\b|pin_memory_loop)[^\n]{0,300}(?:\n[^\n]{0,300}){0,7}?"
    r"\n[^\n]{0,80}CUDA error: out of memory"
)
"""The frame that asks, and the error a few lines below it."""
_REFUSED = re.compile(
    r"DefaultCPUAllocator: (?:can't|not enough) (?:allocate )?memory(?:: you tried to allocate "
    r"(?P<bytes>\d{1,24}) bytes)?"
    rf"|\b_?(?:Array)?MemoryError\b(?:: Unable to allocate (?P<size>{SIZE}))?"
    r"|Errno 12\] Cannot allocate memory"
)
"""An allocation in host memory that came back with an error: nobody was killed."""
HOST_ABSURD_BYTES = 32 << 40
"""More memory than a machine has, but for a handful in the world."""
_DMESG_KILL = r"Killed process (?P<pid>\d{1,9}) \((?P<victim>[^)\n]{1,60})\)"


def _tensor_bytes(log: Log) -> Facts:
    found = search(
        log, r"OOM when allocating tensor with shape\s?\[([\d,\s]{1,200})\] and type (\w+)"
    )
    if found is None:
        return {}
    tried = _DTYPES.get(found[2].lower(), 4)
    for part in found[1].split(","):
        tried *= int(part) if part.strip().isdigit() else 1
    return {"tried_bytes": tried, "shape": found[1].replace(" ", ""), "backend": "tensorflow"}


def _ggml_bytes(log: Log) -> Facts:
    found = search(log, r"allocating (\d{1,9}\.\d\d MiB) on device \d{1,3}: cudaMalloc failed")
    size = parse(found[1]) if found else None
    return {"backend": "ggml"} | ({"tried_bytes": size} if size is not None else {})


def _xla_bytes(log: Log) -> Facts:
    found = search(log, r"RESOURCE_EXHAUSTED.{0,200}?allocat\w* (\d{1,18}) bytes")
    if found:
        return {"tried_bytes": int(found[1]), "backend": "jax"}
    found = search(log, rf"RESOURCE_EXHAUSTED.{{0,200}}?allocat\w* ({SIZE})")
    size = parse(found[1]) if found else None
    return {"backend": "jax"} | ({"tried_bytes": size} if size is not None else {})


def _vllm_sizes(log: Log) -> Facts:
    found = search(
        log,
        r"Free memory on device \S{0,20} ?\((?P<free>[\d.]{1,12})/(?P<total>[\d.]{1,12}) "
        r"GiB\).{0,200}?"
        r"utilization \([\d.]{1,9}, (?P<wanted>[\d.]{1,12}) GiB\)",
    )
    if found is None:
        return {}
    sizes = {f"{name}_bytes": parse(f"{text} GiB") for name, text in found.groupdict().items()}
    return {name: size for name, size in sizes.items() if size is not None}


def _budget_sizes(log: Log) -> Facts:
    found = search(log, rf"Available KV cache memory: (-?)({SIZE})")
    size = parse(found[2]) if found else None
    facts = {} if found is None or size is None else {"cache_bytes": -size if found[1] else size}
    fits = search(log, r"estimated maximum model length is (\d{1,9})\b")
    return facts | ({"fitting_model_len": int(fits[1])} if fits and int(fits[1]) else {})


_ONLY_SIGNAL = (
    "The run ended by SIGKILL, which no program can catch and explain. The kernel sends it when "
    "memory runs out, a person or a scheduler for reasons of their own; the kernel log tells "
    "which. If it was the kernel:"
)

SIGNS: tuple[Sign, ...] = (
    Sign("host_oom", _DMESG_KILL, HARDWARE, 0.97),
    Sign("host_oom", r"oom-kill:constraint=.{0,400}?pid=(?P<pid>\d{1,9})", HARDWARE, 0.95),
    Sign("host_oom", r"Detected \d+ oom[-_]kill event|OOMKilled|oom_kill [1-9]", HARDWARE, 0.95),
    Sign(
        "host_oom",
        r"DataLoader worker \(pid\(?s?\)? ?(?P<pid>\d+)\)? is killed by signal: Killed",
        65,
    ),
    Sign(
        "host_oom",
        r"node running low on memory|Task was killed due to.{0,40}memory",
        SPECIFIC,
        why="Ray watches the memory of its node and ends tasks before the kernel would.",
        title="Host memory ran low and Ray ended the task",
    ),
    Sign(
        "host_oom",
        r"\.pin_memory\(|/pin_memory\.py\b|pin_memory_loop",
        EXCEPTION + 1,
        0.6,
        needs=(_PINNED,),
        also=(("oom_other_process", "the first call on a full GPU fails in the same words"),),
        why="It was page-locked memory that was asked for, which is the host's: `CUDA error: out "
        "of memory` says it of both.",
        title="The host has no more memory to lock for copies to the GPU",
    ),
    Sign(
        "host_oom",
        r"exitcode ?: -9\b|(?<!\[)exit(?:ed with)?(?: status| code)?:? 137\b|Signal 9 \(SIGKILL\)",
        ECHO + 5,
        0.6,
        unless=(r"\bkill -(?:9|KILL)\b", r"out of memory\. Tried to allocate"),
        more=(
            r"exitcode ?: -9\b.{0,40}?pid: (?P<pid>\d{1,9})",
            r"SIGKILL\) received by PID (?P<pid>\d+)",
        ),
    ),
    Sign(
        "host_oom",
        r"\[(?:the run was ended by SIGKILL|exit status 137)\]",
        STATE + 9,
        0.5,
        facts=lambda _: {"only_signal": True},
        unless=(r"\bkill -(?:9|KILL)\b", r"out of memory\. Tried to allocate"),
        why=_ONLY_SIGNAL,
        title="Killed by SIGKILL: the kernel's out-of-memory killer, or somebody's kill -9",
    ),
    Sign(
        "host_oom",
        LOADER_ENDED,
        STATE + 8,
        0.4,
        needs=(LOADER,),
        facts=lambda _: {"only_signal": True},
        unless=(SEVERAL_RANKS,),
        also=(("shm_too_small", "a full /dev/shm ends a loader process as well (bus error)"),),
        why=(
            "A loader process ended without a word; most often the kernel killed it because memory "
            "ran out, and the kernel log tells. If so:"
        ),
        title="A loader process was ended from outside: host memory, or /dev/shm",
    ),
    Sign(
        "host_oom",
        r"(?:^|\n)(?:\S{0,80}: line \d+: \d+ )?Killed\b(?! process)",
        ECHO,
        0.6,
        unless=(r"\bkill -(?:9|KILL)\b", r"out of memory\. Tried to allocate"),
    ),
    Sign(
        "kernel_shared_memory",
        r"out of resource: shared memory, Required: (?P<required>\d+), Hardware limit: "
        r"(?P<limit>\d+)",
        SPECIFIC,
        0.97,
        not_=("It is not GPU memory: the size counts the chip's own memory of one thread block.",),
    ),
    Sign(
        "kernel_shared_memory",
        r"out of resources?: shared memory|uses too much shared data",
        SPECIFIC,
    ),
    Sign(
        "oom_pool_budget",
        r"No available memory for the cache blocks",
        SPECIFIC,
        0.95,
        facts=_budget_sizes,
    ),
    Sign(
        "oom_pool_budget",
        r"KV cache (?:memory )?is needed, which is larger than the available KV cache"
        r"|larger than the maximum number of tokens that can be stored in (?:the )?KV cache"
        r"|Please try to increase (?:`)?--mem-fraction-static",
        SPECIFIC,
        0.93,
        facts=_budget_sizes,
    ),
    Sign(
        "oom_other_process",
        r"on startup is less than desired GPU memory utilization",
        SPECIFIC,
        0.92,
        facts=_vllm_sizes,
    ),
    Sign(
        "oom_peak",
        r"OOM when allocating tensor with shape",
        EXCEPTION,
        0.85,
        facts=_tensor_bytes,
        not_=("Used memory near 100 % proves nothing here: TensorFlow takes it all at the start.",),
    ),
    Sign(
        "oom_pool_budget",
        r"RESOURCE_EXHAUSTED: .{0,80}?(?:Out of memory|Failed to allocate)",
        EXCEPTION,
        0.75,
        facts=_xla_bytes,
        unless=(r"OOM when allocating tensor",),
        also=(("oom_peak", "the request may exceed the whole card"),),
    ),
    Sign(
        "oom_other_process",
        r"CUDA(?: runtime)? error(?: \(2\))? ?: out of memory|cudaErrorMemoryAllocation"
        r"|CUDA_ERROR_OUT_OF_MEMORY",
        EXCEPTION,
        0.55,
        title="The GPU had no memory left, most likely because of another process",
        unless=(r"out of memory\.? Tried to allocate", r"RESOURCE_EXHAUSTED"),
        also=(("oom_peak", "the text has no numbers: this process may fill the card itself"),),
    ),
    Sign(
        "oom_peak",
        r"(?:allocating \d{1,9}\.\d\d MiB on device (?P<gpu>\d{1,3}): )?"
        r"cudaMalloc failed: out of memory|unable to allocate CUDA\d{1,3} buffer",
        EXCEPTION - 1,
        0.6,
        also=(("oom_other_process", "the text does not say how much others hold"),),
        why="The buffer for the model's weights or its cache did not fit: fewer layers on the GPU "
        "(-ngl), a shorter context (-c) or a smaller quantization need less.",
        facts=_ggml_bytes,
        title="The model does not fit into the GPU's memory",
    ),
    Sign(
        "oom_disguised",
        r"(?P<status>CUBLAS_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED)|CUDNN_STATUS_(?:NOT_INITIALIZED"
        r"|ALLOC_FAILED)|CUSOLVER_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED)"
        r"|Cuda failure (?:2 )?'out of memory'|Failed to CUDA (?:calloc|malloc)"
        r"|cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_(?:DEVICE|HOST)_ALLOCATION_FAILED)",
        EXCEPTION - 2,
        0.75,
        unless=(r"Assertion `.{1,300}?` failed|device-side assert",),
        also=(("foreign_libcublas", "another CUDA's library in LD_LIBRARY_PATH looks the same"),),
    ),
)


def find(log: Log) -> Iterator[Candidate]:
    """Candidates of this family."""
    messages = oom_message.find(log)
    yield from candidates(log, SIGNS)
    yield from _refused(log)
    if messages:
        yield _judge(log, messages)


def _refused(log: Log) -> Iterator[Candidate]:
    """The program asked for host memory and was told that there is none."""
    found = list(_REFUSED.finditer(log.text))[:200]
    if not found:
        return
    match = next((m for m in found if not log.went_on_after(log.index_at(m.start()))), found[0])
    index = log.index_at(match.start())
    tried = int(match["bytes"]) if match["bytes"] else parse(match["size"])
    facts: Facts = {} if tried is None else {"tried_bytes": tried}
    if tried is not None and tried > HOST_ABSURD_BYTES:
        why = f"{size_text(tried)} of host memory were asked for at once: look at the shape."
        title = "An absurd size of host memory was asked for: memory is not short"
        yield Candidate("not_oom_corrupt_size", EXCEPTION, index, 0.9, facts, why=why, title=title)
        return
    asked = f" {size_text(tried)} were asked for at once." if tried is not None else ""
    why = f"The system refused an allocation; nobody ended the process.{asked}"
    title = "Host memory ran out: the system refused an allocation of the program"
    yield Candidate("host_oom", EXCEPTION, index, 0.87, facts, why=why, title=title)


def _judge(log: Log, messages: list[OomMessage]) -> Candidate:
    fatal = [one for one in messages if not log.went_on_after(one.at)]
    if not fatal:
        return _recovered(log, messages)
    first = fatal[0]
    ranks = sorted({one.rank for one in fatal if one.rank is not None})
    cause, confidence, why, also = cause_of(log, first, fatal)
    facts = _facts(log, first, cause)
    if ranks:
        facts["ranks"] = ranks
    echo = search(log, COLLECTIVE_ECHO)
    if echo and cause in ("oom_peak", "oom_growth") and _echo_of_other(log, echo, first):
        also = ((cause, why), *also)
        cause, confidence = "oom_on_rank", 0.85
    return Candidate(
        cause,
        EXCEPTION,
        first.at,
        confidence,
        facts,
        also,
        _not(first, cause),
        tuple(one.at for one in fatal[1:4]),
        why,
    )


def _echo_of_other(log: Log, echo: re.Match[str], first: OomMessage) -> bool:
    line = log.line_at(echo.start())
    return line.rank is None or line.rank != first.rank


def _recovered(log: Log, messages: list[OomMessage]) -> Candidate:
    first = messages[0]
    facts = first.facts()
    later = _last_exception(log, first.at)
    why = "Steps follow after the out-of-memory message, so it was handled."
    if later is not None:
        line = log.lines[later]
        facts |= {"fatal": line.text.strip()[:200], "fatal_line": line.number}
        if "Too many open files" in line.text:
            facts["too_many_files"] = True
        why += f" What ended the run comes later (line {line.number}): {line.text.strip()[:160]}"
    lines = (later,) if later is not None else ()
    return Candidate("recovered", NOTICE + 5, first.at, 0.85, facts, lines=lines, why=why)


def _last_exception(log: Log, after: int) -> int | None:
    for index in range(len(log.lines) - 1, after, -1):
        text = log.lines[index].text
        if re.match(r"\s*(?:[\w.]{1,80}\.)?[A-Z]\w{1,60}(?:Error|Exception|Interrupt)\b", text):
            return index
    return None


def _facts(log: Log, message: OomMessage, cause: str) -> dict[str, Any]:
    facts = message.facts()
    if total := message.get("total"):
        facts["total"] = size_text(total)
        if message.own > total / 2:
            facts["own_is_much"] = True
    if message.others:
        facts["other_pid"] = int(max(message.others, key=lambda pid: message.others[pid]))
    if batch := search(log, r"batch[_ -]?size\W{1,4}(\d{1,5})\b"):
        facts["half_batch"] = max(1, int(batch[1]) // 2)
    if search(log, r"attn_weights|attention_scores|softmax\(attn|torch\.matmul\(query"):
        facts["attention"] = True
    if cause == "not_oom_corrupt_size" and search(log, r"Watchdog caught|broadcast|scatter"):
        facts["collective"] = True
    return facts


def _not(message: OomMessage, cause: str) -> tuple[str, ...]:
    """Reasons with this message's numbers against what people think of first."""
    tried, stranded = message.tried, message.reserved_unalloc
    if cause in ("oom_peak", "oom_growth") and tried is not None and message.get("total"):
        if stranded + message.get("free") < tried:
            return (
                f"Not fragmentation: only {size_text(stranded)} are reserved and unused, less than "
                f"the {size_text(tried)} asked for.",
            )
        if stranded * 10 < message.get("allocated"):
            return (f"Hardly fragmentation: only {size_text(stranded)} are reserved and unused.",)
    if cause == "oom_other_process" and message.own <= message.get("total") / 2:
        return ("Not this program's size: its own part of the card is small.",)
    return ()
