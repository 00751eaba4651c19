"""GpuSource over the real binding and the simulated NVML: what works, what is missing, and why."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cockpit.collect.gpu_reader import GpuReader, HoldingRound, Round
from cockpit.model.gpu import Gpu

DRIVER = str(Path(__file__).with_name("drive_gpus.py"))
TELLING = set(Gpu.__struct_fields__) - {"gaps", "mig_instances", "unified_memory", "age_s", "state"}

Tick = dict[str, Any]
Drive = Callable[..., list[Tick]]


def _ticks(done: subprocess.CompletedProcess[str]) -> list[Tick]:
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def drive(simbox) -> Drive:
    """A scenario of simbox and options of drive_gpus.py → its lines."""

    def run(scenario: str, *options: str, **more: Any) -> list[Tick]:
        return _ticks(simbox(scenario, [sys.executable, DRIVER, *options], **more))

    return run


@pytest.fixture
def drive_state(simnvml_build: Path, tmp_path: Path) -> Drive:
    """The same over a state file of one's own, whose second 0 is now."""

    def run(state: str, *options: str, library: Path | None = simnvml_build) -> list[Tick]:
        file = tmp_path / "state"
        file.write_text(f"t0 {time.time():.3f}\n{state}\n")
        env = {
            "SIMNVML_STATE": str(file),
            "LD_LIBRARY_PATH": str(library) if library else "",
            "PYTHONPATH": str(Path(DRIVER).parents[2]),
            "PATH": "/usr/bin:/bin",
        }
        command = [sys.executable, DRIVER, *options]
        return _ticks(
            subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=60, check=False
            )
        )

    return run


def _sentences(ticks: list[Tick], kind: str) -> list[str]:
    return [e["sentence"] for t in ticks for e in t.get("events", ()) if e["kind"] == kind]


# -- complete readings


@pytest.mark.parametrize(
    "scenario", ["h200", "consumer", "mixed", "oldinit", "container", "unified", "h200x8"]
)
def test_every_missing_value_has_a_reason_and_every_other_has_none(drive, scenario):
    tick = drive(scenario, "--complete", "--deadline", "4")[0]
    assert tick["driver"]["error"] is None
    assert tick["gpus"]
    for gpu in tick["gpus"]:
        assert gpu["state"] == "ok"
        missing = {name for name in TELLING if gpu[name] is None}
        shared = {name for name, why in gpu["gaps"].items() if why == "unified_memory"}
        assert missing - shared == set(gpu["gaps"]) - shared
        assert "not_read_yet" not in gpu["gaps"].values()


def test_a_whole_h200_is_read(drive):
    tick = drive("h200", "--complete", "--deadline", "4")[0]
    gpu = tick["gpus"][0]
    assert gpu["name"] == "NVIDIA H200"
    assert gpu["pci_bus_id"] == "0000:00:06.0"
    assert gpu["compute_capability"] == "9.0"
    assert gpu["memory_total_bytes"] == 150754820096
    assert gpu["power_limit_w"] == gpu["power_default_limit_w"] == 700
    assert gpu["temperature_slowdown_c"] == 89
    assert (gpu["pcie_generation"], gpu["pcie_width"]) == (5, 16)
    assert 5 < gpu["sm_active_pct"] <= 100  # the load dips now and then
    assert 1e6 < gpu["pcie_rx_bytes_per_s"] < 200e6
    assert gpu["energy_j"] > 0
    assert gpu["compute_mode"] == "default"
    assert gpu["gaps"] == {
        "fan_pct": "not_supported",
        "nvlink_rx_bytes_per_s": "not_supported",
        "nvlink_tx_bytes_per_s": "not_supported",
    }
    assert tick["driver"]["version"] == "580.159.04"
    assert tick["driver"]["cuda_version"] == "13.0"


def test_processes_have_memory_and_a_share_or_none_when_the_driver_has_no_sample(drive):
    tick = drive("h200", "--complete", "--deadline", "4")[0]
    uses = sorted(tick["uses"], key=lambda use: use["vram_bytes"])
    idle, train, serve = uses
    assert idle["vram_bytes"] == 5638 << 20
    assert idle["sm_pct"] is None
    assert 5 < train["sm_pct"] <= 100  # the load dips now and then
    assert serve["sm_pct"] is None or serve["sm_pct"] <= 3
    assert {use["kind"] for use in uses} == {"compute"}
    memory = tick["memory"][0]
    held = sum(use["vram_bytes"] for use in uses)
    used = memory["total_bytes"] - memory["free_bytes"] - memory["reserved_bytes"]
    assert 0 <= used - held < 1 << 30
    assert memory["moved"] is False


