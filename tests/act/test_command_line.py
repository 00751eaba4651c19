"""Command lines of training runs as people type them: what is found, and what a change leaves."""

from __future__ import annotations

import contextlib
import shlex

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cockpit.act.command_change import change, halve_batch
from cockpit.act.command_line import Declared, recognise
from cockpit.act.command_table import TABLE, canonical, row_of
from cockpit.act.command_words import NotUnderstoodError, find_program

UNKNOWN = "the accumulation is not known"

# command → (meaning → value), framework, the command with half the batch (None: cannot be halved)
LINES = [
    ("python train.py --batch-size 32", {"batch": "32"}, None, "python train.py --batch-size 16"),
    ("python3 train.py --batch_size=32", {"batch": "32"}, None, "python3 train.py --batch_size=16"),
    ("python train.py -b 64 -j 8", {"batch": "64", "workers": "8"}, None,
     "python train.py -b 32 -j 8"),
    ("python train.py -b64 -j8", {"batch": "64", "workers": "8"}, None, "python train.py -b32 -j8"),
    ("python -u -X dev main.py --bs 7", {"batch": "7"}, None, "python -u -X dev main.py --bs 3"),
    ("python train.py --batch-size 1", {"batch": "1"}, None, None),
    ("python train.py --batch-size auto", {"batch": "auto"}, None, None),
    ("python train.py --val-batch-size 32", {"eval_batch": "32"}, None, None),
    ("python train.py --bs 8 --grad-accum 4", {"batch": "8", "accumulation": "4"}, None,
     "python train.py --bs 4 --grad-accum 8"),
    ("python train.py --bs 8 --bs 16", {"batch": "16"}, None, "python train.py --bs 8 --bs 8"),
    ("./train.py --bs=10", {"batch": "10"}, None, "./train.py --bs=5"),
    ("python -m pkg.train --micro-batch-size 4", {"batch": "4"}, None,
     "python -m pkg.train --micro-batch-size 2"),
    ("python -c 'print(1)' --bs 4", {"batch": "4"}, None, "python -c 'print(1)' --bs 2"),
    # transformers Trainer
    ("python run_clm.py --per_device_train_batch_size 8 --bf16",
     {"batch": "8", "precision": None}, "transformers",
     "python run_clm.py --per_device_train_batch_size 4 --bf16 --gradient_accumulation_steps 2"),
    ("python clm.py --per_device_train_batch_size=8 --gradient_accumulation_steps=2 --fp16=True",
     {"batch": "8", "accumulation": "2", "precision": "True"}, "transformers",
     "python clm.py --per_device_train_batch_size=4 --gradient_accumulation_steps=4 --fp16=True"),
    ("torchrun --nproc_per_node 8 run.py --per_device_train_batch_size 2 --max_seq_length 2048",
     {"batch": "2", "sequence": "2048"}, "transformers",
     "torchrun --nproc_per_node 8 run.py --per_device_train_batch_size 1 --max_seq_length 2048"
     " --gradient_accumulation_steps 2"),
    ("trl sft --per_device_train_batch_size 4 --model m", {"batch": "4"}, "transformers",
     "trl sft --per_device_train_batch_size 2 --model m --gradient_accumulation_steps 2"),
    ("python run.py --per_device_eval_batch_size 16 --dataloader_num_workers 4",
     {"eval_batch": "16", "workers": "4"}, "transformers",
     "python run.py --per_device_eval_batch_size 16 --dataloader_num_workers 4"
     " --per_device_train_batch_size 4 --gradient_accumulation_steps 2"),
    # torchrun and its other names
    ("torchrun --standalone --nproc-per-node=4 train.py --batch-size 32", {"batch": "32"}, None,
     "torchrun --standalone --nproc-per-node=4 train.py --batch-size 16"),
    ("torchrun --nnodes 2 --rdzv-endpoint h:29500 -m pkg.train --bs 8", {"batch": "8"}, None,
     "torchrun --nnodes 2 --rdzv-endpoint h:29500 -m pkg.train --bs 4"),
    ("python -m torch.distributed.run --nproc_per_node 2 train.py --bs 8", {"batch": "8"}, None,
     "python -m torch.distributed.run --nproc_per_node 2 train.py --bs 4"),
    ("python3.11 -um torch.distributed.launch --use_env train.py -b 8", {"batch": "8"}, None,
     "python3.11 -um torch.distributed.launch --use_env train.py -b 4"),
    ("/v/bin/python /v/bin/torchrun --nproc-per-node 2 t.py --bs 8", {"batch": "8"}, None,
     "/v/bin/python /v/bin/torchrun --nproc-per-node 2 t.py --bs 4"),
    ("torchrun --no-python ./go.sh --bs 8", {"batch": "8"}, None,
     "torchrun --no-python ./go.sh --bs 4"),
    # accelerate, deepspeed
    ("accelerate launch --mixed_precision fp16 --multi_gpu t.py --train_batch_size 4",
     {"precision": "fp16", "batch": "4"}, "accelerate",
     "accelerate launch --mixed_precision fp16 --multi_gpu t.py --train_batch_size 2"),
    ("accelerate launch --num_processes 2 --gradient_accumulation_steps 2 t.py --batch_size 4",
     {"accumulation": "2", "batch": "4"}, "accelerate",
     "accelerate launch --num_processes 2 --gradient_accumulation_steps 4 t.py --batch_size 2"),
    ("python -m accelerate.commands.launch --use_cpu t.py --bs 4",
     {"device": None, "batch": "4"}, "accelerate",
     "python -m accelerate.commands.launch --use_cpu t.py --bs 2"),
    ("deepspeed --num_gpus 2 t.py --deepspeed ds.json --train_batch_size 6",
     {"batch": "6"}, "deepspeed",
     "deepspeed --num_gpus 2 t.py --deepspeed ds.json --train_batch_size 3"),
    ("deepspeed --module pkg.train --micro_batch_size 4", {"batch": "4"}, "deepspeed",
     "deepspeed --module pkg.train --micro_batch_size 2"),
    # Lightning, NeMo, hydra
    ("python main.py fit --data.batch_size 32 --trainer.accumulate_grad_batches 2"
     " --trainer.precision 16-mixed",
     {"batch": "32", "accumulation": "2", "precision": "16-mixed"}, "lightning",
     "python main.py fit --data.batch_size 16 --trainer.accumulate_grad_batches 4"
     " --trainer.precision 16-mixed"),
    ("python gpt.py trainer.precision=bf16 model.micro_batch_size=4 model.global_batch_size=32",
     {"precision": "bf16", "batch": "4", "global_batch": "32"}, "nemo",
     "python gpt.py trainer.precision=bf16 model.micro_batch_size=2 model.global_batch_size=32"),
    ("python asr.py model.train_ds.batch_size=16 model.validation_ds.batch_size=8"
     " ++trainer.accumulate_grad_batches=1",
     {"batch": "16", "eval_batch": "8", "accumulation": "1"}, "nemo",
     "python asr.py model.train_ds.batch_size=8 model.validation_ds.batch_size=8"
     " ++trainer.accumulate_grad_batches=2"),
    ("python t.py --config-name big train.batch_size=32 +train.accum_steps=2",
     {"batch": "32", "accumulation": "2"}, None,
     "python t.py --config-name big train.batch_size=16 +train.accum_steps=4"),
    ("python t.py -m batch_size=16,32", {"batch": "16,32"}, None, None),
    ("python t.py --run-name batch_size=32 --bs 4", {"batch": "4"}, None,
     "python t.py --run-name batch_size=32 --bs 2"),
    ("python t.py --cfg-options data.samples_per_gpu=2", {"batch": "2"}, None,
     "python t.py --cfg-options data.samples_per_gpu=1"),
    ("python plain_train_net.py --num-gpus 8 SOLVER.IMS_PER_BATCH 16", {"global_batch": "16"}, None,
     "python plain_train_net.py --num-gpus 8 SOLVER.IMS_PER_BATCH 8"),
    ("yolo detect train batch=16 workers=8 device=0", {"batch": "16", "workers": "8",
     "device": "0"}, "yacs", "yolo detect train batch=8 workers=8 device=0"),
    # TensorFlow/Keras, JAX/Flax
    ("python keras_train.py --batch_size=256 --mixed_precision=fp16",
     {"batch": "256", "precision": "fp16"}, None,
     "python keras_train.py --batch_size=128 --mixed_precision=fp16"),
    ("python main.py --config.batch_size=512 --workdir=/tmp/x", {"batch": "512"}, None,
     "python main.py --config.batch_size=256 --workdir=/tmp/x"),
    ("python -m MaxText.train base.yml per_device_batch_size=8", {"batch": "8"}, None,
     "python -m MaxText.train base.yml per_device_batch_size=4"),
    # vLLM
    ("vllm serve meta/m --gpu-memory-utilization 0.95 --max-model-len=8192 --max-num-seqs 64",
     {"gpu_memory_utilization": "0.95", "max_model_len": "8192", "max_num_seqs": "64"},
     "vllm", None),
    ("python -m vllm.entrypoints.openai.api_server --model m --dtype half",
     {"precision": "half"}, "vllm", None),
    # wrappers
    ("env CUDA_VISIBLE_DEVICES=0 OMP_NUM_THREADS=4 python t.py --bs 8", {"batch": "8"}, None,
     "env CUDA_VISIBLE_DEVICES=0 OMP_NUM_THREADS=4 python t.py --bs 4"),
    ("nohup nice -n 10 taskset -c 0-7 python t.py --bs 8", {"batch": "8"}, None,
     "nohup nice -n 10 taskset -c 0-7 python t.py --bs 4"),
    ("numactl --cpunodebind=0 --membind 0 python t.py --bs 8", {"batch": "8"}, None,
     "numactl --cpunodebind=0 --membind 0 python t.py --bs 4"),
    ("timeout -k 5 1h python t.py --bs 8", {"batch": "8"}, None,
     "timeout -k 5 1h python t.py --bs 4"),
    ("srun -N1 -n4 --gres=gpu:4 --cpus-per-task 8 python t.py --bs 8", {"batch": "8"}, None,
     "srun -N1 -n4 --gres=gpu:4 --cpus-per-task 8 python t.py --bs 4"),
    ("mpirun -np 4 -x PATH --mca btl tcp python t.py --bs 8", {"batch": "8"}, None,
     "mpirun -np 4 -x PATH --mca btl tcp python t.py --bs 4"),
    ("uv run --with wandb --python 3.12 t.py --bs 8", {"batch": "8"}, None,
     "uv run --with wandb --python 3.12 t.py --bs 4"),
    ("uv run accelerate launch t.py --bs 8", {"batch": "8"}, "accelerate",
     "uv run accelerate launch t.py --bs 4"),
    ("conda run -n env --no-capture-output python t.py --bs 8", {"batch": "8"}, None,
     "conda run -n env --no-capture-output python t.py --bs 4"),
    ("docker run --rm --gpus all -v /d:/d -e A=1 img:1 python t.py --bs 8", {"batch": "8"}, None,
     "docker run --rm --gpus all -v /d:/d -e A=1 img:1 python t.py --bs 4"),
    ("apptainer exec --nv -B /d img.sif python t.py --bs 8", {"batch": "8"}, None,
     "apptainer exec --nv -B /d img.sif python t.py --bs 4"),
    ("bash -c 'A=1 exec python t.py --bs 8'", {"batch": "8"}, None,
     "bash -c 'A=1 exec python t.py --bs 4'"),
    ("bash -lc 'torchrun --nproc-per-node 2 \"my train.py\" --bs 8'", {"batch": "8"}, None,
     "bash -lc 'torchrun --nproc-per-node 2 '\"'\"'my train.py'\"'\"' --bs 4'"),
    ("bash train.sh --bs 8", {"batch": "8"}, None, "bash train.sh --bs 4"),
    ("nsys profile -o out --trace=cuda python t.py --bs 8", {"batch": "8"}, None,
     "nsys profile -o out --trace=cuda python t.py --bs 4"),
    ("cockpit run --name x -- python t.py --bs 8", {"batch": "8"}, None,
     "cockpit run --name x -- python t.py --bs 4"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "found", "framework", "halved"), LINES, ids=lambda v: str(v)[:60])
