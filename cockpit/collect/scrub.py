"""``python -m cockpit.collect.scrub IN OUT [--every S]``: a recording that can be given away.

Only what is known to be harmless passes: numbers, the words of this program, names of well-known
programs, names of options. Host, users, directories, arguments, containers, jobs, UUIDs become
stand-ins that are the same all through the recording; free text is written anew.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from itertools import pairwise

from msgspec.structs import replace

from cockpit.collect.recording import Recording, RecordingWriter, load
from cockpit.errors import CockpitError
from cockpit.model.event import Event
from cockpit.model.gpu import Driver, DriverError, Gpu, TopologyLink
from cockpit.model.host import Host
from cockpit.model.ledger import Explanation, Ledger
from cockpit.model.process import Process, Stray
from cockpit.model.run import Run
from cockpit.model.snapshot import Snapshot

REST = "…"
HOST_NAME = "gpu-box"

_PROGRAMS = re.compile(
    r"(?:python[\d.]*|torchrun|accelerate|deepspeed|mpirun|mpiexec|srun|vllm|ray|ollama|jupyter"
    r"(?:-lab|-notebook)?|bash|sh|zsh|node|java|Xorg|Xwayland|gnome-shell|firefox|chrome|nvidia-smi"
    r"|nvidia-persistenced|nvidia-cuda-mps-(?:server|control)|nv-hostengine|nv-fabricmanager"
    r"|tritonserver|text-generation-launcher|systemd|cockpit)"
)
_MODULES = re.compile(
    r"torch\.distributed\.(?:run|launch)|ipykernel_launcher|accelerate\.commands\.launch"
    r"|vllm\.entrypoints\.[a-z_.]+|deepspeed\.launcher\.[a-z]+"
)
_OPTION = re.compile(r"--?[A-Za-z][A-Za-z0-9_-]*")
_SCRIPT = re.compile(r"[\w.+-]+\.py")
_WORD = re.compile(r"[a-z][a-z0-9_]{0,39}")
_VERSION = re.compile(r"\d[\w.+-]{0,30}")
_PANE = re.compile(r"%?\d{1,6}")
_TTY = re.compile(r"(?:pts/|tty)\d{1,4}")
_CARD = re.compile(r"(?:NVIDIA |Tesla |Quadro )[\w. /()+-]{1,60}")
_BUS = re.compile(r"[0-9A-Fa-f:.]{7,20}")
_PROFILE = re.compile(r"[\w.+-]{0,8}g\.\d+gb[\w.+-]{0,12}|[0-9a-z]+c\.\d+g\.\d+gb[\w.+-]{0,12}")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z")
_ENGINES = frozenset(
    ("docker", "podman", "containerd", "cri-o", "container", "lxc", "apptainer", "singularity")
) | {"kubernetes", "nerdctl", "buildkit", "wsl", "slurm"}

_EVENTS = {
    "xid": "the driver reported an Xid",
    "throttle": "the reasons why the clocks are held back changed",
    "ecc": "ECC errors were counted",
    "lost": "the GPU is lost",
    "recovered": "the GPU is back",
    "process_started": "a process started",
    "process_ended": "a process ended",
    "oom": "a process ran out of memory",
    "action": "an action was run",
}
_STRAYS = {
    "leader_gone": "its leader is gone while it holds on",
    "launcher_gone": "its launcher is gone and it computes nothing",
    "orphan_idle": "its parent is gone, it has no terminal and computes nothing",
    "directory_deleted": "its working directory is deleted and it idles",
}


class Scrubber:
    """Keeps the stand-ins of one recording.

    ``names_sources``: scripts keep their file names, as those of tracebacks do beside them.
    """

    def __init__(self, *, names_sources: bool = False) -> None:
        self._names_sources = names_sources
        self._names: dict[tuple[str, str], str] = {}
        self._secret: re.Pattern[str] = re.compile(r"(?!)")

    def snapshot(self, snapshot: Snapshot) -> Snapshot:
        """The same moment, told without names. Findings go: they quote logs."""
        self._remember_names(snapshot)
        return Snapshot(
            taken_at=_matching(_MOMENT, snapshot.taken_at) or "1970-01-01T00:00:00.000Z",
            host=self._host(snapshot.host),
            driver=_driver(snapshot.driver),
            topology=tuple(_link(link) for link in snapshot.topology),
            gpus=tuple(self._gpu(gpu) for gpu in snapshot.gpus),
            processes=tuple(self._process(p) for p in snapshot.processes),
            runs=tuple(self._run(run) for run in snapshot.runs),
            ledger=tuple(_ledger(entry) for entry in snapshot.ledger),
            events=tuple(_event(event) for event in snapshot.events),
            sampler=snapshot.sampler,
        )

    def _remember_names(self, snapshot: Snapshot) -> None:
        """People put user and host names into option names, too."""
        host = snapshot.host.name or ""
        names = {p.user or "" for p in snapshot.processes} | {host, *host.split(".")}
        known = sorted(re.escape(n) for n in names - {"root"} if len(n) > 1)
        self._secret = re.compile("|".join(known) or r"(?!)", re.IGNORECASE)

    def stand_in(self, kind: str, name: str) -> str:
        """``user1``: the same for the same name, all through one recording."""
        if (kind, name) not in self._names:
            number = sum(1 for k, _ in self._names if k == kind) + 1
            self._names[kind, name] = f"{kind}{number}"
        return self._names[kind, name]

    def _named(self, kind: str, name: str | None) -> str | None:
        return None if name is None else self.stand_in(kind, name)

    def _container(self, name: str | None) -> str | None:
        if name is None:
            return None
        engine, colon, _ = name.partition(":")
        if not colon:
            return engine if engine in _ENGINES else self.stand_in("container", name)
        known = engine if engine in _ENGINES else "container"
        return f"{known}:{self.stand_in('id', name)}"

    def _host(self, host: Host) -> Host:
        name = None if host.name is None else HOST_NAME
        return replace(
            host, name=name, container=self._container(host.container), gaps=_gaps(host.gaps)
        )

    def _gpu(self, gpu: Gpu) -> Gpu:
        return replace(
            gpu,
            uuid=self.uuid(gpu.uuid),
            name=_matching(_CARD, gpu.name) or (None if gpu.name is None else "GPU"),
            pci_bus_id=_matching(_BUS, gpu.pci_bus_id),
            compute_capability=_matching(_VERSION, gpu.compute_capability),
            compute_mode=_matching(_WORD, gpu.compute_mode),
            throttle_reasons=_words(gpu.throttle_reasons),
            mig_instances=tuple(
                replace(m, uuid=self.uuid(m.uuid), profile=_matching(_PROFILE, m.profile))
                for m in gpu.mig_instances
            ),
            gaps=_gaps(gpu.gaps),
        )

    def uuid(self, uuid: str | None) -> str | None:
        """A UUID of the same form, of a GPU or a MIG instance."""
        if uuid is None:
            return None
        prefix = "MIG" if uuid.startswith("MIG-") else "GPU"
        number = int(self.stand_in("uuid", uuid).removeprefix("uuid"))
        return f"{prefix}-00000000-0000-0000-0000-{number:012d}"

    def _process(self, p: Process) -> Process:
        user = "root" if p.user == "root" else self._named("user", p.user)
        return replace(
            p,
            started_at=_matching(_MOMENT, p.started_at),
            tty=_matching(_TTY, p.tty) or self._named("tty", p.tty),
            framework=_matching(_WORD, p.framework),
            user=user,
            uid=self._uid(p.uid),
            command=self.command(p.command),
            name=None if p.name is None else _program(p.name),
            state=p.state if p.state and len(p.state) == 1 else None,
            stray=None if p.stray is None else _stray(p.stray),
            container=self._container(p.container),
            slurm_job=self._named("job", p.slurm_job),
            pod=self._named("pod", p.pod),
            conda_env="base" if p.conda_env == "base" else self._named("env", p.conda_env),
            tmux=_matching(_PANE, p.tmux) or self._named("tmux", p.tmux),
            cwd=None if p.cwd is None else "/" + self.stand_in("dir", p.cwd),
            gaps=_gaps(p.gaps),
        )

    def _uid(self, uid: int | None) -> int | None:
        if not uid:
            return uid
        return 1000 + int(self.stand_in("uid", str(uid)).removeprefix("uid"))

    def command(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """argv of a well-known program with its options, without their values."""
        if not command:
            return ()
        words = [_program(command[0])]
        for before, word in pairwise(command):
            module = before == "-m" and _MODULES.fullmatch(word)
            words.append(word if module else self._argument(word))
        return tuple(words)

    def _argument(self, word: str) -> str:
        if word.startswith("-"):
            name, equals, _ = word.partition("=")
            known = _OPTION.fullmatch(name) and not self._secret.search(name)
            # "-pPASSWORD": a short option is one letter, more may be its value
            if known and (name.startswith("--") or len(name) == 2):
                return name + (equals and "=" + REST)
            return "-" + REST
        if not word.endswith(".py"):
            return REST
        name = word.rpartition("/")[2]
        is_kept = self._names_sources and _SCRIPT.fullmatch(name) and not self._secret.search(name)
        return name if is_kept else "script.py"

    def _run(self, run: Run) -> Run:
        return replace(
            run,
            name=self._named("run", run.name),
            torch_version=_matching(_VERSION, run.torch_version),
            python_version=_matching(_VERSION, run.python_version),
            gaps=_gaps(run.gaps),
        )


def _program(path: str) -> str:
    """The base name of a well-known program; else only that it is one."""
    name = path.rpartition("/")[2]
    return name if _PROGRAMS.fullmatch(name) else "program"


def _matching(pattern: re.Pattern[str], text: str | None) -> str | None:
    return text if text is not None and pattern.fullmatch(text) else None


def _words(words: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if words is None else tuple(w for w in words if _WORD.fullmatch(w))


def _gaps(gaps: dict[str, str]) -> dict[str, str]:
    return {
        field: reason if _WORD.fullmatch(reason) else "unknown"
        for field, reason in gaps.items()
        if all(_WORD.fullmatch(part) for part in field.split("."))
    }


def _driver(driver: Driver) -> Driver:
    error = driver.error
    if error is not None:
        code = _matching(_WORD, error.code) or "unknown"
        error = DriverError(code=code, message=f"NVML cannot be used: {code}")
    return Driver(
        version=_matching(_VERSION, driver.version),
        cuda_version=_matching(_VERSION, driver.cuda_version),
        nvml_version=_matching(_VERSION, driver.nvml_version),
        error=error,
    )


def _link(link: TopologyLink) -> TopologyLink:
    level = link.level.lower() if link.level else None
    known = _matching(_WORD, level)
    return replace(link, level=known and known.upper(), p2p=_matching(_WORD, link.p2p))


def _stray(stray: Stray) -> Stray:
    return replace(stray, sentence=_STRAYS[stray.reason])


def _ledger(entry: Ledger) -> Ledger:
    told = tuple(_explanation(e) for e in entry.explanations)
    return replace(entry, explanations=told, gaps=_gaps(entry.gaps))


def _explanation(e: Explanation) -> Explanation:
    pids = ", ".join(str(pid) for pid in e.pids)
    sentence = e.kind.replace("_", " ") + (f": pid {pids}" if pids else "")
    return replace(e, sentence=sentence)


def _event(event: Event) -> Event:
    sentence = _EVENTS[event.kind]
    if event.xid is not None:
        sentence = f"{sentence}: Xid {event.xid}"
    if event.gpu is not None:
        sentence = f"GPU {event.gpu}: {sentence}"
    return replace(event, at=_matching(_MOMENT, event.at) or "", sentence=sentence)


def scrub(recording: Recording, out: str, every_s: float = 0.0) -> int:
    """Writes the scrubbed recording; the number of snapshots in it. Raises UsageError."""
    scrubber, written, due_s = Scrubber(), 0, float("-inf")
    with RecordingWriter(
        out, version=_matching(_VERSION, recording.header.version) or ""
    ) as writer:
        for number, at_s in enumerate(recording.times):
            if at_s < due_s:
                continue
            due_s = at_s + every_s
            writer.write(scrubber.snapshot(recording.snapshot(number)), at_s)
            written += 1
    return written


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m cockpit.collect.scrub", description=__doc__)
    parser.add_argument("recording", metavar="IN")
    parser.add_argument("out", metavar="OUT", help="a new file; .gz packs it")
    parser.add_argument("--every", type=float, default=0.0, metavar="S", help="one in S seconds")
    arguments = parser.parse_args(argv)
    try:
        recording = load(arguments.recording)
        written = scrub(recording, arguments.out, arguments.every)
    except CockpitError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    size = os.path.getsize(arguments.out)
    sys.stderr.write(f"{written} of {len(recording)} snapshots, {size} bytes: {arguments.out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
