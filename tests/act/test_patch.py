"""A patch: what is shown is what is written, only where it may be, and it can be taken back."""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from killing import AS_OTHER_USER

from cockpit.act import source_file
from cockpit.act.action import Console
from cockpit.act.patch import Patch, undo
from cockpit.errors import RefusedError

SOURCE = """\
import torch

losses = []
for x, y in loader:
    loss = model(x)
    loss.backward()
    losses.append(loss)  # für später
print(sum(losses))
"""
CHANGED = SOURCE.replace("append(loss)", "append(loss.item())")


class Ear:
    """A console whose words can be read."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.console = Console(self.said.append)


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder / "cockpit" / "patches"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SOURCE, encoding="utf-8")
    path.chmod(0o750)
    return path


def detach(path: Path | str) -> Patch:
    return Patch("detach_loss", str(path), 5)


def refusal(patch: Patch) -> str:
    preview = patch.preview()
    assert preview.refusal is not None
    with pytest.raises(RefusedError, match=re.escape(preview.refusal)):
        patch.run(Console(print))
    return preview.refusal


# ── what is shown


def test_the_preview_is_the_unified_diff_of_what_will_be_written(script: Path, ear: Ear):
    patch = detach(script)
    preview = patch.preview()
    assert script.read_text() == SOURCE
    expected = difflib.unified_diff(
        SOURCE.splitlines(), CHANGED.splitlines(), str(script), str(script), lineterm=""
    )
    assert preview.lines == tuple(expected)
    assert (preview.form, preview.risk, preview.typed) == ("diff", "confirm", "train.py")
    assert preview.refusal is None
    assert preview.undo
    outcome = patch.run(ear.console)
    assert script.read_text() == CHANGED
    assert outcome.output == preview.lines
    assert outcome.path == str(script)
    assert "1 line" in outcome.sentence


def test_a_link_is_followed_and_shown_and_stays_a_link(script: Path, tmp_path: Path, ear: Ear):
    link = tmp_path / "run.py"
    link.symlink_to(script)
    preview = detach(link).preview()
    assert f"{link} leads to {script}" in preview.title
    assert preview.typed == "train.py"
    detach(link).run(ear.console)
    assert link.is_symlink()
    assert script.read_text() == CHANGED


def test_a_file_without_a_newline_at_its_end_is_shown_as_diff_does(tmp_path: Path, ear: Ear):
    path = tmp_path / "load.py"
    path.write_bytes(b"import torch\nmodel.load_state_dict(torch.load(p))")
    patch = Patch("map_location", str(path), 2)
    assert patch.preview().lines[-4:] == (
        "-model.load_state_dict(torch.load(p))",
        "\\ No newline at end of file",
        '+model.load_state_dict(torch.load(p, map_location="cpu"))',
        "\\ No newline at end of file",
    )
    patch.run(ear.console)
    assert path.read_bytes().endswith(b'map_location="cpu"))')


def test_without_a_certain_place_it_is_refused(script: Path):
    patch = Patch("dataloader", str(script), 5, {"workers": 4})
    assert not patch.is_certain
    assert "no certain place" in refusal(patch)


# ── how it is written


@pytest.mark.parametrize(
    ("head", "encoding", "end"),
    [
        (b"", "utf-8", "\n"),
        (b"\xef\xbb\xbf", "utf-8", "\r\n"),
        (b"# -*- coding: latin-1 -*-\n", "latin-1", "\n"),
        (b"# coding: cp1252\r\n", "cp1252", "\r\n"),
        (b"#!/usr/bin/python\n# vim: set fileencoding=utf-8 :\n\x0c\n", "utf-8", "\n"),
    ],
    ids=["plain", "mark and CRLF", "latin-1", "cp1252 and CRLF", "form feed"],
)
def test_encoding_mark_and_line_ends_stay(
    head: bytes, encoding: str, end: str, tmp_path: Path, ear: Ear
):
    path = tmp_path / "train.py"
    path.write_bytes(head + SOURCE.replace("\n", end).encode(encoding))
    outcome = Patch("detach_loss", str(path), 5 + head.count(b"\n")).run(ear.console)
    assert path.read_bytes() == head + CHANGED.replace("\n", end).encode(encoding)
    undo(outcome.undo, ear.console)
    assert path.read_bytes() == head + SOURCE.replace("\n", end).encode(encoding)


def test_mode_group_and_attributes_stay_and_no_other_file_is_left(script: Path, ear: Ear):
    try:
        os.setxattr(script, "user.note", b"mine")
    except OSError:
        pytest.skip("no extended attributes here")
    detach(script).run(ear.console)
    status = script.stat()
    assert stat.S_IMODE(status.st_mode) == 0o750
    assert (status.st_uid, status.st_gid) == (os.geteuid(), os.getegid())
    assert os.getxattr(script, "user.note") == b"mine"
    assert {one.name for one in script.parent.iterdir()} == {"train.py", "state"}


def test_a_reader_never_sees_half_of_it(script: Path, ear: Ear):
    with script.open() as reader:
        detach(script).run(ear.console)
        assert reader.read() == SOURCE


def test_a_file_with_a_second_name_keeps_it(script: Path, tmp_path: Path, ear: Ear):
    other = tmp_path / "same.py"
    other.hardlink_to(script)
    outcome = detach(script).run(ear.console)
    assert other.read_text() == CHANGED
    assert other.samefile(script)
    undo(outcome.undo, ear.console)
    assert other.read_text() == SOURCE


def test_the_backup_is_the_users_own_and_says_of_what_it_is(script: Path, state: Path, ear: Ear):
    outcome = detach(script).run(ear.console)
    (folder,) = state.iterdir()
    assert outcome.undo.data["backup"] == str(folder)
    assert ear.said == [f"backup: {folder}"]
    assert (folder / "original").read_text() == SOURCE
    assert json.loads((folder / "meta.json").read_text())["file"] == str(script)
    for one in (state, folder):
        assert stat.S_IMODE(one.stat().st_mode) == 0o700
    for one in folder.iterdir():
        assert stat.S_IMODE(one.stat().st_mode) == 0o600


def test_without_a_place_for_the_backup_nothing_is_changed(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    with pytest.raises(RefusedError, match="not changed: its backup cannot be written"):
        detach(script).run(Console(print))
    assert script.read_text() == SOURCE


def test_a_cancelled_patch_changes_nothing(script: Path, state: Path, ear: Ear):
    ear.console.cancelled.set()
    assert not detach(script).run(ear.console).ok
    assert script.read_text() == SOURCE
    assert not state.exists()


# ── what has changed meanwhile


def test_a_file_changed_after_the_preview_is_not_touched(script: Path):
    patch = detach(script)
    assert patch.preview().refusal is None
    script.write_text("# new\n" + SOURCE)
    with pytest.raises(RefusedError, match="changed after it was shown"):
        patch.run(Console(print))
    assert script.read_text() == "# new\n" + SOURCE


@pytest.mark.parametrize("then", ["# theirs\n", None])
def test_a_file_changed_right_after_the_write_is_told_with_the_way_back(
    script: Path, ear: Ear, monkeypatch: pytest.MonkeyPatch, then: str | None
):
    """As a formatter that watches the folder does it."""
    write = source_file.write

    def watched(source: source_file.SourceFile, raw: bytes) -> bool:
        done = write(source, raw)
        script.write_text(then) if then is not None else script.unlink()
        return done

    monkeypatch.setattr(source_file, "write", watched)
    outcome = detach(script).run(ear.console)
    assert (outcome.ok, outcome.verified) == (True, False)
    assert "was written, and something else changed it right after" in outcome.sentence
    assert Path(outcome.undo.data["backup"], "original").read_text() == SOURCE
    assert "-    losses.append(loss)  # für später" in outcome.output


def test_what_is_put_back_and_changed_at_once_is_no_undo(
    script: Path, ear: Ear, monkeypatch: pytest.MonkeyPatch
):
    record = detach(script).run(ear.console).undo
    monkeypatch.setattr(source_file, "write", lambda *_: script.write_text("# theirs\n"))
    back = undo(record, ear.console)
    assert (back.ok, back.sentence.startswith("train.py was put back, and something")) == (
        False,
        True,
    )


def test_a_link_that_leads_elsewhere_after_the_preview_is_not_followed(
    script: Path, tmp_path: Path
):
    link, other = tmp_path / "run.py", tmp_path / "other.py"
    other.write_text(SOURCE)
    link.symlink_to(script)
    patch = detach(link)
    patch.preview()
    link.unlink()
    link.symlink_to(other)
    with pytest.raises(RefusedError, match="changed after it was shown"):
        patch.run(Console(print))
    assert other.read_text() == script.read_text() == SOURCE


# ── what may be changed


@pytest.mark.parametrize(
    "folder",
    [
        *("lib/python3.12/site-packages/torch/nn", "usr/lib/python3/dist-packages/x"),
        *("usr/lib/python3.11", "env/lib64/python3.10/json"),
    ],
)
def test_installed_code_is_not_patched(folder: str, tmp_path: Path):
    path = tmp_path / folder / "module.py"
    path.parent.mkdir(parents=True)
    path.write_text(SOURCE)
    assert "belongs to an installed package" in refusal(detach(path))


def test_a_file_that_is_not_there_or_no_file_is_refused(tmp_path: Path):
    assert "No such file" in refusal(detach(tmp_path / "gone.py"))
    assert "not a regular file" in refusal(detach(tmp_path))
    assert "cannot be read" in refusal(detach("a\0b.py"))
    fifo = tmp_path / "fifo.py"
    os.mkfifo(fifo)
    assert "not a regular file" in refusal(detach(fifo))


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"# coding: no-such-thing\n" + SOURCE.encode(), "not text in the encoding"),
        (SOURCE.encode("latin-1"), "not text in the encoding"),
        (SOURCE.encode() + b"\0", "not text in the encoding"),
        (SOURCE.encode() + b"#" * (1 << 20), "larger than 1 MiB"),
        (SOURCE.encode() + b"def f(:\n", "no certain place"),
    ],
    ids=["unknown", "wrong", "binary", "large", "syntax"],
)
def test_what_cannot_be_read_as_python_is_refused(raw: bytes, why: str, tmp_path: Path):
    path = tmp_path / "train.py"
    path.write_bytes(raw)
    assert why in refusal(detach(path))
    assert path.read_bytes() == raw


def test_control_characters_of_a_name_do_not_reach_a_sentence(tmp_path: Path):
    assert "\x1b" not in refusal(detach(tmp_path / "a\x1b[2Jb.py"))


AS_USER = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, setpriv"
)
_AS_USER = """
import os, sys
from cockpit.act.patch import Patch, undo
from cockpit.act.action import Console
os.environ["XDG_STATE_HOME"] = sys.argv[2]
patch = Patch("detach_loss", sys.argv[1], 5)
print(patch.preview().refusal)
if patch.is_certain:
    outcome = patch.run(Console(print))
    print(outcome.sentence)
    if len(sys.argv) > 3:
        print(undo(outcome.undo, Console(print)).sentence)