def test_a_command_line_is_taken_apart_and_its_batch_is_halved(
    line: str, found: dict[str, str | None], framework: str | None, halved: str | None
) -> None:
    argv = shlex.split(line)
    known = recognise(argv)
    assert known.refusal is None
    assert {m: known.last(m).value for m in {one.meaning for one in known.found}} == found  # type: ignore[union-attr,arg-type]
    assert known.framework == framework
    smaller = halve_batch(argv)
    assert (None if smaller is None else list(smaller.argv)) == (
        None if halved is None else shlex.split(halved)
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("bash -c 'cd /x && python t.py --bs 8'", "string"),
        ("bash -c 'python t.py --bs $BS'", "string"),
        ("sh -c 'for i in 1 2; do python t.py; done'", "string"),
        ("bash", "reads its commands"),
        ("ssh host python t.py --bs 8", "another machine"),
        ("sudo python t.py --bs 8", "sudo"),
        ("torchrun --nproc-per-node 2", "ends before"),
        ("python -X", "ends before"),
    ],
)
def test_what_a_shell_or_somebody_else_still_works_on_is_refused_and_not_guessed(
    line: str, why: str
) -> None:
    argv = shlex.split(line)
    known = recognise(argv)
    assert why in (known.refusal or "")
    assert known.found == ()
    assert halve_batch(argv) is None
    assert change(argv, "workers", "2") is None