def test_graphics_programs_are_told_from_compute_programs(drive):
    tick = drive("consumer", "--complete", "--deadline", "4")[0]
    assert sorted(use["kind"] for use in tick["uses"]) == [
        "both",
        "compute",
        "graphics",
        "graphics",
    ]
    gpu = tick["gpus"][0]
    assert gpu["fan_pct"] is not None
    assert gpu["gaps"]["ecc_corrected"] == "not_supported"


def test_mig_instances_are_found_and_own_their_processes(drive):
    tick = drive("mixed", "--complete", "--deadline", "4")[0]
    whole, cut, _old = tick["gpus"]
    assert (whole["mig_enabled"], cut["mig_enabled"]) == (False, True)
    assert [part["profile"] for part in cut["mig_instances"]] == ["3g.40gb", "2g.20gb", "1g.10gb"]
    assert cut["gaps"]["utilization_pct"] == "mig"
    assert cut["utilization_pct"] is None
    placed = {use["mig_instance"]: use["vram_bytes"] for use in tick["uses"] if use["gpu"] == 1}
    assert placed == {0: 33110 << 20, 1: 7020 << 20, 2: 512 << 20}


def test_an_old_driver_is_read_by_its_older_functions(drive):
    tick = drive("oldinit", "--complete", "--deadline", "4")[0]
    assert tick["driver"]["version"] == "470.256.02"
    assert len(tick["uses"]) == 6
    assert all(use["vram_bytes"] for use in tick["uses"])
    gpu = tick["gpus"][0]
    assert gpu["memory_used_bytes"] > 0
    assert gpu["throttle_reasons"] is not None
    assert gpu["gaps"]["memory_reserved_bytes"] == "driver_too_old"
    assert gpu["gaps"]["sm_active_pct"] == "driver_too_old"


def test_unified_memory_shows_the_hosts_memory_and_says_so(drive):
    tick = drive("unified", "--complete", "--deadline", "4")[0]
    gpu = tick["gpus"][0]
    assert gpu["unified_memory"] is True
    assert gpu["gaps"]["memory_used_bytes"] == "unified_memory"
    assert gpu["memory_total_bytes"] > gpu["memory_used_bytes"] > 0
    assert tick["memory"][0]["total_bytes"] is None
    assert sum(use["vram_bytes"] for use in tick["uses"]) == (9123 + 2210) << 20


def test_memory_that_nvml_does_not_tell_is_not_zero(drive_state):
    tick = drive_state("gpu pci=0000:1b:00\nproc gpu=0 pid=4194001 vram=N/A sm=5 keep=1")[0]
    use = tick["uses"][0]
    assert use["vram_bytes"] is None
    assert use["gap"] == "not_supported"


def test_topology_has_each_pair_once(drive):
    tick = drive("h200x8", "--complete", "--deadline", "4")[0]
    links = {(link["a"], link["b"]): link for link in tick["topology"]}
    assert len(links) == 28
    assert links[0, 1]["level"] == "NODE"
    assert links[0, 7]["level"] == "SYS"
    assert {(link["nvlinks"], link["p2p"]) for link in links.values()} == {(18, "ok")}


def test_nvlink_traffic_is_counted_in_bytes(drive):
    tick = drive("h200x8", "--complete", "--deadline", "4")[0]
    # the simulation moves 2.1e8 KiB/s at full load
    assert tick["gpus"][0]["nvlink_rx_bytes_per_s"] == pytest.approx(2.13e11, rel=0.05)


def test_only_the_gpus_asked_for_are_read(drive):
    tick = drive("h200x8", "--only", "2,5,77")[0]
    assert [gpu["index"] for gpu in tick["gpus"]] == [2, 5]
    assert {use["gpu"] for use in tick["uses"]} == {2, 5}


def test_asking_only_for_gpus_that_do_not_exist_is_told_which_do(drive):
    error = drive("h200", "--only", "7,9")[0]["driver"]["error"]
    assert error["code"] == "no_such_gpu"
    assert error["message"] == "There is no GPU 7, 9: this machine has 1 GPU (0)."


# -- time


def test_the_first_reading_comes_fast_and_the_rest_follows(drive):
    first, second = drive("h200x8", "--ticks", "2", "--interval", "0.6", latency="real")[:2]
    assert first["started_s"] < 0.05
    assert first["took_s"] < 0.3  # 30 ms on a quiet machine
    assert all(gpu["power_w"] and gpu["name"] for gpu in first["gpus"])
    gpu = first["gpus"][0]  # on a busy machine the rest may be there before it is asked for
    assert gpu["gaps"].get("energy_j") == "not_read_yet" or gpu["energy_j"] is not None
    assert "not_read_yet" not in second["gpus"][0]["gaps"].values()


