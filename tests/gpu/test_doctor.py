"""The doctor on a real GPU: the ladder up to the small success, and the step that hides it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tests.gpu.smi import query

DOCTOR = [sys.executable, "-m", "cockpit", "doctor"]


def doctor(*words: str, **variables: str) -> tuple[int, dict[str, Any]]:
    environment = {**os.environ, **variables}
    argv = [*DOCTOR, "--json", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, env=environment)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


def steps(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in found["checks"]}


def test_an_idle_gpu_passes_with_a_small_success() -> None:
    code, found = doctor("--python", sys.executable)
    by_id = steps(found)
    for one in found["checks"]:
        print(f"{one['status']:<15} {one['title']:<18} {one['sentence']}")
    assert (code, found["finding"]) == (0, None)
    for id_ in ("nvml", "libcuda", "visible_devices", "torch_build", "architectures"):
        assert by_id[id_]["status"] == "pass", by_id[id_]
    success = by_id["small_success"]
    assert success["status"] == "pass", success
    assert "agree with the CPU" in success["sentence"]
    assert success["took_s"] > 0


def test_hidden_gpus_are_the_step_that_fails() -> None:
    code, found = doctor("--python", sys.executable, CUDA_VISIBLE_DEVICES="")
    assert code == 1
    assert found["finding"]["cause"] == "cvd_hides_gpus"
    assert found["finding"]["facts"]["step"] == "visible_devices"
    by_id = steps(found)
    assert by_id["libcuda"]["status"] == "pass", by_id["libcuda"]
    assert by_id["small_success"]["status"] == "not_applicable"


def test_an_index_that_does_not_exist_is_named() -> None:
    code, found = doctor("--python", sys.executable, CUDA_VISIBLE_DEVICES="15")
    assert code == 1
    assert found["finding"]["cause"] == "cvd_hides_gpus"


def test_a_uuid_prefix_is_the_gpu_that_nvidia_smi_names() -> None:
    uuid = str(query("gpu", ["uuid"])[0]["uuid"])
    code, found = doctor("--python", sys.executable, CUDA_VISIBLE_DEVICES=uuid[:12])
    assert code == 0
    assert "is GPU 0" in steps(found)["visible_devices"]["sentence"]


def test_a_gpu_in_use_is_left_alone_and_its_holder_named(trainer: subprocess.Popen[bytes]) -> None:
    before = query("gpu", ["memory.used"])[0]["memory.used"]
    code, found = doctor("--pid", str(trainer.pid))
    by_id = steps(found)
    assert found["subject"]["pid"] == trainer.pid
    assert by_id["job_on_gpu"]["status"] == "pass", by_id["job_on_gpu"]
    assert "GPU 0 is in use by pid" in json.dumps(by_id["small_success"])
    assert abs(int(query("gpu", ["memory.used"])[0]["memory.used"]) - int(before)) < 600
    assert code == 0
