"""The filter language, term by term, and that no text makes it fall over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.model.process import DeviceUse, Process, Stray
from cockpit.model.text import GIB, MIB
from cockpit.tui.filter import EXAMPLES, Filter, parse

TRAIN = Process(
    pid=4711,
    user="ml1",
    command=("python", "train.py", "--name", "my job"),
    name="python",
    cpu_pct=101.0,
    vram_bytes=88 * GIB,
    rss_bytes=12 * GIB,
    devices=(
        DeviceUse(gpu=0, vram_bytes=44 * GIB, sm_pct=60.0),
        DeviceUse(gpu=2, vram_bytes=44 * GIB, sm_pct=36.0),
    ),
    container="docker:3f2a",
    slurm_job="88123",
    rank=0,
    conda_env="llm",
)
STRAY = Process(
    pid=5233,
    user="root",
    command=("ipykernel_launcher",),
    cpu_pct=0.0,
    vram_bytes=300 * MIB,
    devices=(DeviceUse(gpu=6, vram_bytes=300 * MIB, sm_pct=None),),
    stray=Stray(reason="orphan_idle", sentence="Its parent is gone."),
)
HIDDEN = Process(pid=99, visible=False, gaps={"command": "other_namespace"})
ALL = (TRAIN, STRAY, HIDDEN)


def pids(text):
    wanted = parse(text)
    return [process.pid for process in ALL if wanted.matches(process)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [4711, 5233, 99]),
        ("train", [4711]),
        ("TRAIN", [4711]),
        ("5233", [5233]),
        ("docker", [4711]),
        ("ml1", [4711]),
        ('"my job"', [4711]),
        ('"job my"', []),
        ("user:ml1", [4711]),
        ("user:ML", [4711]),
        ("gpu:6", [5233]),
        ("gpu:0-3", [4711]),
        ("gpu:3-0", [4711]),
        ("gpu:1", []),
        ("gpu:2,6", [4711, 5233]),
        ("vram>10", [4711]),
        ("vram>10G", [4711]),
        ("vram>1.5GiB", [4711]),
        ("vram<512M", [5233]),
        ("vram<=300M", [5233]),
        ("cpu>50", [4711]),
        ("cpu<1%", [5233]),
        ("sm>90", [4711]),
        ("sm<1", []),
        ("rss>10", [4711]),
        ("is:stray", [5233]),
        ("is:idle", [5233]),
        ("is:hidden", [99]),
        ("container:3f2", [4711]),
        ("job:88", [4711]),
        ("rank:0", [4711]),
        ("rank:1", []),
        ("pid:99", [99]),
        ("env:llm", [4711]),
        ("!is:stray", [4711, 99]),
        ("-user:ml1", [5233, 99]),
        ("!train !5233", [99]),
        ("vram>0.1 cpu<1", [5233]),
        ("--name", [5233, 99]),
        ("http://x", []),
    ],
)
def test_a_filter_keeps(text, expected):
    assert pids(text) == expected
    assert parse(text).error is None


def test_what_is_not_known_passes_no_comparison():
    assert not parse("vram<1000").matches(HIDDEN)
    assert not parse("cpu<100").matches(HIDDEN)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("vram>abc", "vram cannot be compared with abc"),
        ("vram>", "needs a value"),
        ("gpu:x", "names no GPU"),
        ("user>ml1", "not a number"),
        ("is:nice", "there are hidden, idle"),
        ("rank:first", "not a number"),
    ],
)
def test_a_wrong_value_is_named_and_the_rest_still_works(text, part):
    wanted = parse(f"{text} train")
    assert part in (wanted.error or "")
    assert [p.pid for p in ALL if wanted.matches(p)] == [4711]


def test_it_says_what_it_shows():
    assert parse("train user:ml1 !is:idle").describe() == "train and user:ml1 and not is:idle"
    assert parse("  ").describe() == ""
    assert not parse("  ")


def test_every_example_of_the_help_page_is_understood():
    for example, _ in EXAMPLES:
        assert parse(example).error is None


def test_a_pasted_escape_sequence_does_not_come_back_on_screen():
    wanted = parse("vram>\x1b[31m evil\x07")
    assert "\x1b" not in (wanted.error or "") + wanted.describe()
    assert "\x07" not in wanted.describe()


@given(st.text(max_size=200))
def test_no_text_makes_it_raise(text):
    wanted = parse(text)
    assert isinstance(wanted, Filter)
    for process in ALL:
        assert wanted.matches(process) in (True, False)
    wanted.describe()


@given(
    st.sampled_from(["vram", "gpu", "is", "rank", "cpu", "user", "pid", "rss"]),
    st.sampled_from([":", ">", "<", ">=", "<=", "="]),
    st.text(max_size=30),
)
def test_no_value_of_a_term_makes_it_raise(name, operator, value):
    wanted = parse(f"{name}{operator}{value}")
    assert wanted.matches(TRAIN) in (True, False)