CHANGES = [
    # precision, in the words that were used before
    ("python t.py --fp16 --per_device_train_batch_size 8", "precision", "bf16",
     "python t.py --per_device_train_batch_size 8 --bf16"),
    ("python t.py --bf16 True --per_device_train_batch_size 8", "precision", "fp32",
     "python t.py --bf16 False --per_device_train_batch_size 8"),
    ("python t.py --precision 16-mixed", "precision", "bf16",
     "python t.py --precision bf16-mixed"),
    ("python t.py trainer.precision=16 model.x=1", "precision", "bf16",
     "python t.py trainer.precision=bf16 model.x=1"),
    ("python t.py trainer.precision=bf16 model.x=1", "precision", "fp32",
     "python t.py trainer.precision=32 model.x=1"),
    ("accelerate launch --mixed_precision no t.py", "precision", "bf16",
     "accelerate launch --mixed_precision bf16 t.py"),
    ("vllm serve m --dtype float16", "precision", "bf16", "vllm serve m --dtype bfloat16"),
    ("vllm serve m", "precision", "bf16", "vllm serve m --dtype bfloat16"),
    ("python t.py --amp", "precision", "bf16", None),
    ("python t.py", "precision", "bf16", None),
    # things switched on and off
    ("python t.py --logging_steps 1", "checkpointing", "on",
     "python t.py --logging_steps 1 --gradient_checkpointing"),
    ("python t.py --logging_steps=1 -- rest", "workers", "4",
     "python t.py --logging_steps=1 --dataloader_num_workers=4 -- rest"),
    ("python t.py --grad-checkpointing", "checkpointing", "on", None),
    ("python t.py --gradient_checkpointing False", "checkpointing", "on",
     "python t.py --gradient_checkpointing True"),
    ("python t.py --compile --bs 4", "compile", "off", "python t.py --bs 4"),
    ("python t.py compile=true", "compile", "off", "python t.py compile=false"),
    ("vllm serve m", "compile", "off", "vllm serve m --enforce-eager"),
    ("vllm serve m --enforce-eager", "compile", "off", None),
    # the CPU by mistake
    ("python t.py --device cpu", "device", "cuda", "python t.py --device cuda"),
    ("python t.py --device=cpu --no-cuda", "device", "cuda", "python t.py --device=cuda"),
    ("python t.py --trainer.accelerator cpu", "device", "cuda",
     "python t.py --trainer.accelerator gpu"),
    ("python t.py --use_cpu true", "device", "cuda", "python t.py --use_cpu false"),
    ("python t.py --device cuda:1", "device", "cuda", None),
    ("python t.py --cuda 0", "device", "cuda", None),
    # numbers
    ("python t.py --num-workers=0", "workers", "8", "python t.py --num-workers=8"),
    ("python t.py", "workers", "8", None),
    ("vllm serve m --max-num-seqs 256", "max_num_seqs", "64", "vllm serve m --max-num-seqs 64"),
    ("vllm serve m", "gpu_memory_utilization", "0.8",
     "vllm serve m --gpu-memory-utilization 0.8"),
    ("python t.py --seq-len 4096", "sequence", "2048", "python t.py --seq-len 2048"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "meaning", "value", "after"), CHANGES, ids=lambda v: str(v)[:50])
