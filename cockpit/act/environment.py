"""Installs the build of torch that fits, into the run's own environment: looked at first, kept
for the way back, tried dry, and then asked whether it computes. The way back is environment_undo.

One action from its preview to its proof, and each step needs what the ones before it found out:
that is why it is one file.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cockpit.act import interpreter as interpreters
from cockpit.act.action import Console
from cockpit.act.child import Ended
from cockpit.act.environment_undo import undo
from cockpit.act.interpreter import Interpreter
from cockpit.act.pip import DryRun, Pip, Planned, masked, pip_of
from cockpit.act.torch_check import TorchAnswer, ask_torch, judged
from cockpit.errors import CockpitError, RefusedError
from cockpit.model.remedy import Compared, Outcome, Preview, UndoRecord
from cockpit.model.text import clean, plural, size
from cockpit.model.wheel import FAMILY, WheelChoice, satisfies
from cockpit.paths import NO_HOME, state_directory

__all__ = ["InstallTorch", "undo"]

UNPACKED = 2.5
"""Times the size of a wheel: what it needs while it is unpacked beside the downloaded file."""
CUDA_BUILD_BYTES = 8 << 30
"""torch with its CUDA libraries, unpacked, and the wheels in pip's cache (2.7 to 2.14)."""
_OWN = (*FAMILY, "triton", "pytorch-triton")
_OWN_BEGINNINGS = ("nvidia-", "cuda-")
"""Names, and beginnings of names, that come and go with a build of torch."""
REPLACING = ("--upgrade", "--force-reinstall")
"""For a dry run: an installed ``+cpu`` satisfies ``torch>=2.7``, and would be taken as it is."""
VERIFY = (
    "the same interpreter imports torch, names its CUDA and its machine code, and adds up eight "
    "ones on each GPU"
)


class InstallTorch:
    """Replaces torch, torchvision and torchaudio, as far as they are there, by one index's."""

    def __init__(
        self,
        python: str,
        uid: int,
        choice: WheelChoice,
        *,
        state: Path | None = None,
    ) -> None:
        """``python`` is the run's own interpreter, ``uid`` its owner.

        ``state``: another place than the user's state directory for what is kept.
        """
        self.python, self.uid, self.choice = os.path.abspath(python), uid, choice
        self._state = state or state_directory(os.environ)
        self._shown: Interpreter | None = None

    # -- what would happen

    def preview(self) -> Preview:
        """Asks the interpreter about itself, and pip about its configuration; no network."""
        try:
            found = interpreters.ask(self.python, self.uid)
        except CockpitError as error:
            return self._refused(str(error))
        self._shown = found
        why = self._refusal(found)
        if why is not None:
            return self._refused(why, _instead(found, self.choice))
        try:
            notes = self._notes(found)
        except CockpitError as error:
            return self._refused(str(error))
        return Preview(
            title=self._title(found),
            form="command",
            lines=(*self._commands(found), *notes),
            risk="confirm",
            loses=self._loses(found),
            verify=VERIFY,
            typed=found.name,
            undo="The versions of now are installed again, from the list that is kept.",
        )

    def _title(self, found: Interpreter) -> str:
        return f"install torch for {self.choice.index} into {clean(found.name)}"

    def _refused(self, sentence: str, lines: tuple[str, ...] = ()) -> Preview:
        return Preview(
            title="install the torch that fits",
            form="command",
            lines=lines,
            risk="confirm",
            loses="nothing",
            verify=VERIFY,
            refusal=sentence,
        )

    def _refusal(self, found: Interpreter) -> str | None:
        if self.choice.index is None or self.choice.url is None:
            return self.choice.refusal or "No build of torch fits this machine."
        if self._state is None:
            return f"The old versions cannot be kept for the way back: this user has {NO_HOME}."
        return interpreters.refusal(found, self.python)

    def _commands(self, found: Interpreter) -> tuple[str, ...]:
        pip = pip_of(found, self.python, "KEPT")
        url = ["--index-url", str(self.choice.url)]
        same, newest = _same(found, self.choice), _newest(found, self.choice)
        lines = [
            f"# {self.choice.why}",
            "# the list of what is installed is kept for the way back; a dry run comes first",
            shlex.join(pip.install([*url, *(same or newest)])),
        ]
        if same:
            lines += [
                "# or, where the index has not that version, the newest (the dry run tells which):",
                shlex.join(pip.install([*url, *newest])),
            ]
        return tuple(lines)

    def _notes(self, found: Interpreter) -> tuple[str, ...]:
        notes = []
        sources = pip_of(found, self.python, "").sources()
        if sources:
            told = ", ".join(masked(one) for one in sources)
            notes.append(
                f"# your pip is configured ({told}): it is asked first, without --index-url, and "
                f"the index above only if it has no build +{self.choice.index}"
            )
        if found.conda:
            notes.append("# a conda environment: its own pip is used, conda's list does not change")
        if found.torch_folder is not None:
            users = interpreters.users_of(found.torch_folder)
            if users:
                pids = ", ".join(map(str, users[:8])) + (" …" if len(users) > 8 else "")
                notes.append(
                    f"# WARNING: {plural(len(users), 'process')} with this torch loaded (pid "
                    f"{pids}): replacing its files under them can crash them"
                )
        return tuple(notes)

    def _loses(self, found: Interpreter) -> str:
        have = ", ".join(f"{name} {clean(version)}" for name, version in found.versions.items())
        gone = f"{have} in {clean(found.prefix)} (can be taken back)" if have else "nothing"
        return (
            f"{gone}; extensions compiled against the old torch (flash-attn, xformers …) may need "
            "to be built again"
        )

    # -- and doing it

    def run(self, console: Console) -> Outcome:
        """Raises RefusedError where it may not be done, or is not any more what was shown."""
        found = interpreters.ask(self.python, self.uid)
        why = self._refusal(found)
        if why is not None:
            raise RefusedError(why)
        if self._shown is not None and self._shown != found:
            raise RefusedError(
                f"{clean(found.prefix)} has changed since it was shown: nothing was done."
            )
        assert self._state is not None
        folder = _keep_folder(self._state, found)
        return _Install(self, found, pip_of(found, self.python, folder), console).outcome()


