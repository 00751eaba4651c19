"""A signal frame below a thread's stack: its way back by rt_sigreturn, x86-64 Linux.

Only for the case that the tracer dies while the thread is lent for a system call. Layouts: struct
rt_sigframe of arch/x86/include/asm/sigframe.h, ucontext and sigcontext_64 of uapi/asm.
"""

from __future__ import annotations

import struct

from cockpit.attach.trampoline import ERESTART, Context, signed

SIGRETURN = b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05"
"""mov rax, 15; syscall: glibc's and musl's __restore_rt."""

_RED_ZONE = 128
_INFO_BYTES = 128
_UC_FLAGS = 7  # extended state, ss is valid, restore ss strictly
_KEEP_ALTERNATE_STACK = 0xFF  # a mode that sigaltstack refuses: the thread keeps its own
_MAGIC_1, _MAGIC_2 = 0x46505853, 0x46505845
_SOFTWARE_AT, _FEATURES_AT = 464, 512
_TILE_DATA = 1 << 18
_WITHOUT_TILES = 2816
"""Size of the state of a thread that never asked for AMX (2,696 where the CPU has none)."""
_EINTR = 4
_ORDER = "r8 r9 r10 r11 r12 r13 r14 r15 rdi rsi rbp rbx rdx rax rcx rsp rip eflags"


def build(own: Context, sigreturn: int) -> tuple[int, bytes]:
    """Where to write which bytes: the stack pointer of a ``ret`` that leads back."""
    state = _state(own.xsave)
    # A state must lie on 64 bytes; a frame on 16, less the 8 of the address that ret takes away.
    state_at = (own.registers["rsp"] - _RED_ZONE - len(state)) & ~63
    head = struct.pack("<QQQQiiQ", sigreturn, _UC_FLAGS, 0, 0, _KEEP_ALTERNATE_STACK, 0, 0)
    registers = _returning(own.registers)
    context = struct.pack("<18Q", *(registers[name] for name in _ORDER.split()))
    context += struct.pack("<HHHH", registers["cs"], 0, 0, registers["ss"])
    context += struct.pack("<4QQ8Q", 0, 0, 0, 0, state_at, *[0] * 8)
    frame = head + context + struct.pack("<Q", own.mask) + bytes(_INFO_BYTES)
    address = ((state_at - len(frame)) & ~15) - 8
    return address, frame.ljust(state_at - address, b"\0") + state


def _returning(registers: dict[str, int]) -> dict[str, int]:
    """An interrupted system call starts again, or returns EINTR where that needs kernel state."""
    result = signed(registers["rax"])
    if signed(registers["orig_rax"]) < 0 or result not in ERESTART:
        return registers
    if result == ERESTART[3]:  # rt_sigreturn forgets the restart block
        return {**registers, "rax": 2**64 - _EINTR}
    return {**registers, "rax": registers["orig_rax"], "rip": registers["rip"] - 2}


def _state(xsave: bytes) -> bytes:
    (features,) = struct.unpack_from("<Q", xsave, _FEATURES_AT)
    (mask,) = struct.unpack_from("<Q", xsave, _SOFTWARE_AT)
    if not features & _TILE_DATA:
        xsave, mask = xsave[:_WITHOUT_TILES], mask & ~_TILE_DATA
    software = struct.pack("<IIQI", _MAGIC_1, len(xsave) + 4, mask, len(xsave)).ljust(48, b"\0")
    marked = xsave[:_SOFTWARE_AT] + software + xsave[_SOFTWARE_AT + 48 :]
    return marked + struct.pack("<I", _MAGIC_2)
