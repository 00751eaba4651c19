"""QuickDriver on a real pseudo-terminal: it ends at once, in order, whatever ends the session."""

from __future__ import annotations

import ctypes
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.terminal.tmux import Terminal, descendants, terminal

ROOT = Path(__file__).resolve().parents[2]
BARE_APP = [sys.executable, "-m", "tests.tui.bare_app"]
ALTERNATE_SCREEN_OFF = b"\x1b[?1049l"


class Session:
    """The app on a pty; what it wrote is in ``seen``."""

    def __init__(self, *arguments: str, **environ: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", **environ)
            os.execv(BARE_APP[0], [*BARE_APP, *arguments])
        self.seen = b""
        self.resize(60, 12)
        self.modes = termios.tcgetattr(self.fd)

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def read(self) -> None:
        if select.select([self.fd], [], [], 0.005)[0]:
            try:
                self.seen += os.read(self.fd, 65536)
            except OSError:  # EIO: the last process has left it
                time.sleep(0.005)

    def wait_for(self, text: bytes, within_s: float = 10.0) -> None:
        end = time.monotonic() + within_s
        while text not in self.seen:
            assert time.monotonic() < end, self.seen[-500:]
            self.read()

    def settle(self) -> None:
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            self.read()

    def exit_code(self, within_s: float = 10.0, *, read: bool = True) -> int:
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                if read:
                    self.read()
                return os.waitstatus_to_exitcode(status)
            if read:
                self.read()
            else:
                time.sleep(0.01)
        raise AssertionError(f"still running after {within_s} s")

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self.fd >= 0:
            os.close(self.fd)


@pytest.fixture
def start() -> Iterator[Callable[..., Session]]:
    sessions: list[Session] = []

    def begin(*arguments: str, **environ: str) -> Session:
        session = Session(*arguments, **environ)
        sessions.append(session)
        session.wait_for(b"READY")
        session.settle()
        return session

    yield begin
    for session in sessions:
        session.close()


def test_quitting_takes_less_than_a_tenth_of_a_second(start):
    times = []
    for _ in range(3):
        session = start()
        began = time.perf_counter()
        os.write(session.fd, b"q")
        assert session.exit_code() == 0
        times.append(time.perf_counter() - began)
    assert min(times) < 0.1, times


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_the_app_and_gives_the_terminal_back(start, number):
    session = start()
    os.kill(session.pid, number)
    assert session.exit_code() == 128 + number
    assert ALTERNATE_SCREEN_OFF in session.seen
    assert session.seen.index(b"\x1b[m\x1b[?2004l") < session.seen.index(ALTERNATE_SCREEN_OFF)
    assert b"Traceback" not in session.seen
    assert termios.tcgetattr(session.fd) == session.modes


def test_a_signal_that_another_thread_got_is_acted_on_at_once(start):
    session = start()
    threads = sorted(int(tid) for tid in os.listdir(f"/proc/{session.pid}/task"))
    to_thread = {"x86_64": 234, "aarch64": 131}[os.uname().machine]
    assert ctypes.CDLL(None).syscall(to_thread, session.pid, threads[-1], signal.SIGTERM) == 0
    assert session.exit_code(within_s=2.5) == 128 + signal.SIGTERM


def test_a_terminal_that_goes_away_ends_the_app_even_when_no_signal_comes(start):
    session = start("nohup")
    os.close(session.fd)
    session.fd = -1
    assert session.exit_code(read=False) == 128 + signal.SIGHUP


def test_a_terminal_that_takes_no_more_output_does_not_hold_the_process(start):
    session = start("chatty")
    time.sleep(0.5)  # the pty is full, the writer blocks, then the loop does
    began = time.monotonic()
    os.kill(session.pid, signal.SIGTERM)
    assert session.exit_code(read=False) == 128 + signal.SIGTERM
    assert time.monotonic() - began < 5


def test_the_size_is_the_terminals_own_also_under_an_exported_columns(start):
    session = start(COLUMNS="200", LINES="70")
    session.wait_for(b"size 60x12")
    session.seen = b""
    session.resize(50, 9)
    session.wait_for(b"50x9")


def test_an_escape_key_alone_is_understood_and_split_sequences_are_put_together(start):
    session = start()
    session.seen = b""
    os.write(session.fd, b"\x1b")
    os.write(session.fd, b"[B")  # down: the cursor leaves row 0, whose line is drawn again
    session.wait_for(b"row 0")
    os.write(session.fd, b"\x1b")
    time.sleep(0.3)
    os.write(session.fd, b"q")  # glued to the Escape it would be alt+q
    assert session.exit_code() == 0


def test_idle_the_process_does_not_wake_up_for_input(start):
    session = start()

    def switches() -> int:
        tasks = Path(f"/proc/{session.pid}/task").iterdir()
        texts = [(task / "status").read_text() for task in tasks]
        return sum(int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0]) for text in texts)

    before = switches()
    time.sleep(1.0)
    assert switches() - before <= 4  # select(0.1) alone makes ten


APP = " ".join(BARE_APP)


def started(box: Terminal) -> int:
    box.start(APP)
    box.wait_for("READY")
    (pid,) = descendants(box.pane_pid())
    return pid


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


@pytest.mark.terminal
def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_draws_everything_again():
    with terminal(60, 12) as box:
        started(box)
        box.type("C-z")
        box.wait_for(lambda screen: "topped" in screen and "READY" not in screen)
        box.start("echo some garbage; fg")
        screen = box.wait_for(lambda screen: screen.startswith("READY"))
        assert "garbage" not in screen
        assert "row 3 日本" in screen
        box.type("q")
        box.wait_for("garbage")


@pytest.mark.terminal
def test_after_a_stop_that_could_not_be_prepared_for_the_screen_is_whole_and_keys_work():
    with terminal(60, 12) as box:
        pid = started(box)
        before = threads(pid)
        os.kill(pid, signal.SIGSTOP)
        box.wait_for("topped")
        box.type("fg", "C-j")  # the modes are still the app's: Enter would be no line end
        box.wait_for(lambda screen: screen.startswith("READY") and "topped" not in screen)
        assert threads(pid) == before
        box.type("q")
        box.wait_for(lambda _: not descendants(box.pane_pid()))


@pytest.mark.terminal
def test_a_storm_of_resizes_ends_with_the_screen_of_the_last_size():
    with terminal(60, 12) as box:
        started(box)
        for width in (40, 70, 33, 61, 20, 52):
            box.resize(width, 10)
        box.wait_for("size 52x10")
        assert "row 2 日本" in box.screen()


@pytest.mark.terminal
def test_without_colour_no_colour_is_sent_and_the_cursor_is_reversed():
    with terminal(60, 12) as box:
        box.start(f"{APP} no-colour")
        box.wait_for("READY")
        box.wait_for(lambda _: "\x1b[1;7mrow 0" in box.screen(styled=True))
        styled = box.screen(styled=True)
        assert not any(f"\x1b[{code}" in styled for code in (*range(30, 39), *range(40, 49)))
        assert ";3" not in styled


def test_startup_leaves_ssl_out_without_breaking_asyncio_or_ssl():
    import subprocess

    code = (
        "from cockpit.tui.startup import prepare; prepare(); import sys, asyncio, os;"
        "assert 'ssl' not in sys.modules and 'textual.app' in sys.modules;"
        "assert os.environ['TEXTUAL_FPS'] == '120';"
        "asyncio.run(asyncio.create_subprocess_exec('true'));"
        "import ssl; ssl.create_default_context()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
