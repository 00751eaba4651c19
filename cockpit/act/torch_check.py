"""Whether an environment's torch can use the GPUs: asked of it in a child, with a small sum."""

from __future__ import annotations

import subprocess

import msgspec
from msgspec import Struct

from cockpit.act.interpreter import environment
from cockpit.model.text import clean
from cockpit.model.wheel import capability, runs

CHECK_S = 180.0
"""The first import of a CUDA build reads several GiB, from a network disk perhaps."""

_PROGRAM = """
import json, warnings
warnings.simplefilter("ignore")
found = {"sums": []}
try:
    import torch
    found["version"] = str(torch.__version__)
    found["cuda"] = torch.version.cuda
    found["architectures"] = list(torch.cuda.get_arch_list())
    found["available"] = bool(torch.cuda.is_available())
    for index in range(torch.cuda.device_count() if found["available"] else 0):
        found["sums"].append(float(torch.ones(8, device="cuda:%d" % index).sum().item()))
except BaseException as error:
    found["error"] = "%s: %s" % (type(error).__name__, error)
print("\\n" + json.dumps(found))
"""


class TorchAnswer(Struct, frozen=True, kw_only=True):
    """What torch says of itself."""

    version: str | None = None
    cuda: str | None = None
    """``torch.version.cuda``; None: a build for CPUs."""
    architectures: tuple[str, ...] = ()
    available: bool = False
    sums: tuple[float, ...] = ()
    """Eight ones added up on each device: 8.0."""
    error: str | None = None
    """The exception, on one line; data from outside."""


def ask_torch(python: str) -> TorchAnswer:
    """Imports torch in a child; a device gets a context of about 0.6 GiB for a moment."""
    try:
        ended = subprocess.run(
            [python, "-c", _PROGRAM],
            capture_output=True,
            timeout=CHECK_S,
            cwd="/",
            env=environment(),
            check=False,
            start_new_session=True,
        )
        lines = ended.stdout.strip().splitlines()
        if not lines:
            return TorchAnswer(error=f"the interpreter ended with status {ended.returncode}")
        return msgspec.json.decode(lines[-1], type=TorchAnswer)
    except subprocess.TimeoutExpired:
        return TorchAnswer(error=f"no answer in {CHECK_S:.0f} s")
    except (OSError, msgspec.MsgspecError) as error:
        return TorchAnswer(error=str(error))


def judged(answer: TorchAnswer, capabilities: tuple[str, ...]) -> tuple[bool | None, str]:
    """Helped, did not help, or could not be seen (None), and a sentence why."""
    name = f"torch {clean(answer.version or '?')}"
    if answer.error is not None:
        return False, f"{name} does not work: {clean(answer.error)[:300]}."
    if answer.cuda is None:
        return False, f"{name} is a build for CPUs: it has no CUDA."
    codes = [code for text in answer.architectures if (code := capability(text))]
    missing = [d for d in capabilities if not any(runs(code, d) for code in codes)]
    if missing:
        return False, f"{name} has no code for compute capability {', '.join(missing)}."
    built = f"{name} with CUDA {clean(answer.cuda)}"
    if not answer.available:
        if capabilities:
            return False, f"{built} is there, but finds no GPU that it can use."
        return None, f"{built} is there; whether a GPU computes could not be seen here."
    if not answer.sums or any(total != 8.0 for total in answer.sums):
        return False, f"{built} sees a GPU, but a sum of eight ones on it is not 8."
    return True, f"{built} computes on {len(answer.sums)} GPU(s)."
