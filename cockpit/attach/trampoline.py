"""The machine code that is put into the target for one pending call: x86-64, Linux.

One anonymous mapping holds all of it, so that neither the user's stack nor any other memory of the
process is written::

    0x0000  code, then the saved registers and the signal mask
    0x1000  the saved XSAVE area (up to 32 KiB; AMX needs 11 KiB)
    0x9000  our stack (64 KiB)
    0x19000 the Python source, ending in a zero byte

It runs twice. At once, on the stopped main thread: Py_AddPendingCall(``later``, source), then the
system call rt_sigprocmask, at whose entry the tracer takes over and puts everything back. If the
tracer is dead by then, the code goes on instead and puts everything back itself: no moment from
the first instruction on depends on the cockpit. Then, when the main thread next runs Python,
``later``: PyRun_SimpleString(source), and munmap of the mapping by a jump to a ``syscall; ret``
elsewhere, whose 0 is the answer of the pending call. What PyRun_SimpleString answers is dropped:
a pending call that answers -1 without an exception kills the user's program (SystemError).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAP_PRIVATE_ANONYMOUS = 0x22
PROT_ALL = 7
SYS_MMAP, SYS_MUNMAP, SYS_RT_SIGPROCMASK, SYS_RESTART = 9, 11, 14, 219
SYSCALL = b"\x0f\x05"
SYSCALL_RET = b"\x0f\x05\xc3"

XSAVE_AT = 0x1000
STACK_AT = 0x9000
SOURCE_AT = 0x19000
XSAVE_MAX = STACK_AT - XSAVE_AT

ERESTART = (-512, -513, -514, -516)
"""ERESTARTSYS, NOINTR, NOHAND, RESTARTBLOCK (include/linux/errno.h)."""

# Encoding number of each register; rsp is loaded last.
_ORDER = "rax rcx rdx rbx rsp rbp rsi rdi r8 r9 r10 r11 r12 r13 r14 r15"
_NUMBERS = {name: number for number, name in enumerate(_ORDER.split())}
_SAVED = [name for name in _NUMBERS if name != "rsp"] + ["rsp", "eflags", "rip"]


@dataclass(frozen=True, slots=True)
class Context:
    """All that makes up a stopped thread."""

    registers: dict[str, int]
    xsave: bytes
    mask: int
    """Blocked signals."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things are, once the mapping's address is known."""

    page: int
    size: int
    start: int
    """First instruction to run on the stopped thread."""
    stack: int
    result: int
    """8 bytes: what Py_AddPendingCall answered."""

    def holds(self, address: int) -> bool:
        """The address lies in our code."""
        return self.page <= address < self.page + XSAVE_AT


class _Code:
    """Bytes with references to data that is placed behind them."""

    def __init__(self, page: int) -> None:
        self.raw = bytearray()
        self.page = page
        self._uses: list[tuple[int, str]] = []

    @property
    def here(self) -> int:
        return self.page + len(self.raw)

    def put(self, raw: bytes) -> None:
        self.raw += raw

    def refer(self, opcode: bytes, name: str) -> None:
        """An instruction whose operand is [rip + distance of the named data]."""
        self.raw += opcode
        self._uses.append((len(self.raw), name))
        self.raw += b"\0\0\0\0"

    def constant(self, register: str, value: int) -> None:
        """movabs register, value."""
        number = _NUMBERS[register]
        self.raw += bytes([0x48 | number >> 3, 0xB8 | number & 7]) + struct.pack("<Q", value)

    def load(self, register: str, name: str) -> None:
        """mov register, [rip + name]."""
        number = _NUMBERS[register]
        self.refer(bytes([0x48 | number >> 3 << 2, 0x8B, (number & 7) << 3 | 5]), name)

    def place(self, places: dict[str, int]) -> None:
        """Fill in the distances."""
        for at, name in self._uses:
            struct.pack_into("<i", self.raw, at, places[name] - (self.page + at + 4))


def size_for(source: bytes) -> int:
    """Bytes of the mapping, whole pages."""
    return (SOURCE_AT + len(source) + 1 + 0xFFF) & ~0xFFF


