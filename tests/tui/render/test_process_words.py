"""Commands without what every command has in common."""

from __future__ import annotations

import pytest

from cockpit.model.process import DeviceUse, Process
from cockpit.tui.render.process_words import command_words, gpus_words, is_idle, place_words


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("/opt/conda/bin/python3.11", "-u", "/home/x/a.py", "--lr", "1"), "python a.py --lr 1"),
        (("python", "-X", "dev", "-W", "ignore", "a.py"), "python a.py"),
        (("python", "-m", "pkg.train", "--x"), "python -m pkg.train --x"),
        (("python", "-m", "torch.distributed.run", "--nnodes", "4", "t.py"), "torchrun t.py"),
        (("/usr/bin/python3", "/opt/bin/torchrun", "--standalone", "t.py"), "torchrun t.py"),
        (("torchrun", "--nproc-per-node=8", "sub/train.py", "--a"), "torchrun train.py --a"),
        (("/opt/env/bin/python", "/opt/env/bin/vllm", "serve", "m"), "vllm serve m"),
        (("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()"),
         "python multiprocessing worker"),
        (("python", "-m", "ipykernel_launcher", "-f", "k"), "jupyter kernel (ipykernel_launcher)"),
        (("python",), "python"),
        (("python", "-u"), "python"),
        (("VLLM::EngineCore",), "VLLM::EngineCore"),
        (("/usr/lib/xorg/Xorg", ":0"), "Xorg :0"),
        (("ray::train[x] worker",), "ray::train[x] worker"),
        ((), "?"),
    ],
)  # fmt: skip
def test_a_command_is_called(command, words):
    assert command_words(Process(pid=1, command=command)) == words


def test_escape_sequences_and_joiners_do_not_pass():
    words = command_words(Process(pid=1, command=("python", "a\x1b[2J\u202e.py", "x\u200dy\ufe0f")))
    assert "\x1b" not in words
    assert "\u202e" not in words
    assert "\ufe0f" not in words


def test_the_rank_follows_the_script():
    process = Process(pid=1, command=("torchrun", "t.py", "--a"), rank=3)
    assert command_words(process) == "torchrun t.py (rank 3) --a"
    assert command_words(process, with_rank=False) == "torchrun t.py --a"


def test_gpus_of_mig_and_whole_ones_together():
    uses = (
        DeviceUse(gpu=1, vram_bytes=None, sm_pct=None, mig_instance=2),
        DeviceUse(gpu=4, vram_bytes=None, sm_pct=None),
        DeviceUse(gpu=5, vram_bytes=None, sm_pct=None),
    )
    assert gpus_words(Process(pid=1, devices=uses)) == "4-5,1:2"
    assert gpus_words(Process(pid=1)) == "–"


def test_what_is_not_known_is_not_idle():
    assert not is_idle(Process(pid=1))
    assert is_idle(Process(pid=1, cpu_pct=0.4))
    assert not is_idle(Process(pid=1, cpu_pct=40.0))


def test_places_come_with_the_job_first_and_short_container_ids():
    process = Process(
        pid=1, container="docker:" + "ab" * 32, conda_env="/opt/envs/llm", slurm_job="7"
    )
    assert place_words(process) == "job 7 docker:abababababab env llm"
