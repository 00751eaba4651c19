"""How training programs call their batch size, accumulation, precision …: data, with its source.

Names are written with ``_`` and without dashes; ``--batch-size``, ``--batch_size`` and the last
part of ``data.batch_size=32`` all mean ``batch_size``. No code but what looks a name up.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Meaning = Literal[
    "batch",
    "global_batch",
    "eval_batch",
    "accumulation",
    "workers",
    "precision",
    "checkpointing",
    "sequence",
    "compile",
    "gpu_memory_utilization",
    "max_model_len",
    "max_num_seqs",
    "device",
]
Kind = Literal["value", "switch", "off_switch"]
"""``off_switch``: its presence turns the thing off (``--no-cuda``, ``--enforce-eager``)."""


class Row(NamedTuple):
    """The names under which a framework takes one thing."""

    meaning: Meaning
    kind: Kind
    names: tuple[str, ...]
    framework: str
    source: str
    """The page that has them."""
    says: str | None = None
    """What a switch says: ``bf16`` of ``--bf16``."""
    add: bool = False
    """May be added where the framework is known, for each of its programs takes it."""
    default: str | None = None
    """The framework's, where it is documented."""


_HF = "Hugging Face, transformers: Trainer, TrainingArguments"
_ACCELERATE = "Hugging Face, Accelerate: command line, accelerate launch"
_LIGHTNING = "Lightning: Trainer; LightningCLI"
_DEEPSPEED = "DeepSpeed: configuration JSON, batch size; Megatron-LM: training arguments"
_NEMO = "NVIDIA NeMo: exp_manager and trainer configuration; NeMo models, configuration files"
_VLLM = "vLLM: engine arguments (vllm serve)"
_TORCH = "pytorch/examples imagenet and mnist; torchvision references; timm training scripts"
_JAX = "Flax and MaxText examples: configuration flags"
_YACS = "detectron2: config reference; ultralytics: train settings; fairseq: command line tools"

