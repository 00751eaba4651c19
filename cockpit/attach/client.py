"""The cockpit's end of the agent's protocol: NDJSON over a private Unix socket.

One Client is one connection and belongs to one thread; ``close`` may come from any. Everything has
a deadline. What comes back is foreign: sizes are capped, peers are checked, texts are cleaned.

    AgentError            the agent says no, or something else is wrong with it
    ├── NoAnswerError     nothing came in time
    ├── NotTrustedError   somebody else serves the socket
    └── EndedError        the process is gone, or closed the connection
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any

import msgspec

from cockpit.agent.agent import MAX_REQUEST_BYTES, PROTOCOL_VERSION
from cockpit.errors import CockpitError
from cockpit.model.text import clean

MAX_REPLY_BYTES = 32 << 20
"""A segment map of 4,000 segments is about 4 MB."""
CONNECT_LIMIT_S = 2.0
ANSWER_LIMIT_S = 2.0
_SENTENCE_MAX = 400


class AgentError(CockpitError):
    """``code`` is the agent's (no_step, bad_request, busy, …), or ours (bad_reply)."""

    def __init__(self, sentence: str, code: str = "failed") -> None:
        super().__init__(sentence)
        self.code = code


class NoAnswerError(AgentError):
    """Nothing came in time: the GIL is held, or the process is stopped."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, "no_answer")


class NotTrustedError(AgentError):
    """The socket is served by another process than the one that was meant."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, "not_trusted")


class EndedError(AgentError):
    """Nobody listens any more. ``refused``: the socket file is there, its process is not."""

    exit_code = 5

    def __init__(self, sentence: str, refused: bool = False) -> None:
        super().__init__(sentence, "ended")
        self.refused = refused


class Reply(msgspec.Struct, frozen=True):
    """One line from the agent. ``code`` and ``error`` are set when ``ok`` is false."""

    v: int
    id: int | None
    ok: bool
    data: dict[str, Any] | None = None
    code: str | None = None
    error: str | None = None
    stream: bool = False


_REPLY = msgspec.json.Decoder(Reply)


