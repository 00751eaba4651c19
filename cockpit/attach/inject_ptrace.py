"""The ptrace way in: a Python source as a pending call of an unprepared CPython, x86-64 Linux.

The main thread is stopped once, for about a millisecond; it runs one system call (mmap) and
``Py_AddPendingCall`` on a stack of ours, gets every register back and is let go. The source runs
later, when the main thread next executes Python. No malloc, no dlopen, no breakpoint.

It runs in a process of its own (:func:`inject` starts one): ptrace is bound to a thread, a busy
interpreter lock would make the stop longer, and the cockpit may then die at any moment. What the
death of that process itself does to the target, step by step (it ignores all signals that can be
ignored, so this means SIGKILL or the OOM killer):

* before the first SETREGS: nothing. The kernel detaches, the thread runs on.
* between SETREGS for mmap and SETREGS back (the "window", six ptrace calls, some 50 us of the
  millisecond): the thread would go on behind a system call that it never made, and crash.
* after that, while the page is written: nothing but an unused mapping is left.
* once the trampoline has been started: it puts everything back by itself (see ``trampoline``).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cockpit.attach import trampoline
from cockpit.attach.ptrace import CONT, SYSCALL, EndedError, Stop, Tracee
from cockpit.attach.python_image import Python, find_python

STOP_LIMIT_S = 0.5
"""For the thread to come to a stop; state D keeps it from that."""
CALL_LIMIT_S = 0.1
"""For Py_AddPendingCall: it waits while another thread holds the lock of the queue."""
HELPER_LIMIT_S = 10.0

_SYNCHRONOUS = sum(
    1 << number - 1
    for number in (
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGILL,
        signal.SIGFPE,
        signal.SIGTRAP,
        signal.SIGSYS,
    )
)
"""Never blocked: the kernel resets the handler of a fault that is blocked."""
_ALL_BLOCKED = (1 << 64) - 1 & ~_SYNCHRONOUS
_USER_CODE_64 = 0x33
_PLAIN_FLAGS = 0x202


@dataclass(frozen=True, slots=True)
class Injection:
    """What came of it."""

    ok: bool
    code: str = "queued"
    """``queued``, or why not: gone, stopped, not_permitted, busy, not_python, failed."""
    sentence: str = ""
    page: int = 0
    """Address of the mapping in the target: it disappears once the source has run."""
    stopped_ms: float = 0.0
    """How long the main thread stood still."""
    total_ms: float = 0.0


class RefusedInjectionError(Exception):
    """Not now, or not at all; the target is as it was."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def inject(pid: int, start_ticks: int, source: str) -> Injection:
    """Queue the source in the process, from a helper process. Blocks for some 50 ms."""
    root = str(Path(__file__).resolve().parents[2])
    program = f"import sys; sys.path.insert(0, {root!r}); "
    program += "from cockpit.attach.inject_ptrace import main; main()"
    helper = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", program, str(pid), str(start_ticks)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        answer, _ = helper.communicate(source.encode(), timeout=HELPER_LIMIT_S)
        return Injection(**json.loads(answer))
    except subprocess.TimeoutExpired:
        # Not killed: it may hold the target. It has its own deadlines and ends by itself.
        return Injection(False, "failed", f"The attach to pid {pid} did not end in time.")
    except (ValueError, TypeError, OSError):
        return Injection(False, "failed", f"The attach to pid {pid} failed: its helper ended.")


def still_queued(pid: int, page: int) -> bool:
    """The source has not run yet: its mapping is still there."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as lines:
            return any(line.startswith(f"{page:x}-") or _starts(line, page) for line in lines)
    except OSError:
        return False


def main() -> None:
    """The helper process: PID START_TICKS, source on stdin; one JSON line on stdout."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    gc.disable()
    pid, start_ticks = int(sys.argv[1]), int(sys.argv[2])
    source = sys.stdin.buffer.read()
    sys.stdout.write(json.dumps(asdict(run(pid, start_ticks, source))) + "\n")


def run(pid: int, start_ticks: int, source: bytes) -> Injection:
    """In this very thread. Never raises for what the target or the kernel does."""
    began = time.perf_counter()
    visit: Visit | None = None
    try:
        python = _python(pid)
        with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            gadget = _find_gadget(pid, memory.fileno())
            visit = Visit(pid, memory.fileno())
            visit.check_identity(start_ticks)
            page = visit.queue(source, python, gadget)
    except RefusedInjectionError as refused:
        return Injection(False, refused.code, str(refused), 0, _stopped_ms(visit))
    except (EndedError, ProcessLookupError, FileNotFoundError):
        return Injection(False, "gone", f"pid {pid} has ended.")
    except PermissionError as error:
        return Injection(False, "not_permitted", f"The kernel forbids it ({error.strerror}).")
    except OSError as error:
        sentence = f"The attach to pid {pid} failed ({error}); the process runs on."
        return Injection(False, "failed", sentence, 0, _stopped_ms(visit))
    total_ms = (time.perf_counter() - began) * 1e3
    return Injection(True, "queued", "", page, visit.stopped_ms, total_ms)


