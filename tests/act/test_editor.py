"""A change by hand: the editor, its line, what was changed while it was open."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from cockpit.act.action import Console
from cockpit.act.editor import EditByHand, editor_command
from cockpit.act.patch import Patch, undo
from cockpit.act.suggest import Place, locate, suggest_first
from cockpit.diagnose import diagnose
from cockpit.errors import RefusedError

SOURCE = "import torch\n\n\ndef step(model, x):\n    return model(x)\n"
OUT_OF_MEMORY = """\
class OutOfMemoryError(RuntimeError):
    __module__ = "torch"


class Loss:
    backward = None


kept = []
for loss in [Loss()]:
    try:
        loss.backward()
        kept.append(loss)
    except TypeError:
        raise OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
            "79.10 GiB of which 1.00 GiB is free."
        ) from None
"""
CONSOLE = Console(lambda _: None)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "cockpit" / "patches"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A PATH with editors in it; each writes its arguments to a file."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("vi", "code", "hx", "kate", "ed", "emacs"):
        program = folder / name
        program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$0.said"\n')
        program.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("environ", "argv"),
    [
        ({"VISUAL": "vi", "EDITOR": "ed"}, ("vi", "+42", "/x/train.py")),
        ({"EDITOR": "code"}, ("code", "--wait", "--goto", "/x/train.py:42")),
        ({"EDITOR": "code --wait -n"}, ("code", "--wait", "-n", "--goto", "/x/train.py:42")),
        ({"EDITOR": "emacs -nw"}, ("emacs", "-nw", "+42", "/x/train.py")),
        ({"EDITOR": "hx"}, ("hx", "/x/train.py:42")),
        ({"EDITOR": "kate"}, ("kate", "--block", "-l", "42", "/x/train.py")),
        ({"EDITOR": "ed"}, ("ed", "/x/train.py")),
        ({"EDITOR": "vi -c 'set nu; !rm x'"}, ("vi", "-c", "set nu; !rm x", "+42", "/x/train.py")),
        ({"EDITOR": "no-such-editor"}, ("vi", "+42", "/x/train.py")),
        ({"EDITOR": "emacs 'open quote"}, ("vi", "+42", "/x/train.py")),
        ({"EDITOR": " "}, ("vi", "+42", "/x/train.py")),
        ({}, ("vi", "+42", "/x/train.py")),
    ],
)
def test_each_editor_is_told_the_line_in_its_own_way(
    environ: dict[str, str], argv: tuple[str, ...], programs: Path
):
    assert editor_command("/x/train.py", 42, {**environ, "PATH": str(programs)}) == argv


def test_an_editor_with_blanks_in_its_path_is_started_at_the_line(
    script: Path, programs: Path, tmp_path: Path
):
    folder = tmp_path / "my tools"
    programs.rename(folder)
    argv = editor_command(str(script), 5, {"EDITOR": f"'{folder}/vi'", "PATH": ""})
    assert argv is not None
    subprocess.run(argv, check=True)
    assert (folder / "vi.said").read_text() == f"+5\n{script}\n"


def test_the_preview_shows_the_lines_around_and_what_to_write(script: Path, programs: Path):
    action = EditByHand(
        str(script), 5, ("Write:", "    x"), "do it", environ={"PATH": str(programs)}
    )
    preview = action.preview()
    assert preview.lines == (
        str(script),
        "  1  import torch",
        "  2",
        "  3",
        "  4  def step(model, x):",
        "> 5      return model(x)",
        "",
        "Write:",
        "    x",
    )
    assert preview.form == "text"
    assert preview.terminal is not None
    assert preview.terminal.argv == ("vi", "+5", str(script))
    assert preview.refusal is None


def test_without_an_editor_it_says_what_to_do_by_hand(script: Path):
    preview = EditByHand(str(script), 5, ("Write: x",), "do it", environ={"PATH": ""}).preview()
    assert preview.terminal is None
    assert preview.refusal is not None
    assert "set EDITOR" in preview.refusal
    assert "Write: x" in preview.lines


def test_installed_code_is_shown_to_nobodys_editor(tmp_path: Path, programs: Path):
    path = tmp_path / "site-packages" / "m.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    action = EditByHand(str(path), 1, (), "do it", environ={"PATH": str(programs)})
    assert action.preview().terminal is None
    with pytest.raises(RefusedError, match="installed package"):
        action.run(CONSOLE)


def edited(script: Path, text: str) -> EditByHand:
    """As a face does it: preview, the editor, then run."""
    action = EditByHand(str(script), 5, (), "do it")
    action.preview()
    script.write_text(text)
    return action


def test_what_was_changed_in_the_editor_is_shown_and_can_be_undone(script: Path):
    outcome = edited(script, SOURCE.replace("model(x)", "model(x.cuda())")).run(CONSOLE)
    assert outcome.ok
    assert outcome.verified is None
    assert "-    return model(x)" in outcome.output
    assert undo(outcome.undo, CONSOLE).ok
    assert script.read_text() == SOURCE


def test_nothing_changed_in_the_editor_is_no_help(script: Path):
    outcome = edited(script, SOURCE).run(CONSOLE)
    assert (outcome.ok, outcome.verified, outcome.undo) == (True, False, None)


def test_a_syntax_error_from_the_editor_is_told_with_its_line(script: Path):
    outcome = edited(script, SOURCE.replace("model(x)", "model(x")).run(CONSOLE)
    assert outcome.verified is False
    assert "does not compile: line 5" in outcome.sentence


def test_without_a_place_for_a_backup_the_change_is_told_as_it_is(
    script: Path, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    changed = SOURCE.replace("model(x)", "model(x.cuda())")
    action = edited(script, changed)
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    outcome = action.run(CONSOLE)
    assert (outcome.ok, outcome.undo, script.read_text()) == (True, None, changed)
    assert "was changed in" in outcome.sentence
    assert "it cannot be taken back from here: its backup cannot be written" in outcome.sentence
    assert "not changed" not in outcome.sentence


def test_no_way_back_is_promised_where_nothing_can_be_kept(
    script: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
):
    editor = {"EDITOR": "nano", "PATH": str(programs)}
    assert EditByHand(str(script), 5, (), "do it", environ=editor).preview().undo is not None
    monkeypatch.setattr("cockpit.act.editor.state_directory", lambda _: None)
    assert EditByHand(str(script), 5, (), "do it", environ=editor).preview().undo is None


# ── patch or editor


def test_a_certain_place_is_a_patch_and_an_uncertain_one_the_editor(tmp_path: Path):
    path = tmp_path / "load.py"
    path.write_text("import torch\nmodel.load_state_dict(torch.load(p))\nx = 1\n")
    places = (Place(str(path), 2),)
    assert isinstance(suggest_first("map_location", places, {}), Patch)
    other = suggest_first("dataloader", places, {"workers": 4})
    assert isinstance(other, EditByHand)
    assert any("num_workers=4" in line for line in other.preview().lines)


def test_the_own_frames_are_found_innermost_first(tmp_path: Path):
    names = ("train.py", "net.py", "env/lib/python3.12/site-packages/torch/nn/linear.py")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(SOURCE)
    frames = [
        ("train.py", 5),
        "./net.py:4",
        (str(tmp_path / names[2]), 1),
        "<frozen runpy>:88",
        "gone.py:3",
    ]
    assert locate(frames, str(tmp_path)) == (
        Place(str(tmp_path / "net.py"), 4),
        Place(str(tmp_path / "train.py"), 5),
    )
    assert locate("train.py:5", str(tmp_path)) == (Place(str(tmp_path / "train.py"), 5),)
    assert locate("train.py:5") == ()
    assert locate("no place", str(tmp_path)) == ()


def test_the_loop_that_keeps_the_losses_is_some_frames_outside(tmp_path: Path):
    net, train = tmp_path / "net.py", tmp_path / "train.py"
    net.write_text("def forward(self, x):\n    return self.a(x)\n")
    train.write_text(
        "for x in loader:\n    loss = model(x)\n    loss.backward()\n    kept.append(loss)\n"
    )
    places = locate(["train.py:2", "net.py:2"], str(tmp_path))
    found = suggest_first("detach_loss", places, {})
    assert isinstance(found, Patch)
    assert found.file == str(train)
    other = suggest_first("no_grad", places, {})
    assert isinstance(other, EditByHand)
    assert other.file == str(net)
    assert suggest_first("no_grad", (), {}) is None


def test_the_place_of_a_finding_leads_to_the_patch(tmp_path: Path):
    """From a real traceback through the diagnosis to the diff."""
    script = tmp_path / "train.py"
    script.write_text(OUT_OF_MEMORY)
    done = subprocess.run([sys.executable, "train.py"], capture_output=True, cwd=tmp_path)
    finding = diagnose(io.BytesIO(done.stderr))
    assert finding.flow == "oom"
    patch = suggest_first(
        "detach_loss", locate(finding.facts["place"], str(tmp_path)), finding.facts
    )
    assert "+        kept.append(loss.item())" in patch.preview().lines