class _Install:
    """One installation on its way."""

    def __init__(self, asked: InstallTorch, found: Interpreter, pip: Pip, console: Console) -> None:
        self._asked, self._found, self._pip, self._console = asked, found, pip, console
        self._choice = asked.choice
        self._say = console.say

    def outcome(self) -> Outcome:
        before = self._keep()
        dry, words = self._resolve()
        if self._console.cancelled.is_set():
            return _nothing("Cancelled: nothing was changed.", dry.ended)
        why = self._unfit(dry)
        if why is not None:
            return _nothing(why, dry.ended)
        if dry.version("torch") is None:
            return self._there_already()
        self._tell(dry)
        why = self._no_room(dry.installs)
        if why is not None:
            return _nothing(why, dry.ended)
        was = ask_torch(self._pip.python) if "torch" in self._found.versions else TorchAnswer()
        ended = self._pip.run(self._pip.install(words), self._console)
        record = self._record(before, dry.installs)
        if record is None or not ended.ok:
            return self._failed(ended, record)
        return self._verified(was, ended, record)

    def _keep(self) -> dict[str, str]:
        before = self._pip.freeze()
        inspected = self._pip.inspect()
        _write(self._pip.folder, "freeze.txt", "\n".join(before.values()) + "\n")
        if inspected is not None:
            _write(self._pip.folder, "inspect.json", inspected)
        self._say(f"{len(before)} installed versions kept in {clean(self._pip.folder)}")
        return before

    # -- the dry run

    def _resolve(self) -> tuple[DryRun, list[str]]:
        """The first source and version that has the build: what would happen, and the words."""
        torch_index = ["--index-url", str(self._choice.url)]
        sources = [[], torch_index] if self._pip.sources() else [torch_index]
        dry, words = DryRun(Ended(1, ())), list[str]()
        for source in sources:
            for attempt in (self._keeping, self._newest):
                if self._console.cancelled.is_set() or dry.unreachable:
                    return dry, words
                dry, words = attempt(source, dry)
                if dry.ended.ok and self._has_tag(dry):
                    return dry, words
        return dry, words

    def _keeping(self, source: list[str], last: DryRun) -> tuple[DryRun, list[str]]:
        """The versions that are installed, built for the other CUDA."""
        words = [*source, *_same(self._found, self._choice)]
        return (self._dry(words), words) if words != source else (last, [])

    def _newest(self, source: list[str], _last: DryRun) -> tuple[DryRun, list[str]]:
        """The newest that fit, then pinned to exactly these."""
        dry = self._dry([*source, *REPLACING, *_newest(self._found, self._choice)])
        exact = [f"{p.name}=={p.version}" for p in dry.installs if p.name in FAMILY]
        if not dry.ended.ok or not exact or not self._has_tag(dry):
            return dry, []
        words = [*source, *exact]
        return self._dry(words), words

    def _dry(self, words: list[str]) -> DryRun:
        self._say("dry run: " + masked(shlex.join(self._pip.install(["--dry-run", *words]))))
        return self._pip.dry_run(words, self._console)

    def _has_tag(self, dry: DryRun) -> bool:
        """All of the family that would be installed are builds for the wanted CUDA."""
        return all(p.tag == self._choice.index for p in dry.installs if p.name in FAMILY)

    def _unfit(self, dry: DryRun) -> str | None:
        url = masked(str(self._choice.url))
        if dry.unreachable:
            reason = dry.ended.last("ERROR: ") or dry.ended.last()
            return f"No package index answers ({url}): nothing was changed. pip says: {reason}"
        if not dry.ended.ok:
            reason = dry.ended.last("ERROR: ") or dry.ended.last()
            return f"The dry run failed: nothing was changed. pip says: {reason}"
        if not self._has_tag(dry):
            return f"{url} has no build +{self._choice.index}: nothing was changed."
        replaced = self._strangers(dry)
        if replaced:
            return (
                f"It would also replace {', '.join(replaced)}: nothing was changed. "
                "Install it by hand where that is all right, or take another version of torch."
            )
        return None

    def _strangers(self, dry: DryRun) -> list[str]:
        installed = self._pip.freeze()
        return [
            clean(f"{installed[p.name]} by {p.version}")
            for p in dry.installs
            if p.name in installed and p.name not in _OWN and not p.name.startswith(_OWN_BEGINNINGS)
        ]

    def _tell(self, dry: DryRun) -> None:
        installed = self._pip.freeze()
        self._say(f"the dry run would install {plural(len(dry.installs), 'package')}:")
        for one in dry.installs:
            line = installed.get(one.name, "")
            was = line.partition("==")[2] or line.partition(" @ ")[2] or "new"
            self._say(f"  {one.name} {one.version} ({masked(was)})")

    def _no_room(self, installs: Sequence[Planned]) -> str | None:
        free = shutil.disk_usage(self._found.site).free
        sizes = [one.size_bytes for one in installs]
        known = sum(one or 0 for one in sizes)
        if free < known * UNPACKED:
            return (
                f"{size(known * UNPACKED)} are needed in {clean(self._found.site)}, "
                f"{size(free)} are free: nothing was changed."
            )
        if None in sizes and free < CUDA_BUILD_BYTES:
            self._say(f"only {size(free)} are free; a CUDA build takes about 8 GiB")
        return None

    # -- what came of it

    def _there_already(self) -> Outcome:
        answer = ask_torch(self._pip.python)
        verified, sentence = judged(answer, self._choice.capabilities)
        return Outcome(ok=True, verified=verified, sentence=f"It is installed already. {sentence}")

    def _record(self, before: dict[str, str], planned: Sequence[Planned]) -> UndoRecord | None:
        """None: nothing is different. Where pip cannot tell any more, what it was to install."""
        try:
            after = self._pip.freeze()
        except CockpitError as error:
            self._say(f"what is installed now cannot be listed: {error}")
            after = {**before, **{one.name: f"{one.name}=={one.version}" for one in planned}}
        names = sorted(
            name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
        )
        if not names:
            return None
        changed = {name: (before.get(name), after.get(name)) for name in names}
        return UndoRecord(
            kind="pip",
            title=f"torch as it was in {clean(self._found.name)}",
            data={
                "python": self._pip.python,
                "uid": str(self._asked.uid),
                "prefix": self._found.prefix,
                "folder": self._pip.folder,
                "host": str(self._choice.url).rpartition("/")[0],
                "changed": msgspec.json.encode(changed).decode(),
            },
        )

    def _failed(self, ended: Ended, record: UndoRecord | None) -> Outcome:
        how = "It was stopped" if ended.interrupted else "pip failed"
        reason = "" if ended.interrupted else ended.last("ERROR: ")
        if record is None:
            state = "nothing was changed"
        else:
            state = "some packages are different now: take it back"
        sentence = f"{how}: {state}." + (f" pip says: {reason}" if reason else "")
        return Outcome(
            ok=False,
            sentence=sentence,
            verified=False if record else None,
            undo=record,
            output=ended.lines[-20:],
            path=self._pip.folder,
        )

    def _verified(self, was: TorchAnswer, ended: Ended, record: UndoRecord) -> Outcome:
        self._say("asking the new torch to compute")
        now = ask_torch(self._pip.python)
        verified, sentence = judged(now, self._choice.capabilities)
        late = self._console.cancelled.is_set()
        return Outcome(
            ok=True,
            sentence=("It could not be stopped any more, take it back: " if late else "")
            + sentence,
            verified=verified,
            compared=(
                Compared(what="torch", before=_told(was.version), after=_told(now.version)),
                Compared(what="CUDA of torch", before=_told(was.cuda), after=_told(now.cuda)),
                Compared(
                    what="machine code",
                    before=_told(" ".join(was.architectures)),
                    after=_told(" ".join(now.architectures)),
                ),
            ),
            undo=record,
            output=ended.lines[-20:],
            path=self._pip.folder,
        )