class Client:
    """A connection to the agent of one process."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.pid = pid
        self._socket = connection
        self._buffer = bytearray()
        self._searched = 0
        self._last_id = 0

    @classmethod
    def connect(cls, pid: int, path: str, limit_s: float = CONNECT_LIMIT_S) -> Client:
        """Raises AgentError: NotTrustedError when another process than ``pid`` serves the socket.

        ``path`` may be longer than the 107 bytes of an address: its directory is opened, and the
        address goes through /proc/self/fd.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            _connect(connection, path, limit_s)
            _check_peer(connection, pid)
        except (AgentError, OSError) as error:
            connection.close()
            raise _said(error, pid) from error
        return cls(connection, pid)

    def call(
        self, operation: str, limit_s: float = ANSWER_LIMIT_S, **arguments: Any
    ) -> dict[str, Any]:
        """The answer's data. Raises AgentError with the agent's code and sentence."""
        deadline = time.monotonic() + limit_s
        number = self._send(operation, arguments, deadline)
        while True:
            reply = self._receive(deadline)
            if (reply.id == number and not reply.stream) or _turned_away(reply):
                return self._data(reply)

    def stream(self, hz: float, limit_s: float = ANSWER_LIMIT_S) -> Iterator[dict[str, Any]]:
        """Samples until the agent stops, ``close`` is called, or the iterator is closed.

        ``limit_s`` is the longest silence beyond the period: then NoAnswerError is raised, and the
        stream may be iterated anew.
        """
        number = self._send("stream", {"hz": hz}, time.monotonic() + limit_s)
        silence_s = limit_s + 1 / hz
        while True:
            reply = self._receive(time.monotonic() + silence_s)
            if reply.id != number and not _turned_away(reply):
                continue
            data = self._data(reply)
            if reply.stream:
                yield data

    def close(self) -> None:
        """Wakes a thread that waits in call or stream (it raises EndedError). May come twice."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def _send(self, operation: str, arguments: dict[str, Any], deadline: float) -> int:
        self._last_id += 1
        request = {"v": PROTOCOL_VERSION, "id": self._last_id, "op": operation, **arguments}
        line = msgspec.json.encode(request) + b"\n"
        if len(line) > MAX_REQUEST_BYTES:
            raise AgentError(f"The request {operation} is too long.", "bad_request")
        try:
            self._socket.settimeout(_left(deadline))
            self._socket.sendall(line)
        except OSError as error:
            raise _said(error, self.pid) from error
        return self._last_id

    def _receive(self, deadline: float) -> Reply:
        line = self._line(deadline)
        try:
            reply = _REPLY.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            sentence = f"pid {self.pid} answered something that is not the agent's protocol."
            raise AgentError(sentence, "bad_reply") from None
        if reply.v != PROTOCOL_VERSION:
            sentence = f"The agent of pid {self.pid} speaks protocol {reply.v}, not "
            raise AgentError(f"{sentence}{PROTOCOL_VERSION}: restart the run.", "bad_reply")
        return reply

    def _line(self, deadline: float) -> bytes:
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._searched = 0
                return line
            self._searched = len(self._buffer)
            if self._searched > MAX_REPLY_BYTES:
                raise AgentError(f"pid {self.pid} answered without end.", "bad_reply")
            self._buffer += self._bytes(deadline)

    def _bytes(self, deadline: float) -> bytes:
        try:
            self._socket.settimeout(_left(deadline))
            raw = self._socket.recv(1 << 18)
        except OSError as error:
            raise _said(error, self.pid) from error
        if not raw:
            raise EndedError(f"pid {self.pid} closed the connection.")
        return raw

    def _data(self, reply: Reply) -> dict[str, Any]:
        if reply.ok:
            return reply.data or {}
        sentence = clean(reply.error or "The agent refused without a reason.")[:_SENTENCE_MAX]
        raise AgentError(sentence, clean(reply.code or "failed")[:40])


def _connect(connection: socket.socket, path: str, limit_s: float) -> None:
    folder, name = os.path.split(path)
    deadline = time.monotonic() + limit_s
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while True:
            connection.settimeout(_left(deadline))
            try:
                return connection.connect(f"/proc/self/fd/{descriptor}/{name}")
            except BlockingIOError:  # the queue of connections is full
                time.sleep(0.01)
    finally:
        os.close(descriptor)


def _turned_away(reply: Reply) -> bool:
    """The agent refuses the connection itself: it has too many."""
    return not reply.ok and not reply.id


def _check_peer(connection: socket.socket, pid: int) -> None:
    # The kernel noted who called listen(); in another pid namespace it shows our number for it.
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    peer, _, _ = struct.unpack("iii", raw)
    if peer != pid:
        raise NotTrustedError(f"The socket of pid {pid} is served by pid {peer}: not trusted.")


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _said(error: Exception, pid: int) -> AgentError:
    if isinstance(error, AgentError):
        return error
    if isinstance(error, TimeoutError) or getattr(error, "errno", 0) == errno.EAGAIN:
        return NoAnswerError(f"pid {pid} does not answer.")
    if isinstance(error, ConnectionRefusedError):
        return EndedError(f"pid {pid} has ended; nobody listens at its socket.", refused=True)
    if isinstance(error, FileNotFoundError):
        return EndedError(f"pid {pid} has no agent: there is no socket.")
    if isinstance(error, PermissionError):
        return AgentError(f"The agent of pid {pid} belongs to another user.", "not_permitted")
    if isinstance(error, (BrokenPipeError, ConnectionResetError)):
        return EndedError(f"pid {pid} closed the connection.")
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return AgentError(f"The agent of pid {pid} cannot be reached ({reason}).")
