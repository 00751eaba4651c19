"""Offers that are made to programs of one framework only: vLLM, JAX, TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Iterator

from cockpit.flows import reruns
from cockpit.flows.flow import Known, Remedy

_JAX_SHARE, _JAX_DEFAULT_SHARE = "XLA_PYTHON_CLIENT_MEM_FRACTION", 0.75
_JAX_MOST = 0.9
_CACHE_ROOM = 0.05
"""Share of the card that is left for the cache when the weights fit; a guess."""
_LEFT_FREE = 0.02
"""Share of the card: what is free at one moment may be a little less at the next."""
_LEAST_SHARE = 0.3
"""A serving engine with less of a card holds no model that is worth a card."""
_LONG, _MANY = "8192", "32"
"""Context and requests at once where the command line has no number that could be halved."""
_SMALLER: dict[str, tuple[tuple[str, str, str], ...]] = {
    "tensorflow": (
        (
            "Compute in bf16",
            "tf.keras.mixed_precision.set_global_policy('mixed_bfloat16')",
            "Halves the activations on compute capability 8.0 and newer.",
        ),
    ),
    "jax": (
        (
            "Recompute activations in the backward pass",
            "@jax.checkpoint    # Flax: nn.remat(Block)",
            "Most activations are computed again instead of kept: about 30 % more time.",
        ),
    ),
}
"""Title, source and reason: no patch is made of these."""


def smaller(known: Known) -> Iterator[Remedy]:
    """What makes a program of another framework need less memory: by hand, in its own words."""
    for title, line, because in _SMALLER.get(known.framework, ()):
        values = {"title": title, "lines": (line,), "loses": "a little precision or speed"}
        yield Remedy("explain", values | {"verify": "the run passes the step"}, because=because)


def serving(known: Known) -> Iterator[Remedy]:
    """A serving engine whose budget does not hold weights and cache, or is more than is free."""
    if known.cause == "oom_other_process":
        yield from _what_is_free(known)
    if known.cause == "oom_pool_budget" and known.framework != "jax":
        yield from _larger_share(known)
        yield from _shorter(known)


def jax(known: Known) -> Iterator[Remedy]:
    """JAX takes three quarters of the card and refuses the rest."""
    if known.cause != "oom_pool_budget" or known.framework != "jax" or known.command is None:
        return
    text = known.command.environment.get(_JAX_SHARE, "")
    try:
        share = float(text or _JAX_DEFAULT_SHARE)
    except ValueError:
        return
    if share < _JAX_MOST:
        yield from reruns.rerun(
            known,
            title=f"let JAX have {_JAX_MOST * 100:.0f} % of the card",
            because=f"It has {share * 100:.0f} % now, and the pool never grows beyond that.",
            environment={_JAX_SHARE: str(_JAX_MOST)},
        )


def _what_is_free(known: Known) -> Iterator[Remedy]:
    """Only where the engine's own message tells the numbers, and what is free is worth it."""
    free, total = known.fact("free_bytes"), known.fact("total_bytes")
    if known.fact("wanted_bytes") is None or not isinstance(free, int) or not total:
        return
    share = math.floor((free / total - _LEFT_FREE) * 100) / 100
    if share >= _LEAST_SHARE:
        because = f"{free / total * 100:.0f} % of the card were free when it started."
        title = f"be content with {share * 100:.0f} % of the card"
        yield from reruns.change(known, "gpu_memory_utilization", f"{share}", title, because)


def _larger_share(known: Known) -> Iterator[Remedy]:
    cache, total = known.fact("cache_bytes"), _total(known)
    if isinstance(cache, int) and cache < 0 and total:
        more = math.ceil((-cache / total + _CACHE_ROOM) * 100) / 100
        because = "Its budget lacks that much for the weights, and a little is for the cache."
    else:
        more, because = 0.1, "How much it lacks is not known; a tenth of the card is tried."
    title = f"give the engine {more * 100:.0f} % more of the card"
    yield from reruns.change(known, "gpu_memory_utilization", f"+{more:.2f}", title, because)


def _shorter(known: Known) -> Iterator[Remedy]:
    fits = known.fact("fitting_model_len")
    if isinstance(fits, int):
        because = "So many tokens fit into its cache, by its own message."
        title = f"a context of {fits} tokens"
        yield from reruns.change(known, "max_model_len", str(fits), title, because)
    elif _is_given(known, "max-model-len"):
        because = "How much fits is not known; half of it is tried."
        yield from reruns.change(known, "max_model_len", "half", "half the context length", because)
    else:
        because = f"How much fits is not known; {_LONG} tokens are tried."
        title = f"a context of {_LONG} tokens"
        yield from reruns.change(known, "max_model_len", _LONG, title, because)
    if _is_given(known, "max-num-seqs"):
        because = "Each request at once needs its own cache; half as many are tried."
        yield from reruns.change(known, "max_num_seqs", "half", "half the requests", because)
    else:
        because = f"Each request at once needs its own cache; {_MANY} at once are tried."
        title = f"at most {_MANY} requests at once"
        yield from reruns.change(known, "max_num_seqs", _MANY, title, because)


def _is_given(known: Known, option: str) -> bool:
    words = known.command.argv if known.command is not None else ()
    return any(one.partition("=")[0].replace("_", "-") == f"--{option}" for one in words)


def _total(known: Known) -> int | None:
    """Of the card that it is to start on, where that is one, or all are alike."""
    sizes = {
        one.memory_total_bytes
        for one in known.snapshot.gpus
        if known.gpu is None or one.index == known.gpu
    }
    return sizes.pop() if len(sizes) == 1 else None
