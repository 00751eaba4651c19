"""CUDA_VISIBLE_DEVICES: what is wrong with it, and what it should be."""

from __future__ import annotations

import pytest

from cockpit.diagnose.devices import resolve
from cockpit.diagnose.visible_devices import Device, advise
from cockpit.model.gpu import Gpu

TWO = (
    Device(0, "GPU-8f2c11aa-0000-0000-0000-000000000001"),
    Device(1, "GPU-77aa0b3c-0000-0000-0000-000000000002", ("MIG-1", "MIG-2")),
)


@pytest.mark.parametrize(
    ("value", "right"),
    [
        ("", None),
        ("-1", None),
        ("NoDevFiles", None),
        ("0,7", "0"),
        ("4", None),
        ("0,0", "0"),
        ("GPU-8f2c11ab", TWO[0].uuid),
        ("GPU-ffffffff", None),
        ("MIG-1,MIG-2", "MIG-1"),
        ("1,x,0", "1,0"),
        ("0,+0", "0"),
        ("0,GPU-77aa", "0"),
    ],
)
def test_a_value_that_hides_gpus_is_corrected_or_unset(value: str, right: str | None) -> None:
    found = advise(value, TWO)
    assert found.problem is not None
    assert found.value == right


@pytest.mark.parametrize("value", [None, "0", "1,0", "1a", "+1", "GPU-8f2c", "MIG-2"])
def test_a_value_that_is_right_is_left_alone(value: str | None) -> None:
    assert advise(value, TWO).problem is None
    assert advise(value, TWO).value == value


@pytest.mark.parametrize("value", ["0", "1a", "+1", "1,0", "x", "0,7", "0,0", "GPU-77", "0,GPU-77"])
def test_what_the_checkup_sees_is_what_the_advice_judges(value: str) -> None:
    seen = resolve(value, [Gpu(index=one.index, uuid=one.uuid) for one in TWO])
    assert (seen.bad is None) is (advise(value, TWO).problem is None)


def test_slurm_that_gave_no_gpu_is_asked_for_one() -> None:
    found = advise("NoDevFiles", TWO, slurm=True)
    assert found.value == "NoDevFiles"
    assert "--gres=gpu:1" in (found.problem or "")
