"""What holds a GPU's clocks down: heat, the power brake, a lowered limit, and a narrow PCIe link.

``sw_power_cap`` at the default limit is no claim at all: a loaded GPU works there.
"""

from __future__ import annotations

from collections.abc import Iterator

from cockpit.diagnose.live.claim import Claim, said
from cockpit.diagnose.live.past import clock_share, power_share, utilization
from cockpit.diagnose.live.view import View
from cockpit.model.gpu import Gpu

HEAT = frozenset({"sw_thermal_slowdown", "hw_thermal_slowdown"})
BRAKE = "hw_power_brake_slowdown"
CAP = "sw_power_cap"
LOWERED = 0.97
"""A limit below this share of the default was lowered; boards differ by a watt."""
BUSY_PCT = 20.0
MANY = 3
"""From so many on the power brake is the machine's, not a GPU's."""


def find(view: View) -> Iterator[Claim]:
    """Claims of this family."""
    braked = [gpu for gpu in view.gpus.values() if _brakes(gpu)]
    if len(braked) >= MANY:
        yield _brake(braked, None)
    for gpu in view.gpus.values():
        if len(braked) < MANY and gpu in braked:
            yield _brake([gpu], gpu.index)
        if HEAT.intersection(gpu.throttle_reasons or ()):
            yield _heat(gpu)
        if _is_capped_low(gpu):
            yield _limit(gpu)
        if (link := slow_link(gpu)) is not None:
            yield _link(gpu, link)


def normal_cap(gpu: Gpu) -> str | None:
    """Why the power cap of a GPU is not its trouble; None where there is none, or it is lowered."""
    limit, default = gpu.power_limit_w, gpu.power_default_limit_w
    if CAP not in (gpu.throttle_reasons or ()) or limit is None or default is None:
        return None
    if limit < LOWERED * default:
        return None
    return f"not the power cap: {limit:.0f} W is the default limit, where a loaded GPU works"


def _brakes(gpu: Gpu) -> bool:
    reasons = gpu.throttle_reasons or ()
    return BRAKE in reasons or ("hw_slowdown" in reasons and not HEAT.intersection(reasons))


def _state(gpu: Gpu) -> str:
    """``GPU 3: 1 200 of 1 980 MHz, 89 °C, 310 of 700 W.``"""
    parts = []
    if gpu.sm_clock_mhz is not None and gpu.sm_clock_max_mhz is not None:
        parts.append(f"{gpu.sm_clock_mhz} of {gpu.sm_clock_max_mhz} MHz")
    if gpu.temperature_c is not None:
        parts.append(f"{gpu.temperature_c} °C")
    if gpu.power_w is not None and gpu.power_limit_w is not None:
        parts.append(f"{gpu.power_w:.0f} of {gpu.power_limit_w:.0f} W")
    return f"GPU {gpu.index}: {', '.join(parts) or 'clocks not known'}."


def _reasons(gpu: Gpu) -> str:
    return f"Clocks event reasons: {', '.join(gpu.throttle_reasons or ())}."


def _brake(gpus: list[Gpu], index: int | None) -> Claim:
    named = any(BRAKE in (gpu.throttle_reasons or ()) for gpu in gpus)
    where = f"GPU {gpus[0].index}" if len(gpus) == 1 else f"{len(gpus)} GPUs"
    what = "power brake" if named else "hardware slowdown"
    return Claim(
        cause="power_brake",
        title=f"{where}: slowed by the {what}",
        says=(*(said(_state(gpu)) for gpu in gpus[:4]), said(_reasons(gpus[0]))),
        confidence=0.9 if named else 0.6,
        gpu=index,
        facts={"gpus": [gpu.index for gpu in gpus]},
        also=() if named else (("thermal", "the reason behind the slowdown is not named"),),
        at_once=named,
    )


def _heat(gpu: Gpu) -> Claim:
    hard = "hw_thermal_slowdown" in (gpu.throttle_reasons or ())
    at = f", {gpu.temperature_c} °C" if gpu.temperature_c is not None else ""
    limit = gpu.temperature_slowdown_c
    edge = (said(f"It slows down from {limit} °C on."),) if limit is not None else ()
    return Claim(
        cause="thermal",
        title=f"GPU {gpu.index}: slowed by heat{at}",
        says=(said(_state(gpu)), said(_reasons(gpu)), *edge),
        confidence=0.93 if hard else 0.88,
        gpu=gpu.index,
        severity="error" if hard else "warning",
        facts={"temperature_c": gpu.temperature_c, "sm_clock_mhz": gpu.sm_clock_mhz},
        share=0.4,  # the flag is duty-cycled
        clear_s=20.0,
        at_once=True,
    )


def _is_capped_low(gpu: Gpu) -> bool:
    """A limit that was lowered and that the GPU runs into: else it costs nothing."""
    limit, default = gpu.power_limit_w, gpu.power_default_limit_w
    if limit is None or default is None or limit >= LOWERED * default:
        return False
    return CAP in (gpu.throttle_reasons or ()) and (power_share(gpu) or 0.0) > 0.9


def _limit(gpu: Gpu) -> Claim:
    limit, default = gpu.power_limit_w or 0.0, gpu.power_default_limit_w or 0.0
    share = clock_share(gpu)
    clock = (said(f"The clock is at {share:.0%} of its maximum."),) if share is not None else ()
    words = f"It draws {gpu.power_w:.0f} W of a limit of {limit:.0f} W; the default is"
    return Claim(
        cause="power_limit_lowered",
        title=f"GPU {gpu.index}: limit {limit:.0f} of {default:.0f} W",
        says=(said(f"{words} {default:.0f} W."), said(_reasons(gpu)), *clock),
        confidence=0.9,
        gpu=gpu.index,
        severity="warning" if limit < 0.85 * default else "info",
        facts={"limit_w": limit, "default_limit_w": default},
        hold_s=10.0,
        clear_s=30.0,
        at_once=True,
    )


# -- the link to the host


def slow_link(gpu: Gpu) -> str | None:
    """``x4 of x16`` or ``gen 1 of gen 5`` while busy at full clock: idle links rest."""
    if (utilization(gpu) or 0.0) < BUSY_PCT or (gpu.performance_state or 0) > 2:
        return None
    width, best = gpu.pcie_width, gpu.pcie_width_max
    if width and best and width < best:
        return f"x{width} of x{best}"
    now, newest = gpu.pcie_generation, gpu.pcie_generation_max
    return f"gen {now} of gen {newest}" if now and newest and now < newest else None


def _link(gpu: Gpu, link: str) -> Claim:
    traffic = [one for one in (gpu.pcie_rx_bytes_per_s, gpu.pcie_tx_bytes_per_s) if one is not None]
    flow = (said(f"{sum(traffic) / 1e9:.1f} GB/s go over it now."),) if traffic else ()
    words = f"Under load ({gpu.utilization_pct:.0f} % utilisation) its PCIe link runs at {link}."
    return Claim(
        cause="pcie_width",
        title=f"GPU {gpu.index}: PCIe {link}",
        says=(said(words), *flow),
        confidence=0.85,
        gpu=gpu.index,
        facts={"link": link, "pci": gpu.pci_bus_id},
        not_=("not a resting link: those of idle GPUs slow down to save power",),
        hold_s=10.0,
        share=0.8,
        clear_s=30.0,
    )
