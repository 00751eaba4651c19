"""One file of the user's source: may it be changed, what is in it, and writing it safely.

A new content is written beside the file and renamed over it, so that nobody ever reads half of it.
In place it is written where a rename would change more than the content: the file has other names
(hard links), its folder is not writable, it is a mount point, or its group or attributes cannot be
given to a new file. The backup is made before either.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import re
import secrets
import stat
import tokenize
import warnings
from dataclasses import dataclass

from cockpit.errors import RefusedError
from cockpit.model.text import clean

MAX_BYTES = 1 << 20
"""Larger files are data or generated; 100 kB take 2 s to parse."""
_INSTALLED = re.compile(r"/(?:site-packages|dist-packages|lib(?:64)?/python3(?:\.\d+)?)/")
_BOM = b"\xef\xbb\xbf"
_KEPT_ERRORS = frozenset({errno.EBUSY, errno.EXDEV, errno.EPERM, errno.EACCES})
"""Of a rename: a mount point, or a folder's rules. Writing in place is still possible."""


@dataclass(frozen=True)
class SourceFile:
    """What was read at one moment."""

    path: str
    """The real one: symbolic links followed."""
    raw: bytes
    status: os.stat_result
    text: str
    """Without a byte order mark, with the line ends as they are."""
    encoding: str
    has_mark: bool

    @property
    def name(self) -> str:
        """Base name: what the user types to confirm."""
        return os.path.basename(self.path)

    @property
    def sha256(self) -> str:
        """Of the bytes."""
        return digest(self.raw)

    def bytes_of(self, text: str) -> bytes:
        """Another text in this file's encoding. Raises UnicodeEncodeError."""
        return (_BOM if self.has_mark else b"") + text.encode(self.encoding)


def digest(raw: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(raw).hexdigest()


def read(path: str) -> SourceFile:
    """Raises RefusedError with a sentence: not there, not this user's, installed, no text …"""
    try:
        real = os.path.realpath(path)
        raw, status = read_bytes(real)
        _refuse_foreign(path, real, status)
    except (OSError, ValueError) as error:  # its folder is gone; a NUL in the name
        raise RefusedError(f"{clean(path)} cannot be read: {clean(str(error))}") from None
    encoding, text = _decoded(real, raw)
    return SourceFile(real, raw, status, text, encoding, raw.startswith(_BOM))


def read_bytes(real: str) -> tuple[bytes, os.stat_result]:
    """The content of a regular file. Raises RefusedError."""
    shown = clean(real)
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise RefusedError(f"{shown} cannot be read: {error.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise RefusedError(f"{shown} is not a regular file")
        if status.st_size > MAX_BYTES:
            raise RefusedError(f"{shown} is larger than 1 MiB: change it by hand")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(), status
    finally:
        os.close(descriptor)


def _refuse_foreign(path: str, real: str, status: os.stat_result) -> None:
    user, shown = os.geteuid(), clean(real)
    if status.st_uid != user:
        raise RefusedError(f"{shown} belongs to another user: ask the owner to change it")
    folder = os.path.dirname(real)
    if user == 0 and os.stat(folder).st_uid != 0:
        raise RefusedError(f"the folder of {shown} belongs to another user: not changed as root")
    if any(_INSTALLED.search(one) for one in (os.path.abspath(path), real)):
        raise RefusedError(
            f"{shown} belongs to an installed package: change the own code that calls it"
        )
    if os.statvfs(real).f_flag & os.ST_RDONLY:
        raise RefusedError(f"{shown} is on a file system that is mounted read-only")
    if not os.access(real, os.W_OK, effective_ids=True):
        raise RefusedError(f"{shown} is not writable: chmod u+w it first if that is not on purpose")


def _decoded(real: str, raw: bytes) -> tuple[str, str]:
    """(encoding without a mark, text). Raises RefusedError."""
    try:
        found, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        encoding = "utf-8" if found == "utf-8-sig" else found
        body = raw.removeprefix(_BOM)
        text = body.decode(encoding)
        if text.encode(encoding) == body and "\0" not in text:
            return encoding, text
    except (SyntaxError, UnicodeError, LookupError):
        pass  # said below, for all of them alike
    raise RefusedError(f"{clean(real)} is not text in the encoding that it declares")


def syntax_error(raw: bytes, path: str) -> str | None:
    """``line 3: invalid syntax``; None: it compiles with the cockpit's own Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(raw, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"line {error.lineno}: {clean(error.msg or 'invalid syntax')}"
    except (ValueError, RecursionError, MemoryError) as error:
        return clean(str(error))
    return None


def write(source: SourceFile, raw: bytes) -> bool:
    """Replace the content; False: it was written in place (see the head of this module).

    Raises RefusedError when the file is not any more what was read, or cannot be written; then it
    has its old content.
    """
    folder = os.open(os.path.dirname(source.path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _check_unchanged(source, folder)
        if source.status.st_nlink == 1 and _renamed(source, raw, folder):
            return True
        _write_in_place(source, raw, folder)
        return False
    finally:
        os.close(folder)


def _check_unchanged(source: SourceFile, folder: int) -> None:
    try:
        now = os.stat(source.name, dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        raise RefusedError(f"{clean(source.path)} is gone: {error.strerror}") from None
    then = source.status
    if (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns) != (
        *(then.st_dev, then.st_ino, then.st_size, then.st_mtime_ns),
    ):
        raise RefusedError(f"{clean(source.path)} was changed meanwhile: look at it anew")


def _renamed(source: SourceFile, raw: bytes, folder: int) -> bool:
    """False: not possible without changing more than the content; nothing was changed."""
    name = f".{source.name[:200]}.{secrets.token_hex(4)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    except OSError:
        return False
    try:
        with open(descriptor, "wb") as file:
            file.write(raw)
            file.flush()
            _copy_attributes(source, descriptor)
            os.fsync(descriptor)
        os.rename(name, source.name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        if error.errno in _KEPT_ERRORS:
            return False
        raise RefusedError(f"{clean(source.path)} is as it was: {error.strerror}") from None
    with contextlib.suppress(OSError):  # the name leads to the new content, on disk or not yet
        os.fsync(folder)
    return True


def _copy_attributes(source: SourceFile, descriptor: int) -> None:
    """Owner, group, mode, extended attributes (access lists too). Raises OSError."""
    os.fchown(descriptor, source.status.st_uid, source.status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(source.status.st_mode))
    for name in os.listxattr(source.path):
        if not name.startswith("security."):
            os.setxattr(descriptor, name, os.getxattr(source.path, name))


def _write_in_place(source: SourceFile, raw: bytes, folder: int) -> None:
    try:
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(source.name, flags, dir_fd=folder)
    except OSError as error:
        raise RefusedError(f"{clean(source.path)} cannot be written: {error.strerror}") from None
    try:
        opened = os.fstat(descriptor)
        if (opened.st_dev, opened.st_ino) != (source.status.st_dev, source.status.st_ino):
            raise RefusedError(f"{clean(source.path)} was changed meanwhile: look at it anew")
        _overwrite(descriptor, raw)
    except OSError as error:
        _overwrite(descriptor, source.raw)  # its blocks are still there: no space is needed
        raise RefusedError(f"{clean(source.path)} is as it was: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _overwrite(descriptor: int, raw: bytes) -> None:
    done = 0
    while done < len(raw):
        done += os.pwrite(descriptor, raw[done:], done)
    os.ftruncate(descriptor, len(raw))
    os.fsync(descriptor)
