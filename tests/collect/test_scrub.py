"""Scrubbing: no planted secret survives anywhere in the output, and what is left still tells."""

from __future__ import annotations

import gzip
import itertools
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from cockpit.collect.recording import RecordingWriter, load
from cockpit.collect.scrub import main
from cockpit.collect.simulated import SimulatedMachine
from cockpit.model.gpu import Gpu
from cockpit.model.host import Host
from cockpit.model.process import Process
from cockpit.model.snapshot import Snapshot

counter = itertools.count(1)


def planted(kind: Any, secrets: list[str]) -> Any:
    """A value of the type in which every text that can be free is a secret."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind)
        return kind(**{f: planted(hints[f], secrets) for f in kind.__struct_fields__})
    if origin in (Union, types.UnionType):
        return planted(next(a for a in arguments if a is not type(None)), secrets)
    if origin is Literal:
        return arguments[0]
    if origin is tuple:
        kinds = arguments if arguments[-1] is not Ellipsis else arguments[:1] * 2
        return tuple(planted(each, secrets) for each in kinds)
    if origin is dict:
        return {planted(arguments[0], secrets): planted(arguments[1], secrets)}
    if kind in (str, Any):
        secrets.append(f"Secret{next(counter):04d}")
        return secrets[-1]
    return {int: 7, float: 0.5, bool: True}[kind]


def scrubbed(tmp_path: Path, taken: list[Snapshot], *options: str, out: str = "out.jsonl") -> bytes:
    source, target = tmp_path / "in.jsonl", tmp_path / out
    with RecordingWriter(str(source), version="0.1.0") as writer:
        for second, snapshot in enumerate(taken):
            writer.write(snapshot, float(second))
    assert main([str(source), str(target), *options]) == 0
    content = target.read_bytes()
    return gzip.decompress(content) if out.endswith(".gz") else content


def test_a_secret_in_any_text_of_the_model_does_not_survive(tmp_path: Path) -> None:
    secrets: list[str] = []
    content = scrubbed(tmp_path, [planted(Snapshot, secrets), planted(Snapshot, secrets)])
    assert len(secrets) > 100
    assert [s for s in secrets if s.encode() in content] == []


def alice(pid: int, **fields: Any) -> Process:
    return Process(
        pid=pid,
        user="alice",
        uid=52011,
        name="alices-thing",
        cwd="/home/alice/exp/merger",
        tmux="merger:0.1",
        conda_env="merger",
        container="docker:9f1c0d2b77aa",
        **fields,
    )


def secretive() -> list[Snapshot]:
    machine = SimulatedMachine("busy")
    base = machine.snapshot(1.0)
    gpu = msgspec.structs.replace(base.gpus[0], uuid="GPU-feedface-1111", gaps={"fan_pct": "x"})
    commands = (
        ("/home/alice/venv/bin/python3.11", "/home/alice/exp/train.py", "--token=hunter2"),
        ("/opt/alice/bin/merger", "-phunter2", "--alice-mode", "--lr", "hunter2"),
        ("alice: merger [hunter2]",),
        ("python", "-m", "torch.distributed.run", "-m", "merger.train", "--nproc-per-node=8"),
    )
    processes = tuple(alice(100 + i, command=c) for i, c in enumerate(commands))
    return [
        msgspec.structs.replace(
            base,
            host=Host(name="node17.merger.example.com"),
            gpus=(gpu, *base.gpus[1:]),
            processes=processes,
        )
        for _ in range(10)
    ]


@pytest.mark.parametrize("out", ["out.jsonl", "out.jsonl.gz"])
def test_names_paths_and_arguments_of_a_real_looking_box_are_gone(tmp_path: Path, out) -> None:
    content = scrubbed(tmp_path, secretive(), out=out)
    for secret in ("alice", "hunter2", "merger", "node17", "9f1c0d2b77aa", "feedface", "52011"):
        assert secret.encode() not in content, secret


def test_the_name_of_the_packed_file_is_not_in_its_head(tmp_path: Path) -> None:
    scrubbed(tmp_path, secretive(), out="alice.jsonl.gz")
    assert b"alice" not in (tmp_path / "alice.jsonl.gz").read_bytes()


def test_what_is_left_still_tells_what_kind_of_program_it_is(tmp_path: Path) -> None:
    scrubbed(tmp_path, secretive())
    snapshot = load(str(tmp_path / "out.jsonl")).snapshot(0)
    assert [p.command for p in snapshot.processes] == [
        ("python3.11", "script.py", "--token=…"),
        ("program", "-…", "-…", "--lr", "…"),
        ("program",),
        ("python", "-m", "torch.distributed.run", "-m", "…", "--nproc-per-node=…"),
    ]
    assert snapshot.host.name == "gpu-box"
    assert {p.user for p in snapshot.processes} == {"user1"}
    assert {p.uid for p in snapshot.processes} == {1001}


def test_numbers_and_identities_stay_and_stand_ins_are_the_same_all_through(tmp_path: Path) -> None:
    machine = SimulatedMachine("busy")
    taken = [machine.snapshot(1.0) for _ in range(5)]
    scrubbed(tmp_path, taken)
    recording = load(str(tmp_path / "out.jsonl"))
    first, last = recording.snapshot(0), recording.snapshot(4)
    assert [g.uuid for g in first.gpus] == [g.uuid for g in last.gpus]
    assert len({g.uuid for g in first.gpus}) == 8

    def moving(gpu: Gpu) -> Gpu:
        return msgspec.structs.replace(gpu, uuid=None)

    assert [moving(g) for g in last.gpus] == [moving(g) for g in taken[4].gpus]
    assert [p.vram_bytes for p in last.processes] == [p.vram_bytes for p in taken[4].processes]
    assert last.ledger[0] == taken[4].ledger[0]


def test_it_thins_to_one_snapshot_in_some_seconds(tmp_path: Path) -> None:
    scrubbed(tmp_path, secretive(), "--every", "3")
    assert load(str(tmp_path / "out.jsonl")).times == (0.0, 3.0, 6.0, 9.0)


def test_a_second_output_file_or_no_recording_is_exit_2(tmp_path: Path, capsys) -> None:
    scrubbed(tmp_path, secretive())
    assert main([str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl")]) == 2
    assert main([str(tmp_path / "nothing"), str(tmp_path / "new")]) == 2
    assert "exists already" in capsys.readouterr().err
