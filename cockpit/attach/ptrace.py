"""One traced thread: ptrace(2) by ctypes, x86-64. What is done with it stands in ``inject_ptrace``.

All calls of one Tracee must come from the thread that made it: the kernel binds them to it. That
thread has SIGCHLD blocked from then on: it should be the only one of its process.
PTRACE_O_EXITKILL is never set: when the tracer dies, the kernel detaches and the thread runs on.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import time
from dataclasses import dataclass

GETREGS, SETREGS, CONT, DETACH, SYSCALL = 12, 13, 7, 17, 24
SEIZE, INTERRUPT, GETREGSET, SETREGSET = 0x4206, 0x4207, 0x4204, 0x4205
GETSIGMASK, SETSIGMASK, GET_RSEQ = 0x420A, 0x420B, 0x420F
O_TRACESYSGOOD = 1
NT_X86_XSTATE = 0x202
EVENT_STOP = 128

_NAMES = """
    r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss
    fs_base gs_base ds es fs gs
"""
REGISTERS = tuple(_NAMES.split())
"""struct user_regs_struct of asm/user_64.h."""

_WALL = 0x40000000
_SIGCHLD = frozenset({signal.SIGCHLD})
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class _Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in REGISTERS]


class _Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class EndedError(Exception):
    """The process ended while it was traced."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Why the thread stands still."""

    signal: int
    """SIGTRAP for our own stops; otherwise a signal that was about to be delivered."""
    event: int
    """EVENT_STOP: by PTRACE_INTERRUPT, or in a group stop (SIGSTOP and its kin)."""
    syscall: bool
    """At the entry or the exit of a system call."""

    @property
    def group(self) -> bool:
        """The whole process has been stopped by a signal."""
        return self.event == EVENT_STOP and self.signal != signal.SIGTRAP

    @property
    def delivery(self) -> bool:
        """A signal waits to be delivered; breakpoints look the same, with SIGTRAP."""
        return self.event == 0 and not self.syscall


class Tracee:
    """A seized thread. Seizing alone stops nothing. Raises OSError (EPERM, ESRCH)."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._registers = _Registers()
        self._buffer = ctypes.create_string_buffer(1 << 16)
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGCHLD)
        self._request(SEIZE, 0, O_TRACESYSGOOD)

    def interrupt(self) -> None:
        """Ask for a stop; :meth:`wait` says when it is there."""
        self._request(INTERRUPT)

    def resume(self, how: int = CONT, number: int = 0) -> None:
        """Run on: CONT or SYSCALL, delivering a signal or not."""
        self._request(how, 0, number)

    def detach(self, number: int = 0) -> None:
        """Let go; the thread must stand still."""
        self._request(DETACH, 0, number)

    def wait(self, timeout_s: float) -> Stop | None:
        """The next stop; None when it does not come in time. Raises EndedError.

        The kernel tells the tracer of each stop by SIGCHLD. Sleeping for that gives way to nobody:
        on a loaded machine each sched_yield of a loop cost a whole slice (median 14 ms for 0.5).
        """
        deadline = time.monotonic() + timeout_s
        while True:
            pid, status = os.waitpid(self.pid, _WALL | os.WNOHANG)
            if pid:
                return _stop(status)
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            signal.sigtimedwait(_SIGCHLD, left)

    def registers(self) -> dict[str, int]:
        """All general registers."""
        self._request(GETREGS, 0, ctypes.addressof(self._registers))
        return {name: getattr(self._registers, name) for name in REGISTERS}

    def set_registers(self, values: dict[str, int]) -> None:
        """All at once."""
        for name in REGISTERS:
            setattr(self._registers, name, values[name])
        self._request(SETREGS, 0, ctypes.addressof(self._registers))

    def xsave(self) -> bytes:
        """Floating point, vector and tile registers, as XSAVE lays them out."""
        vector = _Vector(ctypes.addressof(self._buffer), len(self._buffer))
        self._request(GETREGSET, NT_X86_XSTATE, ctypes.addressof(vector))
        return self._buffer.raw[: vector.length]

    def set_xsave(self, raw: bytes) -> None:
        """Put back what :meth:`xsave` gave."""
        ctypes.memmove(self._buffer, raw, len(raw))
        vector = _Vector(ctypes.addressof(self._buffer), len(raw))
        self._request(SETREGSET, NT_X86_XSTATE, ctypes.addressof(vector))

    def signal_mask(self) -> int:
        """Blocked signals; bit 0 is signal 1."""
        self._request(GETSIGMASK, 8, ctypes.addressof(self._buffer))
        return int.from_bytes(self._buffer.raw[:8], "little")

    def set_signal_mask(self, mask: int) -> None:
        """Replaces it."""
        ctypes.memmove(self._buffer, mask.to_bytes(8, "little"), 8)
        self._request(SETSIGMASK, 8, ctypes.addressof(self._buffer))

    def rseq_address(self) -> int:
        """Where the thread's struct rseq is; 0: none, or a kernel before 5.13."""
        try:
            self._request(GET_RSEQ, 24, ctypes.addressof(self._buffer))
        except OSError:
            return 0
        return int.from_bytes(self._buffer.raw[:8], "little")

    def _request(self, request: int, address: int = 0, data: int = 0) -> None:
        if _libc.ptrace(request, self.pid, address, data) == -1:
            number = ctypes.get_errno()
            if number == errno.ESRCH and not os.path.exists(f"/proc/{self.pid}"):
                raise EndedError
            raise OSError(number, os.strerror(number), f"ptrace {request:#x}")


def _stop(status: int) -> Stop:
    if not os.WIFSTOPPED(status):
        raise EndedError
    number = status >> 8 & 0xFF
    return Stop(number & 0x7F, status >> 16 & 0xFF, number == signal.SIGTRAP | 0x80)
