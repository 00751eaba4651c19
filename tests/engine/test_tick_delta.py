"""A tick that is sent without what has not changed comes out whole, whatever happened between."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from msgspec.structs import replace

from cockpit.collect.simulated import SimulatedMachine
from cockpit.engine.protocol import Tick, decode_from_engine, encode
from cockpit.engine.tick_delta import TickRestorer, TickShortener
from cockpit.model.process import Process

BASE = SimulatedMachine("busy").snapshot(1.0)


def tick(*processes: Process) -> Tick:
    return Tick(snapshot=replace(BASE, processes=processes))


def over_the_wire(message: Tick) -> Tick:
    read = decode_from_engine(encode(message).rstrip(b"\n"))
    assert isinstance(read, Tick)
    return read


def test_what_stands_still_is_sent_once_and_stays_the_same_object() -> None:
    sender, receiver = TickShortener(), TickRestorer()
    idle, busy = Process(pid=1, start_ticks=1), Process(pid=2, start_ticks=1, cpu_pct=1.0)
    first = receiver.restore(over_the_wire(sender.shorten(tick(idle, busy))))
    short = sender.shorten(tick(idle, replace(busy, cpu_pct=2.0)))
    assert [one.pid for one in short.snapshot.processes] == [2]
    second = receiver.restore(over_the_wire(short))
    assert second == tick(idle, replace(busy, cpu_pct=2.0))
    assert second.snapshot.processes[0] is first.snapshot.processes[0]


def test_any_coming_going_changing_and_mixing_comes_out_whole() -> None:
    random, sender, receiver = Random(7), TickShortener(), TickRestorer()
    living: list[Process] = []
    for number in range(300):
        living = [one for one in living if random.random() > 0.1]
        living += [Process(pid=random.randrange(40), start_ticks=number) for _ in range(3)]
        # A pid without a start may stand there twice.
        living += [Process(pid=99)] * random.randrange(3)
        living = [replace(p, cpu_pct=random.choice((p.cpu_pct, 1.0, 2.0))) for p in living]
        random.shuffle(living)
        sent = tick(*living)
        assert receiver.restore(over_the_wire(sender.shorten(sent))) == sent


def test_a_tick_that_refers_to_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="never came"):
        TickRestorer().restore(msgspec.structs.replace(tick(), places=(3,)))
    with pytest.raises(ValueError, match="never came"):
        TickRestorer().restore(msgspec.structs.replace(tick(), places=(-1,)))
    with pytest.raises(ValueError, match="never came"):
        TickRestorer().restore(msgspec.structs.replace(tick(), places=(-2,)))