def _nothing(sentence: str, ended: Ended) -> Outcome:
    return Outcome(ok=False, sentence=sentence, output=ended.lines[-20:])


def _told(text: str | None) -> str:
    return clean(text) if text else "none"


def _family(found: Interpreter) -> list[str]:
    return [name for name in FAMILY if name in found.versions or name == "torch"]


def _same(found: Interpreter, choice: WheelChoice) -> list[str]:
    """The versions of now as builds for the other CUDA; empty where they are not to be kept."""
    version = found.versions.get("torch", "").partition("+")[0]
    if not version or not satisfies(version, choice.torch):
        return []
    return [
        f"{name}=={found.versions[name].partition('+')[0]}+{choice.index}"
        for name in _family(found)
    ]


def _newest(found: Interpreter, choice: WheelChoice) -> list[str]:
    """What the index has newest within the constraint, whatever is installed."""
    return [f"torch{choice.torch}", *(name for name in _family(found) if name != "torch")]


def _instead(found: Interpreter, choice: WheelChoice) -> tuple[str, ...]:
    """What a person can do by hand where pip must not."""
    if found.conda and found.torch_installer == "conda" and choice.index is not None:
        cuda = f"{choice.index[2:-1]}.{choice.index[-1]}"
        command = ["conda", "install", "--prefix", found.prefix, "--channel", "conda-forge"]
        return (shlex.join([*command, "pytorch-gpu", f"cuda-version={cuda}"]),)
    return ()


def _keep_folder(state: Path, found: Interpreter) -> str:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    folder = state / "environments" / f"{stamp}-{secrets.token_hex(4)}"
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise CockpitError(
            f"The old versions of {clean(found.name)} cannot be kept in {clean(str(folder))} "
            f"({error.strerror}): nothing was changed."
        ) from error
    return str(folder)


def _write(folder: str, name: str, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(os.path.join(folder, name), flags, 0o600), "w") as file:
        file.write(text)