def build(
    page: int,
    source: bytes,
    addresses: dict[str, int],
    syscall_ret: int | None,
    own: Context,
) -> tuple[Layout, dict[int, bytes]]:
    """Where to start, and what to write at which address.

    ``own`` is what the thread gets back, should we not be there to give it. Without ``syscall_ret``
    the mapping stays behind when the call has run (source and stack: some 200 KiB).
    """
    size = size_for(source)
    code = _Code(page)
    _later(code, page, size, addresses["PyRun_SimpleString"], syscall_ret)
    start = code.here
    _now(code, page, addresses["Py_AddPendingCall"])
    _put_back(code)
    data_at = (len(code.raw) + 15) & ~15
    saved = resumed(own.registers)
    values = {**{name: saved[name] for name in _SAVED}, "mask": own.mask, "result": 2**64 - 1}
    places = {name: page + data_at + 8 * n for n, name in enumerate(values)}
    code.place({**places, "xsave": page + XSAVE_AT})
    code.raw += bytes(data_at - len(code.raw)) + struct.pack(f"<{len(values)}Q", *values.values())
    layout = Layout(page, size, start, page + SOURCE_AT - 64, places["result"])
    return layout, {
        page: bytes(code.raw),
        page + XSAVE_AT: own.xsave,
        page + SOURCE_AT: source + b"\0",
    }


def resumed(registers: dict[str, int]) -> dict[str, int]:
    """The registers with an interrupted system call made ready to start again.

    The kernel does this itself for a traced thread; our own way back has to do it by hand
    (arch_do_signal_or_restart in arch/x86/kernel/signal.c).
    """
    result = signed(registers["rax"])
    if signed(registers["orig_rax"]) < 0 or result not in ERESTART:
        return registers
    again = SYS_RESTART if result == -516 else registers["orig_rax"]
    return {**registers, "rax": again, "rip": registers["rip"] - len(SYSCALL)}


def signed(value: int) -> int:
    """A register as a signed number."""
    return value - 2**64 if value >> 63 else value


def _later(code: _Code, page: int, size: int, run: int, syscall_ret: int | None) -> None:
    code.put(b"\x53")  # push rbx: aligns the stack
    code.constant("rdi", page + SOURCE_AT)
    code.constant("rax", run)
    code.put(b"\xff\xd0\x5b")  # call rax; pop rbx
    if syscall_ret is None:
        code.put(b"\x31\xc0\xc3")  # xor eax, eax; ret
        return
    code.constant("rdi", page)
    code.constant("rsi", size)
    code.constant("rax", SYS_MUNMAP)
    code.constant("rdx", syscall_ret)
    code.put(b"\xff\xe2")  # jmp rdx


def _now(code: _Code, page: int, add: int) -> None:
    code.constant("rdi", page)  # later() stands at the very beginning
    code.constant("rsi", page + SOURCE_AT)
    code.constant("rax", add)
    code.put(b"\xff\xd0")  # call rax
    code.refer(b"\x48\x89\x05", "result")  # mov [result], rax
    code.constant("rax", SYS_RT_SIGPROCMASK)
    code.constant("rdi", 2)  # SIG_SETMASK
    code.refer(b"\x48\x8d\x35", "mask")  # lea rsi, [mask]
    code.constant("rdx", 0)
    code.constant("r10", 8)
    code.put(SYSCALL)


def _put_back(code: _Code) -> None:
    code.constant("rax", 2**64 - 1)
    code.constant("rdx", 2**64 - 1)
    code.refer(b"\x48\x0f\xae\x2d", "xsave")  # xrstor64 [xsave]
    for name in _SAVED[:-2]:
        code.load(name, name)
    # The flags go over the user's stack, below its red zone.
    code.put(b"\x48\x8d\xa4\x24" + struct.pack("<i", -256))  # lea rsp, [rsp-256]
    code.refer(b"\xff\x35", "eflags")  # push [eflags]
    code.put(b"\x9d\x48\x8d\xa4\x24" + struct.pack("<i", 256))  # popfq; lea rsp, [rsp+256]
    code.refer(b"\xff\x25", "rip")  # jmp [rip]