"""


@pytest.fixture
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the other user can reach and write."""
    folder = tmp_path_factory.mktemp("shared")
    for one in (folder, *folder.parents):
        if "pytest" in str(one):
            one.chmod(0o755)
    os.chown(folder, 1002, 1002)
    return folder


def as_user(*arguments: object) -> list[str]:
    if subprocess.run([*AS_OTHER_USER, sys.executable, "-c", "import cockpit"]).returncode:
        pytest.skip("the other user cannot read this interpreter")
    done = subprocess.run(
        [*AS_OTHER_USER, sys.executable, "-c", _AS_USER, *map(str, arguments)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@AS_USER
def test_a_user_does_not_patch_anothers_file_though_it_is_writable(shared: Path):
    path = shared / "train.py"
    path.write_text(SOURCE)
    path.chmod(0o666)
    assert "belongs to another user" in as_user(path, shared / "state")[0]
    assert path.read_text() == SOURCE


@AS_USER
def test_root_does_not_patch_a_users_file(shared: Path):
    path = shared / "train.py"
    path.write_text(SOURCE)
    assert "folder of" in refusal(detach(path))
    os.chown(path, 1002, 1002)
    assert "belongs to another user" in refusal(detach(path))


@AS_USER
def test_a_read_only_file_is_refused_with_what_to_do(shared: Path):
    path = shared / "train.py"
    path.write_text(SOURCE)
    os.chown(path, 1002, 1002)
    path.chmod(0o444)
    assert "chmod u+w" in as_user(path, shared / "state")[0]


@AS_USER
def test_in_a_read_only_folder_the_file_is_written_in_place(shared: Path):
    folder = shared / "code"
    folder.mkdir()
    path = folder / "train.py"
    path.write_text(SOURCE)
    os.chown(path, 1002, 1002)
    folder.chmod(0o755)
    inode = path.stat().st_ino
    said = as_user(path, shared / "state")
    assert said[0] == "None"
    assert path.read_text() == CHANGED
    assert path.stat().st_ino == inode
    path.write_text(SOURCE)
    assert as_user(path, shared / "state", "undo")[-1] == "train.py is as it was, to the byte"
    assert path.read_text() == SOURCE


# ── taking it back


def test_undo_restores_the_bytes_and_the_mode(script: Path, ear: Ear):
    before = script.read_bytes()
    outcome = detach(script).run(ear.console)
    back = undo(outcome.undo, ear.console)
    assert back.ok
    assert script.read_bytes() == before
    assert stat.S_IMODE(script.stat().st_mode) == 0o750


def test_undo_of_what_is_as_it_was_is_fine(script: Path, ear: Ear):
    record = detach(script).run(ear.console).undo
    undo(record, ear.console)
    assert undo(record, ear.console).sentence == "train.py is as it was already"


def test_undo_after_a_change_does_nothing_and_shows_both_changes(script: Path, ear: Ear):
    record = detach(script).run(ear.console).undo
    mine = CHANGED.replace("import torch", "import torch, math")
    script.write_text(mine)
    outcome = undo(record, ear.console)
    assert not outcome.ok
    assert "was changed since" in outcome.sentence
    assert script.read_text() == mine
    shown = outcome.output
    assert "-    losses.append(loss)  # für später" in shown
    assert "+import torch, math" in shown
    assert shown.index("--- original") < shown.index("--- patched")


def test_undo_of_a_file_that_is_gone_is_refused(script: Path, ear: Ear):
    record = detach(script).run(ear.console).undo
    script.unlink()
    with pytest.raises(RefusedError, match="No such file"):
        undo(record, ear.console)


def test_a_damaged_or_foreign_backup_is_not_used(script: Path, state: Path, ear: Ear):
    record = detach(script).run(ear.console).undo
    (folder,) = state.iterdir()
    (folder / "original").write_text("else")
    with pytest.raises(RefusedError, match="is damaged"):
        undo(record, ear.console)
    record.data["backup"] = str(script.parent)
    with pytest.raises(RefusedError, match="not a folder of the cockpit's backups"):
        undo(record, ear.console)
    assert script.read_text() == CHANGED


LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n")), max_size=4)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(above=LINES, below=LINES, end=st.sampled_from(["\n", "\r\n"]), last=st.booleans())
def test_applying_and_undoing_restores_every_byte(
    above: list[str], below: list[str], end: str, last: bool, tmp_path: Path
):
    lines = [*(f"# {one}" for one in above), *SOURCE.splitlines(), *(f"# {one}" for one in below)]
    raw = (end.join(lines) + (end if last else "")).encode()
    path = tmp_path / "train.py"
    path.write_bytes(raw)
    patch = Patch("detach_loss", str(path), len(above) + 5)
    if patch.is_certain:
        outcome = patch.run(Console(lambda _: None))
        assert path.read_bytes() == raw.replace(b"append(loss)", b"append(loss.item())")
        assert undo(outcome.undo, Console(lambda _: None)).ok
    assert path.read_bytes() == raw