class Visit:
    """One stay in the target: whatever happens, the thread is put back and let go."""

    def __init__(self, pid: int, memory: int) -> None:
        self.pid = pid
        self.stopped_ms = 0.0
        self._memory = memory
        self._thread = Tracee(pid)
        self._stop_again = False
        """A SIGSTOP came meanwhile and was held back: it is sent again."""

    def check_identity(self, start_ticks: int) -> None:
        """Seized, the pid cannot be reused any more: it is compared now."""
        with open(f"/proc/{self.pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        if int(fields[19]) != start_ticks:
            raise RefusedInjectionError("gone", f"pid {self.pid} is another process now.")

    def queue(self, source: bytes, python: Python, gadget: tuple[int, int | None]) -> int:
        """Stop, queue, put back, let go; the address of the mapping.

        Raises RefusedInjectionError, EndedError, OSError. Only the helper's end lets go of a thread
        that cannot be stopped any more (state D): the kernel then does it.
        """
        began = time.perf_counter()
        self._thread.interrupt()
        try:
            self._await_interrupt()
            try:
                return self._at_rest(source, python, gadget)
            finally:
                self._let_go()
        finally:
            self.stopped_ms = (time.perf_counter() - began) * 1e3

    def _await_interrupt(self) -> None:
        deadline = time.monotonic() + STOP_LIMIT_S
        while True:
            stop = self._thread.wait(max(0.0, deadline - time.monotonic()))
            if stop is None:
                raise RefusedInjectionError("busy", _uninterruptible(self.pid))
            if stop.group:
                self._thread.detach()
                raise RefusedInjectionError("stopped", _stopped(self.pid))
            if not stop.delivery:
                return
            # A signal was on its way: it is delivered, and our stop follows before its handler.
            self._thread.resume(CONT, stop.signal)

    def _at_rest(self, source: bytes, python: Python, gadget: tuple[int, int | None]) -> int:
        thread = self._thread
        registers, xsave, mask = thread.registers(), thread.xsave(), thread.signal_mask()
        self._check(registers, xsave, python)
        size = trampoline.size_for(source)
        with self._signals_held(mask):
            page = self._system_call(registers, gadget[0], trampoline.SYS_MMAP, 0, size)
        layout, pieces = trampoline.build(
            page, source, python.addresses, gadget[1], registers, xsave, mask
        )
        for address, piece in pieces.items():
            self._write(address, piece)
        with self._signals_held(mask):
            try:
                queued = self._call(registers, layout)
            finally:
                thread.set_xsave(xsave)
                thread.set_registers(registers)
            if not queued:
                self._system_call(registers, gadget[0], trampoline.SYS_MUNMAP, page, size)
                raise RefusedInjectionError("busy", _queue_full(self.pid))
        return page

    @contextlib.contextmanager
    def _signals_held(self, mask: int) -> Iterator[None]:
        """Handlers must not run on our stack; held only while needed, since death would keep it."""
        self._thread.set_signal_mask(_ALL_BLOCKED)
        try:
            yield
        finally:
            self._thread.set_signal_mask(mask)

    def _check(self, registers: dict[str, int], xsave: bytes, python: Python) -> None:
        if registers["cs"] != _USER_CODE_64 or len(xsave) > trampoline.XSAVE_MAX:
            raise RefusedInjectionError("failed", "The process runs code of an unknown kind.")
        for name, expected in python.first_bytes.items():
            if os.pread(self._memory, len(expected), python.addresses[name]) != expected:
                raise RefusedInjectionError("not_python", _replaced(self.pid, python.path))
        if self._in_restartable_sequence(registers["rip"]):
            raise RefusedInjectionError("busy", _uninterruptible(self.pid))

    def _in_restartable_sequence(self, rip: int) -> bool:
        """Between the borders of an rseq section the kernel must see the thread resume itself."""
        address = self._thread.rseq_address()
        section = self._number(address + 8) if address else 0
        if not section:
            return False
        begin, length = self._number(section + 8), self._number(section + 16)
        return begin <= rip < begin + length

    def _system_call(
        self, registers: dict[str, int], instruction: int, number: int, first: int, size: int
    ) -> int:
        """One system call by the stopped thread; its registers are put back at once."""
        thread = self._thread
        arguments = {"rdi": first, "rsi": size, "rdx": trampoline.PROT_ALL, "r9": 0}
        flags = {"r10": trampoline.MAP_PRIVATE_ANONYMOUS, "r8": 2**64 - 1}
        place = {"rax": number, "orig_rax": 2**64 - 1, "rip": instruction}
        wanted = {**registers, **arguments, **flags, **place, "eflags": _PLAIN_FLAGS}
        thread.set_registers(wanted)  # the window opens
        try:
            # Not by a single step: its SIGTRAP would be delivered, and kill, if we died then.
            thread.resume(SYSCALL)
            stop = self._next_stop()
            self._stop_again |= stop.delivery and stop.signal == signal.SIGSTOP
            if not stop.syscall:
                raise RefusedInjectionError("busy", _uninterruptible(self.pid))
            self._to_signal_stop()
            answer = trampoline.signed(thread.registers()["rax"])
        finally:
            thread.set_registers(registers)  # and closes
        if -4096 < answer < 0:
            raise RefusedInjectionError("failed", f"mmap was refused in pid {self.pid} ({answer}).")
        return answer

    def _call(self, registers: dict[str, int], layout: trampoline.Layout) -> bool:
        """Run the trampoline up to its own system call; False: the queue is full."""
        place = {"rip": layout.start, "rsp": layout.stack, "orig_rax": 2**64 - 1}
        self._thread.set_registers({**registers, **place, "eflags": _PLAIN_FLAGS})
        while True:
            self._thread.resume(SYSCALL)
            stop = self._next_stop()
            if stop.syscall and layout.holds(self._thread.registers()["rip"]):
                break
            if stop.delivery and stop.signal != signal.SIGSTOP:
                raise RefusedInjectionError(
                    "failed", f"Py_AddPendingCall failed in pid {self.pid} (signal {stop.signal})."
                )
            self._stop_again |= stop.delivery
        self._to_signal_stop()
        return os.pread(self._memory, 4, layout.result) == b"\0\0\0\0"

    def _to_signal_stop(self) -> None:
        # Only from a stop in the kernel's signal code does it restart an interrupted system call
        # with the registers that we put back: at the exit of a system call -512 would leak.
        self._thread.interrupt()
        self._thread.resume(CONT)
        while (stop := self._next_stop()).syscall:
            self._thread.resume(CONT)
        self._stop_again |= stop.delivery and stop.signal == signal.SIGSTOP

    def _next_stop(self) -> Stop:
        stop = self._thread.wait(CALL_LIMIT_S)
        if stop is None:
            self._thread.interrupt()
            if self._thread.wait(STOP_LIMIT_S) is None:
                raise RefusedInjectionError("failed", f"pid {self.pid} did not come to a stop.")
            raise RefusedInjectionError("busy", _queue_full(self.pid))
        return stop

    def _let_go(self) -> None:
        if self._stop_again:
            os.kill(self.pid, signal.SIGSTOP)
        self._thread.detach()

    def _write(self, address: int, raw: bytes) -> None:
        while raw:
            written = os.pwrite(self._memory, raw, address)
            address, raw = address + written, raw[written:]

    def _number(self, address: int) -> int:
        return int.from_bytes(os.pread(self._memory, 8, address), "little")


def _python(pid: int) -> Python:
    python = find_python(pid)
    if python is None:
        raise RefusedInjectionError("not_python", f"No CPython found in pid {pid}.")
    return python


def _find_gadget(pid: int, memory: int) -> tuple[int, int | None]:
    """A ``syscall`` in the vdso, and a ``syscall; ret`` in libc to unmap with (None: not found)."""
    entry, unmap = None, None
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        lines = [line.split() for line in file]
    for fields in lines:
        name = fields[5] if len(fields) > 5 else ""
        is_c = "/libc" in name or "/ld-musl" in name
        if fields[1][2] != "x" or not (is_c or name == "[vdso]") or (is_c and unmap):
            continue
        begin, end = (int(part, 16) for part in fields[0].split("-"))
        code = os.pread(memory, min(end - begin, 4 << 20), begin)
        if is_c:
            at = code.find(trampoline.SYSCALL_RET)
            unmap = begin + at if at >= 0 else None
        else:
            at = code.find(trampoline.SYSCALL)
            entry = begin + at if at >= 0 else None
    entry = entry or unmap
    if entry is None:
        raise RefusedInjectionError("failed", f"No system call instruction found in pid {pid}.")
    return entry, unmap


def _starts(line: str, page: int) -> bool:
    begin, end = (int(part, 16) for part in line.split(None, 1)[0].split("-"))
    return begin <= page < end  # the kernel joins neighbouring mappings of one kind


def _stopped_ms(visit: Visit | None) -> float:
    return visit.stopped_ms if visit else 0.0


def _stopped(pid: int) -> str:
    return (
        f"pid {pid} is stopped (SIGSTOP). Attaching to a stopped process can kill it. "
        f"Continue it first: kill -CONT {pid}"
    )


def _uninterruptible(pid: int) -> str:
    return f"pid {pid} is in an uninterruptible kernel call; try again in a moment."


def _queue_full(pid: int) -> str:
    return f"pid {pid} has too many pending calls, or their lock is held; try again in a moment."


def _replaced(pid: int, path: str) -> str:
    return f"{path} was replaced on disk while pid {pid} runs: its functions cannot be found."
