"""torch as a job meets it: its build, and the small success on the devices that may be used.

argv: the ordinals to compute on, as CUDA counts them here; none: nothing touches a device.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import traceback
import warnings
from typing import Any

SIZE = 256
STEPS = 3


def tell(**facts: object) -> None:
    """One line, at once. NaN and infinity become null: they are not JSON."""
    text = json.dumps(plain(facts))
    sys.stdout.write("cockpit-probe " + text + "\n")
    sys.stdout.flush()


def plain(value: object) -> object:
    """Without numbers that JSON lacks."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def installed() -> dict[str, object]:
    """From the packages' metadata: their versions, who installed torch and when."""
    import os
    from importlib import metadata

    facts: dict[str, object] = {}
    for name in ("torchvision", "torchaudio"):
        try:
            facts[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            facts[name] = None
    try:
        torch = metadata.distribution("torch")
    except metadata.PackageNotFoundError:
        return facts
    facts["installer"] = (torch.read_text("INSTALLER") or "").strip() or None
    path = getattr(torch, "_path", None)
    if path is not None:
        stamp = time.gmtime(os.stat(str(path)).st_mtime)
        facts["installed_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", stamp)
    return facts


def build(torch: Any) -> dict[str, object]:
    """What the wheel was made of. Reads strings; asks no device."""
    flags = getattr(torch._C, "_cuda_getArchFlags", None)
    words = flags() if flags is not None else None
    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "architectures": words.split() if words else [],
    }


def nccl() -> str | None:
    """``2.27.3``; torch 1.x gives one number."""
    try:
        version = importlib.import_module("torch.cuda.nccl").version()
    except Exception:  # noqa: BLE001 - a build without NCCL says so in many ways
        return None
    if isinstance(version, int):
        return f"{version // 1000}.{version % 1000 // 100}.{version % 100}"
    return ".".join(str(part) for part in version)


def small(torch: Any, ordinal: int) -> dict[str, object]:
    """A matmul and three training steps, here and on the CPU, from the same numbers."""
    device = torch.device("cuda", ordinal)
    numbers = torch.Generator().manual_seed(7)

    def random(*shape: int) -> Any:
        return torch.randn(*shape, generator=numbers)

    began = time.perf_counter()
    torch.ones(8, device=device).sum().item()
    ready = time.perf_counter()
    left, right = random(SIZE, SIZE), random(SIZE, SIZE)
    want = left @ right
    got = (left.to(device) @ right.to(device)).cpu()
    difference = ((got - want).abs().max() / want.abs().max()).item()
    batch, labels = random(64, 32), torch.arange(64) % 10
    weights = [random(32, 128) * 0.1, random(128, 10) * 0.1]
    losses_cpu, gradient_cpu = train(torch, batch, labels, weights)
    moved = [weight.to(device) for weight in weights]
    losses, gradient = train(torch, batch.to(device), labels.to(device), moved)
    spread = (gradient.cpu() - gradient_cpu).abs().max() / gradient_cpu.abs().max()
    return {
        "ordinal": ordinal,
        "context_s": ready - began,
        "compute_s": time.perf_counter() - ready,
        "matmul_difference": difference,
        "losses": losses,
        "losses_cpu": losses_cpu,
        "gradient_difference": spread.item(),
    }


def train(torch: Any, batch: Any, labels: Any, start: list[Any]) -> tuple[list[float], Any]:
    """Losses of the steps, and the first gradient of the first layer."""
    weights = [weight.clone().requires_grad_() for weight in start]
    losses, first = [], None
    for _ in range(STEPS):
        scores = torch.relu(batch @ weights[0]) @ weights[1]
        loss = torch.nn.functional.cross_entropy(scores, labels)
        gradients = torch.autograd.grad(loss, weights)
        first = gradients[0].clone() if first is None else first
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients):
                weight -= 0.1 * gradient
        losses.append(loss.item())
    return losses, first


def ask_cuda(torch: Any) -> dict[str, object]:
    """Whether torch finds a device, and what it says if not."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        available, count = torch.cuda.is_available(), torch.cuda.device_count()
    words = [str(one.message) for one in heard]
    if not available:
        try:
            torch.cuda.init()
        except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
            words.append(f"{type(error).__name__}: {error}")
    return {"available": available, "device_count": count, "complaint": "\n".join(words) or None}


def main() -> None:
    """The build, what CUDA says, and one device after the other."""
    sys.path[:] = [entry for entry in sys.path if entry]  # not what lies in the working directory
    tell(begun="reading the packages' metadata")
    try:
        tell(**installed())
    except Exception:  # noqa: BLE001 - broken metadata says nothing about torch
        tell(installer=None)
    tell(begun="importing torch")
    began = time.perf_counter()
    try:
        torch = importlib.import_module("torch")
    except BaseException:  # noqa: BLE001 - a broken build may even call sys.exit
        tell(complaint=traceback.format_exc()[-4000:])
        return
    tell(import_s=time.perf_counter() - began, **build(torch))
    tell(begun="asking torch for its devices")
    tell(**ask_cuda(torch))
    if torch.version.cuda:
        tell(nccl=nccl())
    for ordinal in map(int, sys.argv[1:]):
        tell(begun=f"computing on device {ordinal}")
        try:
            tell(small=[small(torch, ordinal)])
        except Exception:  # noqa: BLE001 - whatever it raises is the answer
            tell(small=[{"ordinal": ordinal, "error": traceback.format_exc()[-4000:]}])


if __name__ == "__main__":
    main()