TABLE: tuple[Row, ...] = (
    # batch sizes of one device
    Row(
        "batch",
        "value",
        ("per_device_train_batch_size",),
        "transformers",
        _HF,
        add=True,
        default="8",
    ),
    Row("batch", "value", ("per_gpu_train_batch_size", "train_batch_size"), "transformers", _HF),
    Row(
        "batch",
        "value",
        ("batch_size", "batchsize", "bs", "bsz", "b", "batch", "train_bs", "train_bsz", "bz"),
        "torch",
        _TORCH,
    ),
    Row(
        "batch",
        "value",
        ("batch_size_per_gpu", "batch_size_per_device", "samples_per_gpu", "local_batch_size"),
        "torch",
        _TORCH,
    ),
    Row("batch", "value", ("device_batch_size", "per_gpu_batch_size"), "torch", _TORCH),
    Row("batch", "value", ("per_device_batch_size", "batch_size_per_replica"), "jax", _JAX),
    Row(
        "batch",
        "value",
        ("micro_batch_size", "mbs", "micro_bs", "train_micro_batch_size_per_gpu"),
        "deepspeed",
        _DEEPSPEED,
    ),
    Row("batch", "value", ("microbatch_size", "micro_batch", "mb"), "nemo", _NEMO),
    Row("global_batch", "value", ("global_batch_size", "gbs"), "nemo", _NEMO),
    Row("global_batch", "value", ("total_batch_size", "effective_batch_size"), "torch", _TORCH),
    Row("global_batch", "value", ("global_train_batch_size",), "deepspeed", _DEEPSPEED),
    Row("global_batch", "value", ("ims_per_batch",), "yacs", _YACS),
    Row(
        "eval_batch",
        "value",
        ("per_device_eval_batch_size", "per_gpu_eval_batch_size"),
        "transformers",
        _HF,
        add=True,
        default="8",
    ),
    Row(
        "eval_batch",
        "value",
        (
            *("eval_batch_size", "val_batch_size", "valid_batch_size", "validation_batch_size"),
            *("test_batch_size", "eval_bs", "val_bs", "vb", "test_bs", "batch_size_eval"),
            *("predict_batch_size", "generation_batch_size", "batch_size_val"),
        ),
        "torch",
        _TORCH,
    ),
    # accumulation
    Row(
        "accumulation",
        "value",
        ("gradient_accumulation_steps",),
        "transformers",
        _HF,
        add=True,
        default="1",
    ),
    Row(
        "accumulation",
        "value",
        ("accumulate_grad_batches",),
        "lightning",
        _LIGHTNING,
        default="1",
    ),
    Row(
        "accumulation",
        "value",
        (
            *("grad_accum_steps", "accum_steps", "accumulation_steps", "accum_iter", "accum"),
            *("grad_accum", "grad_accumulation_steps", "gradient_accumulation", "grad_acc_steps"),
            *("gradient_accumulation_iters", "iters_to_accumulate", "accum_grad", "acc_steps"),
            *("grad_accum_every", "num_accumulation_steps", "grad_acc", "gas", "accumulate"),
        ),
        "torch",
        _TORCH,
    ),
    Row("accumulation", "value", ("update_freq",), "yacs", _YACS),
    # loading
    Row(
        "workers",
        "value",
        ("dataloader_num_workers",),
        "transformers",
        _HF,
        add=True,
        default="0",
    ),
    Row(
        "workers",
        "value",
        (
            *("workers", "num_workers", "j", "nworkers", "n_workers", "data_workers", "n_cpu"),
            *("num_data_workers", "loader_workers", "dataloader_workers", "num_loader_workers"),
            *("preprocessing_num_workers_train", "workers_per_gpu", "train_num_workers"),
        ),
        "torch",
        _TORCH,
    ),
    # precision
    Row("precision", "switch", ("bf16",), "transformers", _HF, says="bf16", add=True),
    Row("precision", "switch", ("fp16",), "transformers", _HF, says="fp16", add=True),
    Row("precision", "value", ("precision",), "lightning", _LIGHTNING, default="32-true"),
    Row("precision", "value", ("mixed_precision",), "accelerate", _ACCELERATE, default="no"),
    Row("precision", "value", ("dtype",), "vllm", _VLLM, add=True, default="auto"),
    Row("precision", "value", ("torch_dtype", "amp_dtype", "model_dtype"), "torch", _TORCH),
    Row("precision", "switch", ("amp", "use_amp", "use_fp16", "half"), "torch", _TORCH, "fp16"),
    Row("precision", "switch", ("use_bf16", "bfloat16"), "torch", _TORCH, says="bf16"),
    Row("precision", "switch", ("enable_bf16_training",), "deepspeed", _DEEPSPEED, says="bf16"),
    # memory against time
    Row(
        "checkpointing",
        "switch",
        ("gradient_checkpointing",),
        "transformers",
        _HF,
        says="on",
        add=True,
        default="off",
    ),
    Row(
        "checkpointing",
        "switch",
        (
            *("grad_checkpointing", "activation_checkpointing", "use_checkpoint", "grad_ckpt"),
            *("use_gradient_checkpointing", "checkpoint_activations", "use_grad_checkpoint"),
            *("enable_gradient_checkpointing", "recompute_activations", "use_checkpointing"),
        ),
        "torch",
        _TORCH,
        says="on",
    ),
    Row(
        "sequence",
        "value",
        (
            *("max_seq_length", "max_seq_len", "seq_length", "seq_len", "sequence_length"),
            *("block_size", "max_length", "model_max_length", "context_length", "cutoff_len"),
            *("max_sequence_length", "max_source_length", "encoder_seq_length", "max_tokens_len"),
            *("max_target_length", "max_position_length"),
        ),
        "transformers",
        _HF + "; NVIDIA NeMo: model configuration",
    ),
    # torch.compile
    Row(
        "compile",
        "switch",
        ("torch_compile",),
        "transformers",
        _HF,
        says="on",
        add=True,
        default="off",
    ),
    Row(
        "compile",
        "switch",
        ("compile", "torchcompile", "use_compile", "compile_model", "use_torch_compile"),
        "torch",
        _TORCH,
        says="on",
    ),
    Row("compile", "off_switch", ("no_compile", "disable_compile"), "torch", _TORCH, "off"),
    Row("compile", "off_switch", ("enforce_eager",), "vllm", _VLLM, says="off", add=True),
    # a serving engine's budget
    Row(
        "gpu_memory_utilization",
        "value",
        ("gpu_memory_utilization",),
        "vllm",
        _VLLM,
        add=True,
        default="0.9",
    ),
    Row("max_model_len", "value", ("max_model_len",), "vllm", _VLLM, add=True),
    Row("max_num_seqs", "value", ("max_num_seqs",), "vllm", _VLLM, add=True),
    # where it computes
    Row("device", "value", ("device", "accelerator"), "torch", _TORCH + "; " + _LIGHTNING),
    Row(
        "device",
        "off_switch",
        ("no_cuda", "use_cpu", "cpu", "no_gpu", "disable_cuda", "force_cpu", "cpu_only"),
        "transformers",
        _HF + "; " + _ACCELERATE + "; " + _TORCH,
        says="cpu",
    ),
    Row("device", "switch", ("cuda", "use_cuda", "use_gpu"), "torch", _TORCH, "cuda"),
)