def test_one_thing_is_set_and_added_only_where_it_is_known_to_exist(
    line: str, meaning: str, value: str, after: str | None
) -> None:
    done = change(shlex.split(line), meaning, value)  # type: ignore[arg-type]
    assert (None if done is None else shlex.join(done.argv)) == after


def test_halving_says_what_it_does_to_the_effective_batch() -> None:
    alone = halve_batch(("python", "t.py", "--bs", "8"))
    assert alone is not None
    assert alone.notes[0].startswith(UNKNOWN)
    odd = halve_batch(("python", "t.py", "--bs", "7", "--grad-accum", "2"))
    assert odd is not None
    assert odd.argv[-3:] == ("3", "--grad-accum", "4")
    assert odd.notes == ("the effective batch becomes 12 instead of 14",)
    even = halve_batch(("python", "t.py", "--bs", "8", "--grad-accum", "2"))
    assert even is not None
    assert even.notes == ()
    assert [(e.name, e.before, e.after) for e in even.edits] == [
        ("--bs", "8", "4"),
        ("--grad-accum", "2", "4"),
    ]


def test_of_a_global_batch_only_the_accumulation_is_doubled() -> None:
    done = halve_batch(("python", "t.py", "--global-batch-size", "64", "--grad-accum", "2"))
    assert done is not None
    assert done.argv == ("python", "t.py", "--global-batch-size", "64", "--grad-accum", "4")


