"""From the frames of a training thread to what it is doing: waits for data, for the GPU, launches.

A line that reads a value of the GPU is known by its text: ``.item()`` is C and has no frame.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from cockpit.diagnose.live.look import Look, LookFrame

Doing = Literal[
    "loader",  # waits for workers of a DataLoader
    "loading",  # makes the batch itself
    "sync",  # reads a value of the GPU, or waits for it by name
    "collective",  # inside torch.distributed
    "dispatch",  # launches operations: torch's Python is innermost
    "compile",
    "own",  # the user's own line, no sync in it
    "other",
]

_PACKAGES = r"/(?:site|dist)-packages/"
_SYNC = re.compile(
    r"\.(?:item|cpu|tolist|numpy|nonzero)\(|\bsynchronize\(|\bprint\(|\.to\(\s*[\"']cpu"
    r"|\b(?:float|int|bool)\(\s*[\w.]*(?:loss|acc|logit|score|norm|grad|pred|out|tensor|correct)"
    r"|\bempty_cache\(|masked_select\("
    r"|^\s*(?:if|elif|while|assert)\b.*(?:isnan|isfinite|isinf|\.any\(|\.all\(|loss)"
)
_SYNC_FRAME = re.compile(r"/torch/(?:_tensor_str|cuda/(?:__init__|streams))\.py$")
_SYNC_FUNCTIONS = frozenset({"synchronize", "tolist", "_str", "_str_intern", "_tensor_str"})
_LOADER = re.compile(r"/torch/utils/data/dataloader\.py$")
_LOADER_WAIT = frozenset({"_next_data", "_get_data", "_try_get_data", "__next__"})
_FETCH = re.compile(r"/torch/utils/data/_utils/fetch\.py$")
_LOADING = re.compile(
    _PACKAGES
    + r"(?:(?:PIL|cv2|datasets|webdataset|torchaudio|torchcodec|decord|albumentations|h5py|zarr"
    r"|pandas|pyarrow|imageio|soundfile|librosa|streaming|ffcv)/"
    r"|torchvision/(?:io|transforms|datasets)/)"
)
_COLLECTIVE = re.compile(r"/torch/distributed/(?:distributed_c10d|_functional_collectives)\.py$")
_COMPILE = re.compile(
    r"/torch/(?:_dynamo/(?:convert_frame|symbolic_convert|output_graph)"
    r"|_inductor/(?:compile_fx|codecache|async_compile|scheduler|graph|lowering))\.py$"
    r"|/triton/compiler/"
)
"""Only while something is compiled: a compiled model runs through other files of both."""
_SAVING = re.compile(
    r"/torch/(?:serialization|storage|_weights_only_unpickler|hub)\.py$|/torch/package/"
)
_TORCH = re.compile(
    rf"(?:{_PACKAGES}|/pytorch/)(?:torch|functorch|triton|transformer_engine|apex|deepspeed"
    r"|flash_attn)/|/torchinductor_"
)
_LIBRARY = re.compile(rf"{_PACKAGES}|^<|/lib/python\d[\d.]*/|/pytorch/torch/|/torchinductor_")
_SCALER = re.compile(r"/torch/(?:cuda/)?amp/grad_scaler\.py$")


def doing(frames: Sequence[LookFrame]) -> Doing:
    """What the innermost frames say. Never empty-handed: ``other``."""
    if not frames:
        return "other"
    if any(_COMPILE.search(frame.file) for frame in frames[:12]):
        return "compile"
    if any(_FETCH.search(frame.file) for frame in frames):
        return "loading"
    if any(_LOADER.search(f.file) and f.function in _LOADER_WAIT for f in frames):
        return "loader"
    if any(_COLLECTIVE.search(frame.file) for frame in frames[:6]):
        return "collective"
    if _syncs(frames[0]):
        return "sync"
    if any(_LOADING.search(frame.file) for frame in frames[:8]):
        return "loading"
    if any(_SAVING.search(frame.file) for frame in frames[:8]):
        return "other"
    if _TORCH.search(frames[0].file):
        return "dispatch"
    return "own" if not is_library(frames[0].file) else "other"


def _syncs(frame: LookFrame) -> bool:
    if _SYNC_FRAME.search(frame.file) and frame.function in _SYNC_FUNCTIONS:
        return True
    if _SCALER.search(frame.file):  # one read of a flag in each step, by design
        return False
    return frame.text is not None and _SYNC.search(frame.text) is not None


def is_library(file: str) -> bool:
    """Installed or frozen code: not the user's own."""
    return _LIBRARY.search(file) is not None


def own_frame(frames: Sequence[LookFrame]) -> LookFrame | None:
    """The innermost frame of the user's own code."""
    return next((frame for frame in frames if not is_library(frame.file)), None)


def place(frame: LookFrame | None) -> str | None:
    """``/home/me/train.py:41``."""
    return None if frame is None else f"{frame.file}:{frame.line}"


def short_place(frame: LookFrame | None) -> str | None:
    """``train.py:41``, for titles."""
    return None if frame is None else f"{frame.file.rpartition('/')[2]}:{frame.line}"


def most_common_frame(looks: Sequence[Look], kind: Doing) -> LookFrame | None:
    """The user's own line in most of the looks that show this."""
    counts: dict[tuple[str, int], int] = {}
    frames: dict[tuple[str, int], LookFrame] = {}
    for look in looks:
        frame = own_frame(look.frames) if doing(look.frames) == kind else None
        if frame is not None:
            at = frame.file, frame.line
            counts[at] = counts.get(at, 0) + 1
            frames[at] = frame
    return frames[max(counts, key=lambda at: counts[at])] if counts else None
