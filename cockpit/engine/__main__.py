"""``python -m cockpit.engine [OPTIONS-AS-JSON]``: a machine, a demo or a recording on stdio.

Only what the chosen machine needs is imported: a demo has no signal, no NVML, no /proc in it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from cockpit import __version__
from cockpit.engine.findings import Findings
from cockpit.engine.machine import Machine
from cockpit.engine.protocol import EngineOptions
from cockpit.engine.server import Recorder, Server
from cockpit.engine.wire import LineReader, LineWriter
from cockpit.errors import CockpitError

if TYPE_CHECKING:
    from cockpit.diagnose.live.look import Looks

AUTO = "auto"
"""As demo scenario: this machine where it has an NVIDIA library, the demo elsewhere."""
DEFAULT_SCENARIO = "busy"


def main(argv: list[str] | None = None) -> int:
    """Runs until end-of-file on stdin. Returns the exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    try:
        options = msgspec.json.decode(arguments[0] if arguments else "{}", type=EngineOptions)
        machine, recorder = choose_machine(options), open_recorder(options)
    except (msgspec.DecodeError, CockpitError) as error:
        sys.stderr.write(f"{error}\n")
        return getattr(error, "exit_code", 2)
    # A key typed in the user's terminal is for the face; the engine ends at end-of-file. Not
    # SIG_IGN: what the engine starts (a training, pip) would inherit that, and ignore it, too.
    signal.signal(signal.SIGINT, lambda *_: None)
    findings = Findings(looks_of(machine), at_once=options.complete)
    Server(machine, options, LineReader(0), claim_stdout(), recorder, findings).run()
    return 0


def choose_machine(options: EngineOptions) -> Machine:
    """The live machine unless a demo or a recording was asked for. Raises UsageError."""
    if options.demo is not None and not (options.demo == AUTO and has_nvidia_library()):
        from cockpit.collect.simulated import SimulatedMachine

        scenario = DEFAULT_SCENARIO if options.demo == AUTO else options.demo
        return SimulatedMachine(scenario, readonly=options.readonly)
    if options.replay is not None:
        from cockpit.collect.recording import RecordedMachine

        return RecordedMachine(options.replay)
    from cockpit.engine.live import LiveMachine

    return LiveMachine(options)


def looks_of(machine: Machine) -> Callable[[], Looks] | None:
    """How a machine can be looked at closer; None: by its snapshots alone (a recording)."""
    if machine.source == "demo":
        return lambda: _staged_looks(machine.title)
    if machine.source != "live":
        return None
    from cockpit.engine.live import LiveMachine

    assert isinstance(machine, LiveMachine)
    live = machine
    return lambda: live.looks  # late: it loads the rules


def _staged_looks(scenario: str) -> Looks:
    from cockpit.collect.simulated import scenario_named
    from cockpit.engine.staged_looks import StagedLooks

    return StagedLooks(scenario_named(scenario))


def has_nvidia_library() -> bool:
    """Whether there is a driver to talk to; one that fails is shown as such, not as a demo."""
    import ctypes

    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def open_recorder(options: EngineOptions) -> Recorder | None:
    """The recording that is written alongside, if one was asked for. Raises UsageError."""
    if options.record is None:
        return None
    from cockpit.collect.recording import RecordingWriter

    return RecordingWriter(options.record, version=__version__)


def claim_stdout() -> LineWriter:
    """The wire gets a descriptor of its own; fd 1 becomes stderr: no library writes in it."""
    wire = os.dup(1)
    os.dup2(2, 1)
    return LineWriter(wire)


if __name__ == "__main__":
    status = main()
    # Not sys.exit: reader threads may sit in a driver call that never returns.
    sys.stderr.flush()
    os._exit(status)
