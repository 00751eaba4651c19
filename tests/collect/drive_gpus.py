"""Not a test: runs a GpuSource and prints one line of JSON a tick. Started by the tests under the
simulated NVML.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from typing import Any

import msgspec

from cockpit.collect.gpus import GpuSource


def main() -> None:
    """See ``--help``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ticks", type=int, default=1)
    parser.add_argument("--interval", type=float, default=0.3)
    parser.add_argument("--deadline", type=float, default=0.4)
    parser.add_argument("--complete", action="store_true")
    parser.add_argument("--vram", action="store_true")
    parser.add_argument("--only", type=lambda text: tuple(map(int, text.split(","))))
    options = parser.parse_args()
    begin = time.monotonic()
    source = GpuSource(options.only)
    source.start()
    started_s = time.monotonic() - begin
    for _ in range(options.ticks):
        before = time.monotonic()
        readings = source.read(options.deadline, complete=options.complete)
        took_s = time.monotonic() - before
        extra = {"took_s": took_s, "started_s": started_s, "at_s": time.monotonic() - begin}
        print(json.dumps(_plain(readings) | extra), flush=True)
        time.sleep(max(0.0, options.interval - (time.monotonic() - before)))
    if options.vram:
        print(json.dumps(_plain(source.vram(0.5))))
    before = time.monotonic()
    source.stop()
    print(json.dumps({"stop_s": time.monotonic() - before}))


def _plain(value: Any) -> dict[str, Any]:
    return asdict(value, dict_factory=lambda pairs: {k: msgspec.to_builtins(v) for k, v in pairs})


if __name__ == "__main__":
    main()
