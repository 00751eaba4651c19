"""Where the time of a training step goes, as the profiler in an attached run has seen it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

_PARTS = (
    ("data_wait_ms", "waits for data"),
    ("host_to_device_ms", "copies to the GPU"),
    ("device_to_host_ms", "copies to the host"),
    ("forward_ms", "forward"),
    ("backward_ms", "backward"),
    ("optimizer_ms", "optimizer"),
    ("collective_ms", "collectives (NCCL)"),
    ("device_busy_ms", "the GPU computes"),
)


class StepProfile(Struct, frozen=True, kw_only=True):
    """The mean of some steps, in milliseconds; None: not to be seen there.

    ``data_wait_ms`` is the CPU's, which may overlap what the GPU does. All others are the GPU's
    where ``measured_on`` is ``cuda``.
    """

    steps: int
    measured_on: Literal["cuda", "cpu"]
    step_ms: float | None = None
    data_wait_ms: float | None = None
    host_to_device_ms: float | None = None
    device_to_host_ms: float | None = None
    forward_ms: float | None = None
    backward_ms: float | None = None
    optimizer_ms: float | None = None
    collective_ms: float | None = None
    device_busy_ms: float | None = None

    @property
    def data_share(self) -> float:
        """Of a step, 0 to 1; 0 where it is not known."""
        if not self.step_ms or self.data_wait_ms is None:
            return 0.0
        return min(1.0, self.data_wait_ms / self.step_ms)

    @property
    def sentence(self) -> str:
        """``A step takes 412.7 ms; 90% of that it waits for data``, and what the GPU computes."""
        where = "" if self.measured_on == "cuda" else ", computed on the CPU"
        if self.step_ms is None:
            return f"{self.steps} steps were recorded{where}."
        waits = f"; {self.data_share:.0%} of that it waits for data"
        busy = self.device_busy_ms
        computes = "" if busy is None else f", and the GPU computes {busy / self.step_ms:.0%} of it"
        return f"A step takes {self.step_ms:.1f} ms{where}{waits}{computes}."

    @property
    def lines(self) -> tuple[str, ...]:
        """``waits for data: 300.1 ms (73%)`` and so on, for what is known."""
        told = [] if self.step_ms is None else [f"a step: {self.step_ms:.1f} ms"]
        for name, words in _PARTS:
            value: float | None = getattr(self, name)
            if value is not None:
                share = f" ({value / self.step_ms:.0%})" if self.step_ms else ""
                told.append(f"{words}: {value:.1f} ms{share}")
        return tuple(told)
