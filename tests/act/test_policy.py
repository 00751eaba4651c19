"""Who is refused, by which rule, and what the refusal advises."""

from __future__ import annotations

import pytest

from cockpit.act.identity import Subject
from cockpit.act.policy import Viewer, ancestors, judge, signal_name, signal_number
from cockpit.errors import UsageError
from cockpit.model.action import SIGNALS
from cockpit.procfs import PF_KTHREAD, Stat, parse_stat

USER = Viewer(uid=1000, pid=500, ancestors=frozenset({400, 300, 1}))
ROOT = Viewer(uid=0, pid=500, ancestors=frozenset({400, 300, 1}))


def subject(
    pid: int = 4711,
    name: str = "python3",
    *,
    uid: int = 1000,
    executable: str | None = None,
    flags: int = 0,
    command: tuple[str, ...] = ("python3", "train.py"),
) -> Subject:
    stat = Stat(pid, name, "S", 1, pid, pid, flags=flags, start_ticks=1234)
    return Subject(stat, uid, pid, executable or name, command)


def code_of(who: Viewer, of: Subject) -> str | None:
    refusal = judge(of, who)
    return refusal.code if refusal else None


def test_an_own_training_process_may_be_signalled():
    assert judge(subject(), USER) is None


@pytest.mark.parametrize(
    "program",
    [
        *("sshd", "sshd-session", "Xorg", "X", "Xwayland", "gnome-shell", "sddm", "gdm3"),
        *("weston", "kwin_wayland", "nvidia-persistenced", "nv-fabricmanager"),
        *("nv-hostengine", "dcgm-exporter", "nvidia-cuda-mps-control"),
        *("nvidia-cuda-mps-server", "dockerd", "containerd", "containerd-shim-runc-v2"),
        *("kubelet", "slurmd", "slurmstepd", "systemd", "systemd-logind", "dbus-daemon"),
    ],
)
@pytest.mark.parametrize("who", [USER, ROOT])
def test_what_the_machine_needs_is_protected_from_users_and_root(program: str, who: Viewer):
    by_file = subject(name="main", executable=program)
    by_name = subject(name=program[:15], executable="main")
    for of in (by_file, by_name):
        refusal = judge(of, who)
        assert refusal is not None
        assert refusal.code == "protected"
        assert "; instead: " in refusal.sentence


@pytest.mark.parametrize("program", ["python3", "bash", "tmux: server", "Xorg-log", "sshfs"])
def test_programs_with_a_similar_name_are_not(program: str):
    assert judge(subject(name=program), USER) is None


def test_argv_alone_protects_nobody():
    liar = subject(command=("/usr/sbin/sshd", "-D"))
    assert judge(liar, USER) is None


def test_the_executable_of_another_user_need_not_be_readable():
    hidden = Subject(subject(name="sshd", uid=0).stat, 0, 4711, None)
    assert code_of(USER, hidden) == "protected"


@pytest.mark.parametrize("pid", [1, 300, 400, 500])
@pytest.mark.parametrize("who", [USER, ROOT])
def test_the_first_process_the_cockpit_and_its_ancestors_are_protected(pid: int, who: Viewer):
    assert code_of(who, subject(pid, uid=who.uid)) == "protected"


def test_a_hostile_name_reaches_no_sentence_raw():
    refusal = judge(subject(1, "\x1b[2J\u202e"), ROOT)
    assert "^[[2J·" in refusal.sentence


def test_kernel_threads_are_protected():
    assert code_of(ROOT, subject(2, "kthreadd", uid=0, flags=PF_KTHREAD)) == "protected"


def test_other_users_are_for_root_only():
    assert code_of(USER, subject(uid=1001)) == "not_permitted"
    assert code_of(ROOT, subject(uid=1001)) is None


def test_readonly_comes_before_everything():
    readonly = Viewer(uid=0, pid=500, ancestors=frozenset(), readonly=True)
    assert code_of(readonly, subject()) == "readonly"
    assert code_of(readonly, subject(1)) == "readonly"


def test_ancestors_are_followed_to_the_first_and_loops_end():
    stats = {
        pid: Stat(pid, "x", "S", ppid, 0, 0)
        for pid, ppid in ((9, 7), (7, 3), (3, 1), (1, 0), (20, 21), (21, 20))
    }
    assert ancestors(9, stats) == {7, 3, 1}
    assert ancestors(20, stats) == {21, 20}
    assert ancestors(404, stats) == frozenset()


@pytest.mark.parametrize("text", ["TERM", "term", "SIGTERM", " sigterm "])
def test_signals_are_known_in_the_usual_spellings(text: str):
    assert signal_name(text) == "TERM"


@pytest.mark.parametrize("text", ["SEGV", "ABRT", "15", "", "TERM,KILL", "SIGSIGTERM"])
def test_other_signals_are_a_wrong_use(text: str):
    with pytest.raises(UsageError, match="TERM, INT"):
        signal_name(text)


def test_every_offered_signal_has_a_number():
    assert [signal_number(name) for name in SIGNALS] == [15, 2, 1, 3, 9, 19, 18, 10, 12]


def test_a_process_name_with_blanks_and_brackets_is_read_to_its_last_bracket():
    rest = "Z 12 13 14 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 3 0 987654 0"
    stat = parse_stat(f"4711 (a) (b) R 1 2) {rest} 0 0".encode())
    assert stat is not None
    assert (stat.pid, stat.name, stat.state, stat.ppid) == (4711, "a) (b) R 1 2", "Z", 12)
    assert (stat.group, stat.session, stat.threads, stat.start_ticks) == (13, 14, 3, 987654)
    assert not stat.dead  # a leader in state Z with living threads is a living process
