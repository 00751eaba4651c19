"""Stop time of the main thread and time to the first answer, over N cycles on a busy trainer.

usage: python tests/attach/measure.py [N] [PYTHON]. Prints a table; not a test: the machine may be
busy with something else.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from attaching import TRAINER, Runs, undisturbed

from cockpit.attach import attach


def row(name: str, values: list[float]) -> str:
    ordered = sorted(values)
    near = ordered[int(len(ordered) * 0.99)]
    middle = statistics.median(values)
    return f"{name:24}{middle:10.2f}{near:10.2f}{ordered[-1]:10.2f}"


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    python = sys.argv[2] if len(sys.argv) > 2 else sys.executable
    runs, stopped, answers = Runs(), [], []
    with tempfile.TemporaryDirectory() as folder:
        child = runs.start(TRAINER, folder + "/stop", python=python)
        for _ in range(count):
            planned, began = attach.plan(child.pid), time.perf_counter()
            outcome = attach.run(planned)
            answers.append((time.perf_counter() - began) * 1e3)
            if outcome.state != "attached":
                raise SystemExit(f"{outcome.state}: {outcome.sentence}")
            stopped.append(outcome.stopped_ms)
            attach.detach(child.pid)
        Path(folder, "stop").touch()
        result = child.stdout.readline()
    same = result == undisturbed(runs, result)
    runs.end()
    print(f"{'ms':24}{'median':>10}{'99 %':>10}{'max':>10}")
    print(row("main thread stopped", stopped))
    print(row("attach to first answer", answers))
    print(f"{count} cycles, result {'identical' if same else 'CHANGED'}")


main()
