"""What a stack says that its thread is doing."""

from __future__ import annotations

import pytest

from cockpit.diagnose.live.where import doing, own_frame, short_place
from tests.diagnose.live.scenes import (
    ASLEEP,
    BACKWARD,
    FORWARD,
    ITEM,
    LOADER,
    LOADING,
    OWN,
    SAVE,
    SELECT,
    TORCH,
    frames,
)

COLLECTIVE = frames((f"{TORCH}/distributed/distributed_c10d.py", 2940, "barrier"), OWN)
STACKS = {
    "loader": LOADER,
    "loading": LOADING,
    "sync": ITEM,
    "dispatch": FORWARD,
    "collective": COLLECTIVE,
    "own": ASLEEP,
    "other": SELECT,
}


@pytest.mark.parametrize("kind", STACKS)
def test_a_typical_stack_is_told(kind: str) -> None:
    assert doing(STACKS[kind]) == kind


def test_backward_is_launching_and_saving_is_not() -> None:
    assert doing(BACKWARD) == "dispatch"
    assert doing(SAVE) == "other"
    assert doing(()) == "other"


@pytest.mark.parametrize(
    "line",
    [
        "loss = loss.item()",
        "print(loss)",
        "x = y.cpu()",
        "values = scores.tolist()",
        "torch.cuda.synchronize()",
        "a = tensor.to('cpu')",
        "acc += float(loss)",
        "if torch.isnan(loss).any():",
        "idx = mask.nonzero()",
    ],
)
def test_a_line_that_reads_the_gpu_is_a_sync(line: str) -> None:
    assert doing(frames((*OWN[:2], "main", line))) == "sync"


@pytest.mark.parametrize(
    "line",
    [
        "x = x * 0.999",
        "time.sleep(3600)",
        "dist.all_reduce(grad)",
        "model.to('cuda')",
        "itemize(x)",
    ],
)
def test_a_line_that_does_not_is_none(line: str) -> None:
    assert doing(frames((*OWN[:2], "main", line))) == "own"


def test_a_compiled_model_that_runs_is_not_compiling() -> None:
    generated = ("/tmp/torchinductor_ml1/ab/cab12.py", 400, "call")
    runs = frames(
        generated,
        (f"{TORCH}/_inductor/output_code.py", 612, "__call__"),
        (f"{TORCH}/_functorch/_aot_autograd/runtime_wrappers.py", 100, "call_func_at_runtime"),
        (f"{TORCH}/_dynamo/eval_frame.py", 736, "compile_wrapper"),
        OWN,
    )
    assert doing(runs) == "dispatch"
    assert short_place(own_frame(runs)) == "train.py:41"
    compiles = frames((f"{TORCH}/_dynamo/convert_frame.py", 7, "_compile"), *runs[3:])
    assert doing(compiles) == "compile"


@pytest.mark.parametrize("folder", ["datasets", "torch", "PIL", "pandas"])
def test_a_folder_of_the_user_that_is_called_like_a_library_is_none(folder: str) -> None:
    mine = frames((f"/home/ml1/{folder}/train.py", 7, "main", "x = int(n)"))
    assert doing(mine) == "own"
    assert own_frame(mine) is not None


def test_the_flag_of_a_gradient_scaler_is_no_sync_of_the_program() -> None:
    text = "if not sum(v.item() for v in found.values()):"
    scaler = (f"{TORCH}/amp/grad_scaler.py", 346, "_maybe_opt_step", text)
    assert doing(frames(scaler, OWN)) == "dispatch"


def test_the_place_is_the_innermost_line_of_the_user() -> None:
    assert short_place(own_frame(LOADER)) == "train.py:41"
    assert own_frame(SELECT) is None
