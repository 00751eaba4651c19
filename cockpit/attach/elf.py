"""Where a dynamic symbol lies in an ELF file: 64-bit little-endian, what CPython exports.

Reads section headers (.dynsym) and program headers, nothing else. 4,000 symbols take about 2 ms.
Sizes are capped: the file may be anyone's.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass
from typing import BinaryIO

EM_X86_64 = 62
EM_AARCH64 = 183
ET_DYN = 3

_CAP_BYTES = 64 << 20
_PT_LOAD, _PF_X, _SHT_DYNSYM = 1, 1, 11
_SYMBOL = struct.Struct("<IBBHQQ")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")


class NotElfError(Exception):
    """Not a 64-bit little-endian ELF file with a dynamic symbol table."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One PT_LOAD."""

    offset: int
    address: int
    file_bytes: int
    executable: bool


@dataclass(frozen=True, slots=True)
class Image:
    """The symbols that were asked for and how the file is laid out in memory."""

    machine: int
    relocatable: bool
    """ET_DYN: addresses count from where it was mapped (libraries, PIE)."""
    segments: tuple[Segment, ...]
    symbols: dict[str, int]
    """Name → address as the file has it."""

    def bias(self, mapped_at: int) -> int:
        """What to add to the file's addresses, when its lowest page lies at ``mapped_at``."""
        if not self.relocatable:
            return 0
        return mapped_at - (min(segment.address for segment in self.segments) & ~0xFFF)

    def offset_of(self, address: int) -> int | None:
        """Where in the file the bytes of an address are; None for what has none (.bss)."""
        for segment in self.segments:
            if segment.address <= address < segment.address + segment.file_bytes:
                return address - segment.address + segment.offset
        return None


def read_image(file: BinaryIO, wanted: Collection[str]) -> Image:
    """The layout, and those of the wanted symbols that are defined. Raises NotElfError, OSError."""
    header = _piece(file, 0, 64)
    if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
        raise NotElfError("not a 64-bit little-endian ELF file")
    kind, machine = struct.unpack_from("<HH", header, 16)
    programs_at, sections_at = struct.unpack_from("<QQ", header, 32)
    program_size, programs, section_size, sections = struct.unpack_from("<HHHH", header, 54)
    if program_size != _PROGRAM.size or section_size not in (0, _SECTION.size):
        raise NotElfError("headers of an unknown size")
    segments = _segments(_piece(file, programs_at, programs * program_size))
    table = list(_SECTION.iter_unpack(_piece(file, sections_at, sections * section_size)))
    symbols: dict[str, int] = {}
    for section in table:
        if section[1] == _SHT_DYNSYM and section[6] < len(table):
            names = table[section[6]]
            symbols |= _symbols(
                _piece(file, section[4], section[5]), _piece(file, names[4], names[5]), wanted
            )
    if not segments:
        raise NotElfError("nothing to load in it")
    return Image(machine, kind == ET_DYN, segments, symbols)


def _segments(raw: bytes) -> tuple[Segment, ...]:
    entries = _PROGRAM.iter_unpack(raw)
    return tuple(
        Segment(offset, address, file_bytes, bool(flags & _PF_X))
        for kind, flags, offset, address, _, file_bytes, _, _ in entries
        if kind == _PT_LOAD
    )


def _symbols(raw: bytes, names: bytes, wanted: Collection[str]) -> dict[str, int]:
    # The few places of the wanted names are found first: comparing 4,000 numbers is cheap,
    # decoding 4,000 names is not.
    places = {}
    for name in wanted:
        text = name.encode() + b"\0"
        at = names.find(b"\0" + text)
        while at >= 0:
            places[at + 1] = name
            at = names.find(b"\0" + text, at + 1)
    whole = raw[: len(raw) // _SYMBOL.size * _SYMBOL.size]
    return {
        places[name]: value
        for name, _, _, section, value, _ in _SYMBOL.iter_unpack(whole)
        if section and name in places
    }


def _piece(file: BinaryIO, offset: int, size: int) -> bytes:
    if size > _CAP_BYTES or offset > 1 << 40:
        raise NotElfError("sizes that cannot be true")
    file.seek(offset)
    raw = file.read(size)
    if len(raw) != size:
        raise NotElfError("cut short")
    return raw