SHORT = frozenset(("b", "j", "vb", "bs", "mb"))
"""Names that also stand behind one dash; of one letter the value may follow at once (``-b32``)."""
ONLY_WITH_DASHES = frozenset(("b", "j", "vb", "mb", "cpu", "gpu", "half", "cuda"))
"""Too short for ``name=value`` words, which other programs use for other things."""
EVALUATION = frozenset(("val", "valid", "validation", "eval", "evaluation", "test", "predict"))
"""A part of a dotted name: ``data.val.batch_size`` is not the training batch."""

_BY_NAME: dict[str, Row] = {name: row for row in reversed(TABLE) for name in row.names}


def row_of(name: str) -> Row | None:
    """By the canonical name."""
    return _BY_NAME.get(name)


def addable(meaning: Meaning, framework: str | None) -> tuple[Row, ...]:
    """Rows of that meaning that every program of the framework takes."""
    return tuple(r for r in TABLE if r.add and r.meaning == meaning and r.framework == framework)


def canonical(name: str) -> str:
    """``--Batch-Size`` is ``batch_size``; of ``trainer.precision`` the last part."""
    return name.lstrip("+-~").replace("-", "_").lower().rpartition(".")[2]


def parts_of(name: str) -> tuple[str, ...]:
    """``data.val_loader.batch-size`` → ``data val loader``: words before the last part."""
    before = name.lstrip("+-~").lower().rpartition(".")[0]
    return tuple(word for word in before.replace("-", "_").replace(".", "_").split("_") if word)


WORDS: dict[str, dict[str, str]] = {
    "lightning": {"bf16": "bf16-mixed", "fp16": "16-mixed", "fp32": "32-true"},
    "accelerate": {"bf16": "bf16", "fp16": "fp16", "fp32": "no"},
    "dtype": {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"},
    "short": {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"},
    "number": {"bf16": "bf16", "fp16": "16", "fp32": "32"},
}
"""Vocabularies for precisions, by the page or the way in which the old value was written."""
MEANT = {
    **dict.fromkeys(("bf16", "bfloat16", "bf16-mixed", "bf16-true"), "bf16"),
    **dict.fromkeys(("fp16", "float16", "half", "16", "16-mixed", "16-true"), "fp16"),
    **dict.fromkeys(("fp32", "float32", "32", "32-true", "no", "float", "full"), "fp32"),
}
"""What the words mean."""
