"""``cockpit run`` by the program itself: real commands, pipes, terminals, signals, statuses."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cockpit.attach.run_record import RunRecord, list_runs

ROOT = Path(__file__).resolve().parents[2]
COCKPIT = [sys.executable, "-m", "cockpit"]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty state directory, set for all that is started here."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path / "state" / "cockpit"


def run(*words: str, flags: tuple[str, ...] = (), **kw: Any) -> subprocess.CompletedProcess[str]:
    command = [*COCKPIT, "run", *flags, "--", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **kw)


def shell(script: str, **kw: Any) -> subprocess.CompletedProcess[str]:
    return run("sh", "-c", script, **kw)


def last(state: Path) -> RunRecord:
    return list_runs(str(state))[0]


def wait_for(check: Callable[[], Any], limit_s: float = 20.0) -> Any:
    end = time.monotonic() + limit_s
    while not (found := check()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return found


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


# -- statuses and streams -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill $$", 143)]
)
def test_it_ends_with_the_commands_own_status(state: Path, script: str, status: int) -> None:
    assert shell(script).returncode == status


def test_a_command_that_is_not_there_is_127_and_one_that_is_no_program_126(
    state: Path, tmp_path: Path
) -> None:
    none = run("no-such-command-here")
    assert none.returncode == 127
    assert none.stderr == "cockpit: no-such-command-here: command not found\n"
    data = tmp_path / "data"
    data.write_text("x")
    assert run(str(data)).returncode == 126
    for word, status, words in (
        (str(tmp_path), 126, "is a directory"),
        (f"{tmp_path}/", 126, "is a directory"),
        (str(data), 126, "is not executable (chmod +x"),
        (f"{tmp_path}/none", 127, "no such file"),
        (f"{data}/none", 126, "Not a directory"),
    ):
        done = run(word)
        assert done.returncode == status
        assert done.stderr.startswith(f"cockpit: {word}: {words}")
        assert done.stderr.count("\n") == 1
    lost = tmp_path / "lost"
    lost.write_text("#!/no/such/python\n")
    lost.chmod(0o755)
    assert "#!" in run(str(lost)).stderr
    assert list_runs(str(state)) == []
    assert os.listdir(state / "runs") == []


def test_nothing_to_run_is_wrong_usage(state: Path) -> None:
    assert run().returncode == 2


@pytest.mark.parametrize("before", [(), ("--readonly",), ("--demo", "busy"), ("-i", "2")])
def test_a_run_may_be_called_fix(state: Path, before: tuple[str, ...]) -> None:
    words = (*before, "run", "--name", "fix", "--", "sh", "-c", "echo $0", "fix")
    done = subprocess.run([*COCKPIT, *words], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "fix\n"), done.stderr
    assert last(state).meta.name == "fix"


def test_a_name_that_is_no_utf8_is_kept_as_far_as_it_can_be_read(state: Path) -> None:
    done = subprocess.run([*COCKPIT, "run", "--name", b"tr\xffain", "--", "true"], timeout=60)
    assert (done.returncode, last(state).meta.name) == (0, "tr·ain")


def test_options_behind_the_command_are_its_own(state: Path) -> None:
    command = [*COCKPIT, "run", "--name", "mine", sys.executable, "-c", "print('hi')"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "hi\n"
    assert last(state).meta.name == "mine"
    double = run("sh", "-c", 'echo "$@"', "x", "--", "--name")
    assert double.stdout == "-- --name\n"


def test_stdout_and_stderr_stay_apart_outside_and_come_in_order_in_the_record(state: Path) -> None:
    script = "; sleep 0.05; ".join(f"echo {n}{' >&2' if n % 2 else ''}" for n in range(6))
    done = shell(script)
    assert done.stdout.split() == ["0", "2", "4"]
    assert done.stderr.split() == ["1", "3", "5"]
    assert last(state).output() == [str(n) for n in range(6)]


def test_one_pipe_for_both_keeps_the_exact_order(state: Path) -> None:
    script = ";".join(f"echo {n}{' >&2' if n % 2 else ''}" for n in range(200))
    command = [*COCKPIT, "run", "--", "sh", "-c", script]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    assert done.stdout.split() == [b"%d" % n for n in range(200)]
    assert last(state).output() == [str(n) for n in range(200)]


def test_bytes_pass_unchanged_and_much_of_them(state: Path) -> None:
    script = "import os; [os.write(1, bytes(range(256)) * 400) for _ in range(100)]"
    command = [*COCKPIT, "run", "--", sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert done.stdout == bytes(range(256)) * 40_000
    assert done.stderr == b""


def test_stdin_is_the_commands(state: Path) -> None:
    assert run("cat", input="from outside").stdout == "from outside"


def test_a_reader_that_goes_ends_the_command_as_without_us(state: Path) -> None:
    line = f"{' '.join(COCKPIT)} run -- yes | head -1"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=20)
    assert done.stdout == "y\n"
    assert done.stderr == ""
    wait_for(lambda: last(state).exit)
    assert last(state).exit.signal == "SIGPIPE"  # type: ignore[union-attr]


def test_descriptors_of_the_shell_reach_the_command(state: Path) -> None:
    line = f"{' '.join(COCKPIT)} run -- sh -c 'cat <&7' 7<<< seven"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=20)
    assert done.stdout == "seven\n"


def test_a_child_that_holds_the_output_does_not_keep_us(state: Path) -> None:
    began = time.monotonic()
    command = [*COCKPIT, "run", "--", "sh", "-c", "(sleep 3; echo late) & echo now"]
    state.parent.mkdir()
    with open(state.parent / "out", "wb+") as out:
        assert subprocess.run(command, stdout=out, timeout=20).returncode == 0
        assert time.monotonic() - began < 2.5
        wait_for(lambda: os.pread(out.fileno(), 100, 0) == b"now\nlate\n")


# -- the record ------------------------------------------------------------------------------


def test_the_record_says_what_ran_where_and_how_it_ended(state: Path, tmp_path: Path) -> None:
    env = {**os.environ, "WANDB_API_KEY": "s3cret", "TOKENIZERS_PARALLELISM": "false"}
    shell("echo hello; kill -9 $$", cwd=tmp_path, env=env)
    found = last(state)
    assert found.meta.command == ("sh", "-c", "echo hello; kill -9 $$")
    assert found.meta.cwd == str(tmp_path)
    assert found.meta.environment["WANDB_API_KEY"] == "<hidden>"
    assert found.meta.environment["TOKENIZERS_PARALLELISM"] == "false"
    assert found.state == "ended"
    assert found.exit is not None
    assert (found.exit.status, found.exit.signal) == (137, "SIGKILL")
    assert found.output() == ["hello"]


def test_the_record_is_private(state: Path) -> None:
    shell("echo x")
    directory = Path(last(state).directory)
    for path in (state, state / "runs", directory, *directory.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_state_directory_that_cannot_be_written_costs_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "file"), "PYTHONPATH": str(ROOT)}
    done = shell("echo out; echo $COCKPIT_RUN_DIR; exit 4", env=env)
    assert (done.returncode, done.stdout) == (4, "out\n\n")
    assert done.stderr.count("\n") == 1
    assert "nothing of this run is kept" in done.stderr


# -- background ------------------------------------------------------------------------------


def test_a_run_in_the_background_has_its_own_session_and_outlives_us(state: Path) -> None:
    done = shell("echo started; ps -o sid= -p $$; sleep 0.5; exit 5", flags=("--background",))
    assert done.returncode == 0
    pid = int(done.stdout.split("pid ")[1].split()[0])
    found = last(state)
    assert found.meta.id in done.stdout
    assert found.meta.pid == pid
    assert found.meta.background
    ended = wait_for(lambda: last(state) if last(state).exit else None)
    assert ended.exit.status == 5
    assert [line.strip() for line in ended.output()] == ["started", str(pid)]


def test_a_background_command_that_is_not_there_is_127(state: Path) -> None:
    assert run("no-such-command-here", flags=("--background",)).returncode == 127


# -- signals ---------------------------------------------------------------------------------

COUNTING = """
import signal, sys, time
seen = []
for n in ("INT", "TERM", "HUP", "USR1"):
    signal.signal(getattr(signal, "SIG" + n), lambda number, _: (seen.append(number), None))
