"""The ptrace way in: a Python source as a pending call of an unprepared CPython, x86-64 Linux.

The main thread is stopped once, for about a millisecond; it runs one system call (mmap) and
``Py_AddPendingCall`` on a stack of ours, gets every register back and is let go. The source runs
later, when the main thread next executes Python. No malloc, no dlopen, no breakpoint.

It runs in a process of its own (:func:`inject` starts one): ptrace is bound to a thread, a busy
interpreter lock would make the stop longer, and the cockpit may then die at any moment. What the
death of that process itself does to the target, step by step (it ignores all signals that can be
ignored, so this means SIGKILL or the OOM killer):

* before the first SETREGS: nothing. The kernel detaches, the thread runs on.
* while the thread is lent for mmap: below its stack lies a signal frame (``sigframe``). Behind the
  system call it returns into rt_sigreturn, which puts everything back. An interrupted sleep sees
  EINTR then, as after any signal. (Where libc has no such code, or the stack no room, the thread
  would crash: a window of some 50 us.)
* after that, while the page is written: nothing but an unused mapping is left.
* once the trampoline has been started: it puts everything back by itself (see ``trampoline``).

The signal mask is changed after the registers and put back before them, for the same reason.

Past 400 lines: the whole of what the target goes through is to be read in one place, in its order.
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
from dataclasses import asdict, dataclass
from pathlib import Path

from cockpit.attach import sigframe, trampoline
from cockpit.attach.ptrace import CONT, SYSCALL, EndedError, Stop, Tracee
from cockpit.attach.python_image import Python, find_python
from cockpit.attach.trampoline import Context

STOP_LIMIT_S = 1.0
"""For the thread to come to a stop; state D keeps it from that, and a full machine."""
CALL_LIMIT_S = 1.0
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
_PARKING = (3, 13)
"""Since then the queue's lock is a PyMutex: whoever waits for it has let go of the GIL, and must
not be taken out of that."""
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


@dataclass(frozen=True, slots=True)
class Gadgets:
    """Addresses of instructions that are in the target already."""

    entry: int
    """``syscall``."""
    call: int | None
    """``syscall; ret``."""
    sigreturn: int | None
    """What a signal handler returns to: ``mov rax, 15; syscall``."""


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
            return any(_is_ours(line, page) for line in lines)
    except OSError:
        return False


def main() -> None:
    """The helper process: PID START_TICKS, source on stdin; one JSON line on stdout."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    gc.disable()
    with contextlib.suppress(OSError):  # root's only: the stop is short then on a full machine too
        os.setpriority(os.PRIO_PROCESS, 0, -10)
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
            gadgets = find_gadgets(pid, memory.fileno())
            visit = Visit(pid, memory.fileno())
            visit.check_identity(start_ticks)
            page = visit.queue(source, python, gadgets)
    except RefusedInjectionError as refused:
        return Injection(False, refused.code, str(refused), 0, _stopped_ms(visit))
    except (EndedError, ProcessLookupError, FileNotFoundError) as error:
        if _state(pid) not in ("", "Z", "X"):  # it would not stop: the end of this process lets go
            sentence = f"The attach to pid {pid} failed ({error}); the process runs on."
            return Injection(False, "failed", sentence, 0, _stopped_ms(visit))
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

    def queue(self, source: bytes, python: Python, gadgets: Gadgets) -> int:
        """Stop, queue, put back, let go; the address of the mapping.

        Raises RefusedInjectionError, EndedError, OSError. Only the helper's end lets go of a thread
        that cannot be stopped any more (state D): the kernel then does it.
        """
        began = time.perf_counter()
        self._thread.interrupt()
        try:
            self._await_interrupt()
            try:
                return self._at_rest(source, python, gadgets)
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

    def _at_rest(self, source: bytes, python: Python, gadgets: Gadgets) -> int:
        thread = self._thread
        own = Context(thread.registers(), thread.xsave(), thread.signal_mask())
        self._check(own, python)
        size = trampoline.size_for(source)
        page = self._system_call(own, gadgets, trampoline.SYS_MMAP, 0, size)
        layout, pieces = trampoline.build(page, source, python.addresses, gadgets.call, own)
        for address, piece in pieces.items():
            self._write(address, piece)
        queued: bool | None = False
        try:
            queued = self._call(own, layout, abandon=_before_parking(python))
        finally:
            if queued is not None:
                thread.set_xsave(own.xsave)
                thread.set_signal_mask(own.mask)
                thread.set_registers(own.registers)
        if queued is False:
            self._system_call(own, gadgets, trampoline.SYS_MUNMAP, page, size)
            raise RefusedInjectionError("busy", _queue_full(self.pid))
        return page

    def _check(self, own: Context, python: Python) -> None:
        if own.registers["cs"] != _USER_CODE_64 or len(own.xsave) > trampoline.XSAVE_MAX:
            raise RefusedInjectionError("failed", "The process runs code of an unknown kind.")
        for name, expected in python.first_bytes.items():
            if os.pread(self._memory, len(expected), python.addresses[name]) != expected:
                raise RefusedInjectionError("not_python", _replaced(self.pid, python.path))
        if self._in_restartable_sequence(own.registers["rip"]):
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
        self, own: Context, gadgets: Gadgets, number: int, first: int, size: int
    ) -> int:
        """One system call by the stopped thread; its registers are put back at once."""
        thread = self._thread
        arguments = {"rdi": first, "rsi": size, "rdx": trampoline.PROT_ALL, "r9": 0}
        flags = {"r10": trampoline.MAP_PRIVATE_ANONYMOUS, "r8": 2**64 - 1}
        place = {"rax": number, "orig_rax": 2**64 - 1, **self._way_back(own, gadgets)}
        wanted = {**own.registers, **arguments, **flags, **place, "eflags": _PLAIN_FLAGS}
        thread.set_registers(wanted)
        try:
            # Not by a single step: its SIGTRAP would be delivered, and kill, if we died then.
            thread.set_signal_mask(_ALL_BLOCKED)
            thread.resume(SYSCALL)
            stop = self._next_stop()
            self._stop_again |= stop.delivery and stop.signal == signal.SIGSTOP
            if not stop.syscall:
                raise RefusedInjectionError("busy", _uninterruptible(self.pid))
            self._to_signal_stop()
            answer = trampoline.signed(thread.registers()["rax"])
        finally:
            thread.set_signal_mask(own.mask)
            thread.set_registers(own.registers)
        if -4096 < answer < 0:
            raise RefusedInjectionError("failed", f"mmap was refused in pid {self.pid} ({answer}).")
        return answer

    def _way_back(self, own: Context, gadgets: Gadgets) -> dict[str, int]:
        """rip, and with it rsp where a signal frame could be laid below the stack."""
        if gadgets.call is not None and gadgets.sigreturn is not None:
            address, frame = sigframe.build(own, gadgets.sigreturn)
            with contextlib.suppress(OSError):  # no room below the stack
                self._write(address, frame)
                return {"rip": gadgets.call, "rsp": address}
        return {"rip": gadgets.entry}

    def _call(self, own: Context, layout: trampoline.Layout, abandon: bool) -> bool | None:
        """Run the trampoline up to its own system call; False: the queue is full.

        None: it takes its time, and is left to put everything back by itself. Only where the
        thread sleeps, so has changed nothing yet, may the call be given up (``abandon``).
        """
        place = {"rip": layout.start, "rsp": layout.stack, "orig_rax": 2**64 - 1}
        self._thread.set_registers({**own.registers, **place, "eflags": _PLAIN_FLAGS})
        self._thread.set_signal_mask(_ALL_BLOCKED)
        while True:
            self._thread.resume(SYSCALL)
            stop = self._thread.wait(CALL_LIMIT_S)
            if stop is None:
                asleep = _state(self.pid) == "S"
                self._halt()
                if asleep and abandon:
                    raise RefusedInjectionError("busy", _queue_full(self.pid))
                return None
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
        while (stop := self._thread.wait(CALL_LIMIT_S)) and stop.syscall:
            self._thread.resume(CONT)
        if stop is None:
            self._halt()
        else:
            self._stop_again |= stop.delivery and stop.signal == signal.SIGSTOP

    def _next_stop(self) -> Stop:
        stop = self._thread.wait(CALL_LIMIT_S)
        if stop is None:
            self._halt()
            raise RefusedInjectionError("busy", _uninterruptible(self.pid))
        return stop

    def _halt(self) -> None:
        self._thread.interrupt()
        if self._thread.wait(STOP_LIMIT_S) is None:
            raise RefusedInjectionError("failed", f"pid {self.pid} did not come to a stop.")

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