def test_a_call_that_hangs_makes_its_gpu_stale_and_no_other(drive_state):
    gpus = "\n".join(f"gpu index={i} util=train:95" for i in range(3))
    hang = "hang.nvmlDeviceGetUtilizationRates=30s@1"
    state = gpus.replace("index=1", f"index=1 {hang}")
    *ticks, end = drive_state(state, "--ticks", "9", "--interval", "0.4", "--deadline", "0.2")
    assert max(tick["took_s"] for tick in ticks) < 0.45
    assert end["stop_s"] < 0.05
    last = ticks[-1]["gpus"]
    assert [gpu["state"] for gpu in last] == ["ok", "stale", "ok"]
    assert last[1]["age_s"] > 1
    assert last[1]["utilization_pct"] is not None  # the last good value, marked as old
    ages = [t["gpus"][1]["age_s"] for t in ticks if t["gpus"][1]["state"] == "stale"]
    assert ages == sorted(ages)
    assert len(ages) >= 4
    assert last[0]["age_s"] == 0


def test_slow_calls_never_hold_up_the_reading(drive):
    ticks = drive("slow", "--ticks", "7", "--interval", "0.5", "--deadline", "0.2")[:-1]
    assert max(tick["took_s"] for tick in ticks[1:]) < 0.35
    slow = ticks[-1]["gpus"][2]
    assert slow["state"] == "stale"
    assert slow["name"] == "NVIDIA H200"  # its name came before its values
    assert ticks[-1]["gpus"][0]["utilization_pct"] is not None


def test_a_gpu_that_blocks_from_the_start_is_a_row_with_its_reason(drive_state):
    first, *_ = drive_state("gpu util=train\ngpu hang=20s", "--deadline", "0.3")
    good, stuck = first["gpus"]
    assert good["state"] == "ok"
    assert stuck["state"] == "stale"
    assert set(stuck["gaps"].values()) == {"timeout"}
    assert first["took_s"] < 0.8


# -- lost and found


def test_a_lost_gpu_keeps_its_name_and_loses_its_values(drive_state):
    lost = "gpu index=1 util=train:95 error=GPU_IS_LOST@1-2.5"
    ticks = drive_state(f"gpu index=0 util=train\n{lost}", "--ticks", "12", "--interval", "0.3")
    states = [tick["gpus"][1]["state"] for tick in ticks[:-1]]
    assert states[0] == "ok"
    assert "lost" in states
    assert states[-1] == "ok"
    gone = next(t["gpus"][1] for t in ticks[:-1] if t["gpus"][1]["state"] == "lost")
    assert gone["name"] == "NVIDIA H200"
    assert gone["uuid"].startswith("GPU-")
    assert gone["memory_total_bytes"] == 150754820096
    assert gone["utilization_pct"] is None
    assert gone["gaps"]["utilization_pct"] == "gpu_lost"
    assert len(_sentences(ticks, "lost")) == 1
    assert "GPU 1 is lost" in _sentences(ticks, "lost")[0]
    assert _sentences(ticks, "recovered") == ["GPU 1 answers again"]
    assert {tick["gpus"][0]["state"] for tick in ticks[:-1]} == {"ok"}


def test_a_gpu_that_was_lost_before_the_start_is_a_row(drive_state):
    tick = drive_state("gpu util=train\ngpu error=GPU_IS_LOST")[0]
    assert [gpu["state"] for gpu in tick["gpus"]] == ["ok", "lost"]
    assert tick["gpus"][1]["gaps"]["name"] == "gpu_lost"
    assert tick["driver"]["error"] is None


def test_unexplained_errors_make_a_gpu_lost_only_when_they_last(drive_state):
    ticks = drive_state("gpu error=UNKNOWN@0.8", "--ticks", "6", "--interval", "0.3")[:-1]
    states = [tick["gpus"][0]["state"] for tick in ticks]
    assert states[0] == "ok"
    assert states[-1] == "lost"
    assert "stale" in states