print("ready", flush=True)
end = time.time() + 20
while not seen and time.time() < end: time.sleep(0.01)
time.sleep(0.3)
print(",".join(signal.Signals(n).name for n in seen), flush=True)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_a_signal_to_us_reaches_the_command_once(state: Path, name: str) -> None:
    command = [*COCKPIT, "run", "--", sys.executable, "-c", COUNTING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.Signals[name])
        assert process.stdout.readline() == f"{name}\n"
        assert process.wait(20) == 0


def test_what_the_command_sends_to_its_own_group_comes_once(state: Path) -> None:
    script = COUNTING.replace(
        'print("ready"', 'import os; os.kill(0, signal.SIGTERM); print("ready"'
    )
    done = run(sys.executable, "-c", script, start_new_session=True)
    assert done.stdout == "ready\nSIGTERM\n"


def test_an_ignored_hangup_stays_ignored(state: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f"trap '' HUP; {' '.join(COCKPIT)} run -- sh -c 'kill -HUP $$; echo alive'"],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.stdout == "alive\n"


def test_when_we_are_killed_the_command_lives_on_and_its_record_is_whole(state: Path) -> None:
    script = "echo before; sleep 1; echo after; exit 6"
    process = subprocess.Popen([*COCKPIT, "run", "--", "sh", "-c", script], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"before\n"
    process.kill()
    process.wait(20)
    assert last(state).state == "running"
    assert last(state).output() == ["before"]
    ended = wait_for(lambda: last(state) if last(state).exit else None)
    assert ended.exit.status == 6
    assert ended.output() == ["before", "after"]
    process.stdout.close()


def test_when_the_keeper_is_killed_the_record_reads_as_lost(state: Path) -> None:
    process = subprocess.Popen(
        [*COCKPIT, "run", "--", "sh", "-c", "echo before; sleep 30"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"before\n"
    pid = last(state).meta.pid
    keeper = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(keeper, signal.SIGKILL)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert b"keeper was killed" in errors
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: gone(pid))
    assert last(state).state == "lost"
    assert last(state).output() == ["before"]


# -- on a terminal ---------------------------------------------------------------------------


class Terminal:
    """A shell-like parent on a pseudo-terminal: the command is its foreground job."""

    def __init__(self, words: list[str], env: dict[str, str] | None = None) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(words[0], words, {**os.environ, "TERM": "xterm", **(env or {})})
        self.text = ""

    def until(self, text: str, limit_s: float = 20.0) -> str:
        end = time.monotonic() + limit_s
        while text not in self.text:
            left = end - time.monotonic()
            assert left > 0, f"{text!r} did not come, but {self.text!r}"
            if select.select([self.fd], [], [], left)[0]:
                try:
                    self.text += os.read(self.fd, 4096).decode()
                except OSError:
                    break
        assert text in self.text, self.text
        before, _, self.text = self.text.partition(text)
        return before

    def type(self, raw: bytes) -> None:
        os.write(self.fd, raw)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def status(self, limit_s: float = 20.0) -> int:
        def ended() -> tuple[int] | None:
            if select.select([self.fd], [], [], 0)[0]:
                with contextlib.suppress(OSError):
                    self.text += os.read(self.fd, 4096).decode()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            return (os.waitstatus_to_exitcode(status),) if pid else None

        return wait_for(ended, limit_s)[0]

    def hang_up(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def close(self) -> None:
        self.hang_up()
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


@pytest.fixture
def terminal(state: Path) -> Iterator[Callable[[list[str]], Terminal]]:
    opened: list[Terminal] = []

    def make(words: list[str]) -> Terminal:
        opened.append(Terminal(words))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


Make = Callable[[list[str]], Terminal]


def test_on_a_terminal_all_three_streams_are_terminals(terminal: Make, state: Path) -> None:
    script = "import os; print(*(os.isatty(n) for n in range(3)), *os.get_terminal_size(1), 'end')"
    inner = f"{' '.join(COCKPIT)} run -- {sys.executable} -c \"input('? '); {script}\""
    screen = terminal(["sh", "-c", "stty rows 33 columns 111; " + inner])
    screen.until("? ")
    screen.type(b"\n")
    assert "True True True 111 33 " in screen.until("end")
    assert screen.status() == 0
    assert last(state).output()[-1] == "? True True True 111 33 end"


def test_only_what_was_a_terminal_becomes_one(terminal: Make, state: Path) -> None:
    script = (
        "import os, sys; print(f'o {os.isatty(1)}'); print(f'e {os.isatty(2)}', file=sys.stderr)"
    )
    inner = f'{" ".join(COCKPIT)} run -- {sys.executable} -c "{script}" | cat'
    screen = terminal(["sh", "-c", inner])
    screen.status()
    assert "o False" in screen.text
    assert "e True" in screen.text


def test_control_c_reaches_the_command_once(terminal: Make) -> None:
    screen = terminal([*COCKPIT, "run", "--", sys.executable, "-c", COUNTING])
    screen.until("ready")
    screen.type(b"\x03")
    assert screen.until("\r\n", 20) is not None
    assert screen.status() == 0
    assert screen.text.count("SIGINT") == 1


def test_an_untreated_control_c_is_status_130(terminal: Make) -> None:
    screen = terminal([*COCKPIT, "run", "--", "sh", "-c", "echo ready; exec sleep 30"])
    screen.until("ready")
    time.sleep(0.2)
    screen.type(b"\x03")
    assert screen.status() == 130


def test_control_z_stops_the_job_and_fg_continues_it(terminal: Make) -> None:
    screen = terminal(["bash", "--norc", "-i"])
    screen.type(b"PS1='PROMPT> '\n")
    screen.until("PROMPT> ")
    script = "import time; print('rea' + 'dy', flush=True); time.sleep(1.5); print('do' + 'ne')"
    screen.type(f'{" ".join(COCKPIT)} run -- {sys.executable} -c "{script}"\n'.encode())
    screen.until("ready")
    screen.type(b"\x1a")
    screen.until("Stopped")
    screen.type(b"fg\n")
    screen.until("done")
    screen.type(b"echo status=$?\n")
    screen.until("status=0")


def test_the_commands_own_stop_stops_us_and_a_continue_to_us_continues_it(state: Path) -> None:
    process = subprocess.Popen([*COCKPIT, "run", "--", "sh", "-c", "kill -STOP $$; exit 9"])
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait(20) == 9


def test_a_window_size_that_changes_is_forwarded_before_its_signal(terminal: Make) -> None:
    script = (
        "import os, signal, time; signal.signal(signal.SIGWINCH, "
        "lambda *_: print('size', *os.get_terminal_size(1), flush=True)); "
        "print('ready', flush=True); time.sleep(1); time.sleep(1)"
    )
    screen = terminal([*COCKPIT, "run", "--", sys.executable, "-c", script])
    screen.until("ready")
    screen.resize(44, 99)
    screen.until("size 99 44")


def test_a_closed_terminal_hangs_up_the_command(terminal: Make, state: Path) -> None:
    screen = terminal([*COCKPIT, "run", "--", "sh", "-c", "echo ready; sleep 30; echo no"])
    screen.until("ready")
    screen.hang_up()
    ended = wait_for(lambda: last(state) if last(state).exit else None)
    assert ended.exit.signal == "SIGHUP"


def test_newlines_are_recorded_as_written_and_shown_as_a_terminal_shows_them(
    terminal: Make, state: Path
) -> None:
    screen = terminal([*COCKPIT, "run", "--", "printf", r"a\nb\n"])
    assert screen.until("b\r\n").replace("a\r\n", "") == ""
    screen.status()
    assert (Path(last(state).directory) / "output").read_bytes() == b"a\nb\n"


def test_run_loads_neither_textual_nor_the_engine_nor_torch(state: Path) -> None:
    code = (
        "import sys; from cockpit.cli import main; main(['run', '--', 'true']);"
        "bad = {'textual', 'torch', 'asyncio', 'pynvml', 'cockpit.engine'} & set(sys.modules);"
        "print(bad, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert done.stderr == "set()\n"