def test_the_evaluation_batch_is_halved_by_itself() -> None:
    line = ("python", "t.py", "--bs", "8", "--eval-batch-size", "64", "--grad-accum", "2")
    done = halve_batch(line, of="eval_batch")
    assert done is not None
    assert done.argv == (*line[:5], "32", *line[6:])


def test_deepspeeds_own_file_is_named_for_it_may_contradict() -> None:
    done = halve_batch(shlex.split("deepspeed t.py --deepspeed d.json --batch_size 4"))
    assert done is not None
    assert any("DeepSpeed" in note for note in done.notes)


def test_what_a_program_declares_counts_before_the_table() -> None:
    beta = (Declared(("-b", "--beta"), True, "0.9"), Declared(("--size",), True, "3"))
    assert recognise(("python", "t.py", "-b", "32"), beta).found == ()
    short = (Declared(("-x", "--batch-size"), True, "32"),)
    found = recognise(("python", "t.py", "-x", "16"), short).last("batch")
    assert found is not None
    assert (found.name, found.value) == ("-x", "16")


def test_defaults_that_a_program_declares_are_halved_and_doubled() -> None:
    declared = (
        Declared(("-b", "--batch-size"), True, "32"),
        Declared(("--accum-steps",), True, "1"),
        Declared(("--workers",), True, "4"),
    )
    done = halve_batch(("python", "t.py", "--lr", "1"), declared)
    assert done is not None
    assert done.argv[4:] == ("--batch-size", "16", "--accum-steps", "2")
    assert change(("python", "t.py"), "workers", "2", declared).argv[2:] == ("--workers", "2")  # type: ignore[union-attr]


