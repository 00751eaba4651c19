"""Commands as a person could type them: POSIX words, and what cannot be seen written out.

Only for showing and copying. What is run is started from a list of words, never through a shell.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from cockpit.model.text import clean

_ESCAPES = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\x1b": r"\e", "\\": r"\\", "'": r"\'"}
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def shell_word(text: str) -> str:
    """One word for a shell. With control or hidden characters it is ``$'a\\nb'``, as bash and zsh
    read it; a byte that is no UTF-8 (a lone surrogate of os.fsdecode) is ``\\xff``."""
    if clean(text) == text:
        return shlex.quote(text)
    return "$'" + "".join(_escaped(character) for character in text) + "'"


def shell_line(
    argv: Sequence[str],
    *,
    cwd: str | None = None,
    environment: Mapping[str, str] | None = None,
    unset: Iterable[str] = (),
) -> str:
    """``cd 'my dir' && env -u A B=1 python train.py``; ``env`` only where something is unset."""
    words = [part for name in unset for part in ("-u", shell_word(name))]
    words = ["env", *words] if words else []
    words += [assignment(name, value) for name, value in (environment or {}).items()]
    words += [shell_word(word) for word in argv]
    line = " ".join(words)
    return line if cwd is None else f"cd {shell_word(cwd)} && {line}"


def assignment(name: str, value: str) -> str:
    """``NAME='a value'``; a name that no shell takes is quoted as a whole."""
    if _PLAIN_NAME.fullmatch(name):
        return f"{name}={shell_word(value)}"
    return shell_word(f"{name}={value}")


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # os.fsdecode of a byte that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if clean(character) == character:
        return character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
