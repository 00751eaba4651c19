"""Makes the recording that ships: a training, a stray, and the stray's kill, about 40 s.

usage: record.py FILE   (scrub it afterwards: python -m cockpit.collect.scrub IN OUT)
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from cockpit.engine.link import Link
from cockpit.engine.protocol import AskKillPlan, EngineOptions, Reply, RunKill, Tick
from cockpit.model.action import KillRequest, Target

PROGRAMS = Path(__file__).parent / "programs"


def ticks(link: Link, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        link.receive(1)


def reply(link: Link) -> Reply:
    while True:
        message = link.receive(30)
        if isinstance(message, Reply):
            return message
        assert message is None or isinstance(message, Tick) or message


trainer = subprocess.Popen([sys.executable, str(PROGRAMS / "train.py"), "120", "20"])
link = Link(EngineOptions(record=sys.argv[1]))
ticks(link, 12)
made = subprocess.run([sys.executable, str(PROGRAMS / "stray.py"), "16"], capture_output=True)
stray = int(made.stdout)
ticks(link, 10)
link.send(AskKillPlan(id=1, request=KillRequest(targets=(Target(pid=stray),))))
plan = reply(link).plan
assert plan is not None
link.send(RunKill(id=2, plan=plan.id, typed=plan.typed))
results = reply(link).results
print(results[0].sentence if results else "no result")
ticks(link, 8)
trainer.terminate()
ticks(link, 5)
link.close(1.0)
trainer.wait()