@pytest.mark.parametrize("reason", ["NO_PERMISSION", "INSUFFICIENT_POWER", "IRQ_ISSUE"])
def test_a_gpu_that_says_why_it_does_not_answer_is_not_lost(drive_state, reason):
    """The handle itself may be refused: nobody has to reboot for that."""
    state = f"gpu util=train\ngpu error={reason}"
    ticks = drive_state(state, "--ticks", "4", "--interval", "0.3")[:-1]
    assert {tick["gpus"][1]["state"] for tick in ticks} == {"stale"}
    assert ticks[-1]["gpus"][1]["gaps"]["utilization_pct"] == reason.lower()
    assert {tick["gpus"][0]["state"] for tick in ticks} == {"ok"}
    assert not any("is lost" in one for one in _sentences(ticks, "lost"))


def test_a_reader_goes_on_after_any_surprise() -> None:
    class Broken:
        def holding(self) -> None:
            raise ValueError("a surprise")

        identify = quick = holding

        def rest(self) -> None:
            return None

    reader = GpuReader(0)
    reader._probe = Broken()  # type: ignore[assignment]
    reader.start()
    for _ in range(2):
        asked = HoldingRound(1)
        reader.ask_holding(asked)
        assert asked.wait(5)
        tick = Round(1)
        reader.ask(tick)
        assert tick.wait(5)
    reader.stop()


@pytest.mark.parametrize(
    ("scenario", "code"),
    [
        ("mismatch", "lib_rm_version_mismatch"),
        ("nodriver", "driver_not_loaded"),
        ("noperm", "no_permission"),
        ("unknown", "unknown"),
        ("nogpu", "no_devices"),
    ],
)
def test_a_driver_that_does_not_start_is_named_with_the_next_step(drive, scenario, code):
    tick = drive(scenario)[0]
    error = tick["driver"]["error"]
    assert error["code"] == code
    assert error["message"].endswith(".")
    assert error["advice"]
    assert tick["gpus"] == []


def test_no_library_at_all_is_an_error_of_the_driver(drive_state):
    tick = drive_state("gpu", library=None)[0]
    assert tick["driver"]["error"]["code"] == "library_not_found"


def test_a_driver_that_goes_away_is_opened_again(drive_state):
    state = "init_error DRIVER_NOT_LOADED@1-2\ngpu util=train error=DRIVER_NOT_LOADED@1-2"
    ticks = drive_state(state, "--ticks", "13", "--interval", "0.4")[:-1]
    codes = [t["driver"]["error"] and t["driver"]["error"]["code"] for t in ticks]
    assert codes[0] is None
    assert "driver_not_loaded" in codes
    assert codes[-1] is None
    away = next(t for t in ticks if t["driver"]["error"])
    assert away["gpus"][0]["name"] == "NVIDIA H200"
    assert away["gpus"][0]["utilization_pct"] is None
    assert away["gpus"][0]["gaps"]["utilization_pct"] == "driver_not_loaded"
    assert away["gpus"][0]["state"] == "stale"
    assert ticks[-1]["gpus"][0]["utilization_pct"] is not None


# -- events and proof


def test_an_xid_is_told_once_in_plain_words(drive_state):
    state = "gpu util=train\nxid gpu=0 code=31 at=2\nevent gpu=0 type=2 code=0 at=2.1"
    ticks = drive_state(state, "--ticks", "13", "--interval", "0.4")
    assert _sentences(ticks, "xid") == [
        "GPU 0: Xid 31, memory page fault: usually the program read or wrote outside its memory"
    ]
    assert len(_sentences(ticks, "ecc")) == 1
    event = next(e for t in ticks for e in t.get("events", ()) if e["kind"] == "xid")
    assert (event["xid"], event["gpu"], event["severity"]) == (31, 0, "warning")


def test_heat_is_a_warning_and_the_power_limit_is_not(drive):
    ticks = drive("throttle", "--ticks", "5", "--interval", "0.3")
    events = [e for t in ticks for e in t.get("events", ()) if e["kind"] == "throttle"]
    assert [(e["gpu"], e["severity"]) for e in events] == [(0, "warning"), (1, "info")]
    assert "heat" in events[0]["sentence"]


def test_the_proof_of_a_kill_is_a_fresh_reading_of_memory(drive):
    proof = drive("h200", "--vram")[-2]
    assert proof["used_bytes"]["0"] > 49 << 30
    assert sorted(proof["process_bytes"].values()) == [5638 << 20, 14412 << 20, 30210 << 20]


def test_a_gpu_that_hangs_is_absent_from_the_proof(drive_state):
    state = "gpu util=train\ngpu util=train hang=30s@0.5"
    proof = drive_state(state, "--ticks", "4", "--interval", "0.3", "--vram")[-2]
    assert list(proof["used_bytes"]) == ["0"]