def find_gadgets(pid: int, memory: int) -> Gadgets:
    """What the vdso and libc hold of it. Raises RefusedInjectionError without any ``syscall``."""
    entry = call = sigreturn = None
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        lines = [line.split() for line in file]
    for fields in lines:
        name = fields[5] if len(fields) > 5 else ""
        is_c = "/libc" in name or "/ld-musl" in name
        if fields[1][2] != "x" or not (is_c or name == "[vdso]"):
            continue
        begin, end = (int(part, 16) for part in fields[0].split("-"))
        code = os.pread(memory, min(end - begin, 4 << 20), begin)
        if is_c:
            call = call or _place(code, trampoline.SYSCALL_RET, begin)
            sigreturn = sigreturn or _place(code, sigframe.SIGRETURN, begin)
        else:
            entry = _place(code, trampoline.SYSCALL, begin)
    entry = entry or call
    if entry is None:
        raise RefusedInjectionError("failed", f"No system call instruction found in pid {pid}.")
    return Gadgets(entry, call, sigreturn)


def _place(code: bytes, wanted: bytes, begin: int) -> int | None:
    at = code.find(wanted)
    return begin + at if at >= 0 else None


def _is_ours(line: str, page: int) -> bool:
    # Freed, the place is soon taken by an arena of Python's: that one is not executable. And the
    # kernel joins neighbouring mappings of one kind, so that ours need not begin one.
    span, permissions = line.split(None, 2)[:2]
    begin, end = (int(part, 16) for part in span.split("-"))
    return permissions == "rwxp" and begin <= page < end


def _before_parking(python: Python) -> bool:
    return python.version is not None and python.version < _PARKING


def _state(pid: int) -> str:
    """Letter of the main thread; empty when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return ""


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
