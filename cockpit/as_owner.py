"""A user's program runs as that user: with his uid, gid and groups, never as root in his stead.

A base module: the rooms that start a job's interpreter share it. Nothing here waits for a child.
"""

from __future__ import annotations

import errno
import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cockpit import procfs
from cockpit.procfs import Gap


class Owner(NamedTuple):
    """Whom a program belongs to."""

    uid: int
    gid: int
    groups: tuple[int, ...]


def ourselves() -> Owner:
    """Effective ids."""
    return Owner(os.geteuid(), os.getegid(), tuple(os.getgroups()))


def of_process(pid: int, proc: str = "/proc") -> Owner | None:
    """None: gone, hidden, or not running as one user alone (real, effective and saved differ)."""
    raw = procfs.read_long(f"{proc}/{pid}/status", 1 << 20)
    if isinstance(raw, Gap):
        return None
    lines = (line.partition(b":") for line in raw.splitlines())
    numbers = {
        name: tuple(int(word) for word in rest.split())
        for name, _, rest in lines
        if name in (b"Uid", b"Gid", b"Groups")
    }
    uids, gids = set(numbers.get(b"Uid", ())), set(numbers.get(b"Gid", ()))
    if len(uids) != 1 or len(gids) != 1:
        return None
    return Owner(uids.pop(), gids.pop(), numbers.get(b"Groups", ()))


def of_account(uid: int) -> Owner | None:
    """As a login would set it; None: no account has this number."""
    try:
        account = pwd.getpwuid(uid)
    except KeyError:
        return None
    groups = tuple(os.getgrouplist(account.pw_name, account.pw_gid))
    return Owner(uid, account.pw_gid, groups)


def may_run_as(owner: Owner) -> bool:
    """Root may become anybody; others are themselves."""
    return os.geteuid() in (0, owner.uid)


def start(
    argv: Sequence[str],
    owner: Owner,
    *,
    environment: Mapping[str, str],
    cwd: str = "/",
    stderr: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """A child in a session of its own with pipes at stdin and stdout. Raises OSError.

    PermissionError: it would have to run as somebody else than its owner.
    """
    if not may_run_as(owner):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
    other = os.geteuid() == 0 and (owner.uid, owner.gid) != (0, os.getegid())
    return subprocess.Popen(
        list(argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        cwd=cwd,
        env=dict(environment),
        start_new_session=True,
        umask=0o077,
        user=owner.uid if other else None,
        group=owner.gid if other else None,
        extra_groups=owner.groups if other else None,
    )
