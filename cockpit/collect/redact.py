"""Free text (logs, findings, the journal) without secrets, and without whose it is.

Uses the stand-ins of a :class:`Scrubber`, so that ``user1`` of a log is ``user1`` of the snapshots.
Every text of a bundle that is no snapshot goes through it. Numbers, versions, errors and the names
of programs and source files stay: a ticket needs them.
"""

from __future__ import annotations

import os
import pwd
import re
import socket
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from cockpit.collect.scrub import HOST_NAME, Scrubber
from cockpit.model.secret import HIDDEN, hide, hide_lines, is_secret_name
from cockpit.model.snapshot import Snapshot

_PATH = re.compile(r"(?:(?<![\w./~-])(?:~[\w.-]*)?|(?<=[\s'\"]-[IL]))(?:/[\w.+@%=,-]+)+/?")
_URL = re.compile(r"\b([A-Za-z][\w+.-]*)://((?:<hidden>|[^\s'\"<>()\[\]{}|,;])*)")
_PUBLIC = re.compile(r"(?:[\w-]+\.)*(?:pytorch|nvidia|python|pypi)\.(?:org|com)(?:[:/?#]|$)")
"""Hosts of documentation and packages: whose a log is they do not say."""
_PORT = re.compile(r"(?<=[\w\]]):\d{1,5}(?=/|$)")
_PLAIN_PLACES = re.compile(
    r"/(?:usr|lib|lib64|bin|sbin|proc|sys|dev|etc|boot)(?:/|$)|/opt/(?:nvidia|cuda)|/workspace/?$"
)
_INSTALLED = re.compile(r"/(?:site-packages|dist-packages|lib/python3[\d.]*)/.*")
_SOURCE = re.compile(r"[\w.+-]+\.(?:py|pyx|so(?:\.[\d.]+)?|cu|cuh|cpp|cc|c|h|hpp|sh|slurm|ipynb)")
_MAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b(?::[\w~./-]*\w)?")
"""Or a place of ssh or git behind it."""
_IPV4 = re.compile(r"(?<![\w.=-])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9a-fA-F]{1,4}:){4,7}[0-9a-fA-F]{1,4}(?![\w:.])")
_MAC = re.compile(r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b")
_UUID = re.compile(r"\b(?:GPU-|MIG-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_NODE = re.compile(r"^([A-Za-z][\w.-]*)(?=:\d+:\d+ \[\d+\])")
"""The host in front of each line of NCCL."""
_LOCAL_NAME = re.compile(
    r"\b[\w-]+(?:\.[\w-]+)*\.(?:local|internal|intra|lan|corp|home|localdomain|cluster)\b",
    re.IGNORECASE,
)
_DOMAIN = re.compile(rf"\b{HOST_NAME}(?:\.[A-Za-z][\w-]*)+")
_PERSONS = frozenset(("user", "sudo_user", "owner"))
_LOCAL = re.compile(r"(?:localhost|127\.0\.0\.1|0\.0\.0\.0)(?::\d{1,5})?/?$")
_HARMLESS_ADDRESSES = frozenset(("127.0.0.1", "0.0.0.0"))


class Redactor:
    """One for a whole bundle: it knows the names of all its snapshots."""

    def __init__(self, scrubber: Scrubber, snapshots: Iterable[Snapshot]) -> None:
        self._scrubber = scrubber
        self.masked: Counter[str] = Counter()
        """How often: ``secret``, ``name``, ``path``, ``address``."""
        self.removed: set[str] = set()
        """What must not be in any text: secrets of six characters and more."""
        self._learnt: re.Pattern[str] = re.compile(r"(?!)")
        self._known = dict(_known(scrubber, snapshots))
        longest_first = sorted(self._known, key=len, reverse=True)
        either = "|".join(map(re.escape, longest_first)) or r"(?!)"
        self._name = re.compile(rf"(?<![A-Za-z0-9])(?:{either})(?![A-Za-z0-9])", re.IGNORECASE)

    def learn(self) -> None:
        """After a first pass: a secret that was seen by its name is taken out without it, too."""
        longest_first = sorted(self.removed, key=len, reverse=True)
        self._learnt = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self.masked.clear()

    def line(self, text: str) -> str:
        """One line of text from anywhere."""
        return self._whose(hide(text, self._found))

    def lines(self, lines: Iterable[str]) -> tuple[str, ...]:
        """A log; private keys are taken out as a whole."""
        return tuple(self._whose(line) for line in hide_lines(lines, self._found))

    def left_in(self, value: Any) -> bool:
        """A removed secret is still in one of its texts."""
        if isinstance(value, dict):
            return any(self.left_in(one) for one in value.values())
        if isinstance(value, list | tuple):
            return any(map(self.left_in, value))
        return isinstance(value, str) and any(secret in value for secret in self.removed)

    def value(self, value: Any, name: str = "") -> Any:
        """JSON: every text in it; whole where its key is a secret's or a person's."""
        if name == "command" and isinstance(value, str | list | tuple):
            return self._command(value)
        if isinstance(value, dict):
            return {self._key(str(key)): self.value(one, str(key)) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(one, name) for one in value]
        if not isinstance(value, str):
            return value
        return self._text(value, name)

    def _key(self, key: str) -> str:
        """Names of fields stay: what reads the JSON again looks for them."""
        return key if re.fullmatch(r"[A-Za-z_]{1,40}", key) else self.line(key)

    def _text(self, text: str, name: str) -> str:
        if text and is_secret_name(name):
            self._found(text)
            return HIDDEN
        if name in _PERSONS and text not in ("", "root"):
            return self._counted("name", self._stand_in("user", text))
        return "\n".join(self.lines(text.split("\n")))

    def _command(self, command: str | list[str] | tuple[str, ...]) -> str | list[str]:
        """As in the snapshots: the program and its options, no values."""
        words = command.split() if isinstance(command, str) else [str(word) for word in command]
        told = [self.line(word) for word in self._scrubber.command(tuple(words))]
        return " ".join(told) if isinstance(command, str) else told

    def _found(self, secret: str) -> None:
        self.masked["secret"] += 1
        if len(secret) >= 6:
            self.removed.add(secret)

    def _whose(self, text: str) -> str:
        text = self._learnt.sub(HIDDEN, text)
        text = _NODE.sub(lambda m: self._host(m[1]), text)
        text = _URL.sub(lambda m: self._url(m), text)
        text = _MAIL.sub(lambda m: self._counted("address", self._stand_in("mail", m[0])), text)
        text = _PATH.sub(lambda m: self._path(m[0]), text)
        text = _LOCAL_NAME.sub(lambda m: self._host(m[0]), text)
        text = _UUID.sub(lambda m: self._counted("name", self._uuid(m[0])), text)
        for address in (_MAC, _IPV6, _IPV4):
            text = address.sub(lambda m: self._address(m[0]), text)
        text = self._name.sub(lambda m: self._counted("name", self._known[m[0].lower()]), text)
        return _DOMAIN.sub(HOST_NAME, text)

    def _counted(self, kind: str, stand_in: str) -> str:
        self.masked[kind] += 1
        return stand_in

    def _stand_in(self, kind: str, name: str) -> str:
        return self._scrubber.stand_in(kind, name)

    def _host(self, name: str) -> str:
        known = self._known.get(name.lower())
        return self._counted("name", known or self._stand_in("host", name.lower()))

    def _uuid(self, uuid: str) -> str:
        return self._scrubber.uuid(uuid) or HIDDEN

    def _address(self, address: str) -> str:
        if address in _HARMLESS_ADDRESSES:
            return address
        return self._counted("address", self._stand_in("ip", address))

    def _url(self, url: re.Match[str]) -> str:
        """What kind of place it is, and the port; neither server or bucket nor what is in it."""
        place = url[2]
        if not place or _PUBLIC.match(place) or _LOCAL.match(place):
            return url[0]
        server, slash, _ = place.partition("/")
        port = _PORT.search(server)
        stand_in = self._stand_in("url", place)
        return self._counted(
            "address", f"{url[1]}://{stand_in}{port[0] if port else ''}{'/…' if slash else ''}"
        )

    def _path(self, path: str) -> str:
        """Programs of the system stay; of others what tells which source file it is."""
        if path.startswith("/") and _PLAIN_PLACES.match(path):
            return path
        if path.count("/") < 2 and not path.startswith("~"):
            return path
        installed = _INSTALLED.search(path)
        if installed:
            return self._counted("path", "…" + installed[0])
        name = path.rstrip("/").rpartition("/")[2]
        folder = self._stand_in("dir", os.path.dirname(path.rstrip("/")))
        kept = name if _SOURCE.fullmatch(name) else self._stand_in("name", name)
        return self._counted("path", f"/{folder}/{kept}")


def _known(scrubber: Scrubber, snapshots: Iterable[Snapshot]) -> Iterable[tuple[str, str]]:
    """Lower-case names of people and machines → stand-ins."""
    for name in _own_users():
        yield name.lower(), scrubber.stand_in("user", name)
    hosts = {socket.gethostname(), os.environ.get("HOSTNAME", "")}
    for snapshot in snapshots:
        hosts.add(snapshot.host.name or "")
        for process in snapshot.processes:
            yield from _of_process(scrubber, process.user, process.slurm_job, process.pod)
    for host in hosts:
        for name in {host, host.partition(".")[0]}:
            if len(name) > 1 and name.lower() != "localhost":
                yield name.lower(), HOST_NAME


def _of_process(scrubber: Scrubber, *names: str | None) -> Iterable[tuple[str, str]]:
    for kind, name in zip(("user", "job", "pod"), names, strict=True):
        if name is not None and len(name) > 1 and name != "root" and not _is_number(name):
            yield name.lower(), scrubber.stand_in(kind, name)


def _is_number(name: str) -> bool:
    """A short one is everywhere in a log: job 12 and step 12."""
    return name.isdigit() and len(name) < 6


def _own_users() -> set[str]:
    names = {os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")}
    with suppress(KeyError):  # a container's number without an account has no name to hide
        entry = pwd.getpwuid(os.getuid())
        names |= {entry.pw_name, os.path.basename(entry.pw_dir)}
    return {name for name in names if len(name) > 1 and name != "root"}