def test_declared_choices_say_how_a_precision_is_spelled() -> None:
    declared = (Declared(("--amp-dtype",), True, "float16", ("float16", "bfloat16")),)
    done = change(("python", "t.py"), "precision", "bf16", declared)
    assert done is not None
    assert done.argv[2:] == ("--amp-dtype", "bfloat16")
    only = (Declared(("--precision",), True, None, ("fp32", "fp16")),)
    assert change(("python", "t.py", "--precision", "fp32"), "precision", "bf16", only) is None


def test_every_row_of_the_table_has_a_source_and_no_name_means_two_things() -> None:
    seen: dict[str, str] = {}
    for row in TABLE:
        assert row.source
        for name in row.names:
            assert canonical(name) == name
            assert seen.setdefault(name, row.meaning) == row.meaning, name
            assert row_of(name) is not None


WORD = st.text(alphabet="abcb-=_.1 $'\n\"é/[]{}", max_size=8)
TYPED = "--batch-size --bs=32 -b32 32 --fp16 --bf16 True --device cpu train.batch_size=8 -- -j"
MORE = "--grad-accum 4 --compile --no-cuda -m SOLVER.IMS_PER_BATCH --logging_steps 16-mixed -x"
PART = st.one_of(WORD, st.sampled_from([*TYPED.split(), *MORE.split(), "--precision"]))
HEADS = [
    ("python", "t.py"),
    ("torchrun", "--nproc-per-node", "2", "t.py"),
    ("accelerate", "launch", "--mixed_precision", "fp16", "t.py"),
    ("vllm", "serve", "m"),
]
THINGS = [("batch", "3"), ("accumulation", "3"), ("workers", "3"), ("precision", "bf16")]
THINGS += [("precision", "fp32"), ("checkpointing", "on"), ("compile", "off"), ("device", "cuda")]


@settings(deadline=None)  # two cores, shared
@given(st.sampled_from(HEADS), st.lists(PART, max_size=8), st.sampled_from(THINGS))
@example(("python", "t.py"), ["--logging_steps", "SOLVER.IMS_PER_BATCH"], ("batch", "3"))
def test_a_change_leaves_every_other_word_as_it_was(
    head: tuple[str, ...], rest: list[str], thing: tuple[str, str]
) -> None:
    argv = (*head, *rest)
    known = recognise(argv)
    done = change(argv, *thing)  # type: ignore[arg-type]
    if done is None:
        return
    touched = {
        at for one in known.found if one.meaning == thing[0] for at in (one.at, one.value_at)
    }
    kept = [word for at, word in enumerate(argv) if at not in touched]
    left = list(done.argv)
    for word in kept:  # all of them, in their order; between them only what was changed or added
        at = left.index(word)
        assert at <= len(touched) + 2
        del left[: at + 1]
    assert done.argv[: len(head) - 1] == head[:-1] or "mixed_precision" in " ".join(head)
    assert change(done.argv, *thing) is None or thing[0] == "precision"  # type: ignore[arg-type]


@settings(deadline=None)  # two cores, shared
@given(st.lists(WORD, max_size=6))
def test_no_command_line_makes_it_fail(words: list[str]) -> None:
    with contextlib.suppress(NotUnderstoodError):
        program = find_program(words)
        assert program.arguments_at <= len(program.words)
    halve_batch(words)


@settings(deadline=None)  # two cores, shared
@given(st.lists(st.text(alphabet="ab '\"-=1", max_size=6), max_size=5))
def test_words_inside_a_shells_string_come_back_as_they_were(rest: list[str]) -> None:
    inner = ["python", "t.py", *rest, "--bs", "8"]
    done = change(("bash", "-c", shlex.join(inner)), "batch", "4")
    if done is None:
        assert rest
        return
    assert shlex.split(done.argv[2])[:2] == inner[:2]
    assert shlex.split(done.argv[2])[2:-1] == [*rest, "--bs"] or "--bs" in rest
