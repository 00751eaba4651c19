"""What must happen before textual is imported: the process's settings for a quick, small face.

This module may import nothing that imports asyncio or textual.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

_SETTINGS = {
    # The first frame waits for one period of the screen's timer: 16 ms at Textual's 60.
    "TEXTUAL_FPS": "120",
    # Animation means many frames for one change, over a line that may be slow.
    "TEXTUAL_ANIMATIONS": "none",
}


def prepare(*, color: bool = True, environ: MutableMapping[str, str] | None = None) -> None:
    """Set what textual reads at its import, unless the user set it, and import it.

    Without ``color`` NO_COLOR is set too (App reads it). Measured here: 4 MiB and a few ms less.
    """
    environ = os.environ if environ is None else environ
    for name, value in _SETTINGS.items():
        environ.setdefault(name, value)
    if not color:
        environ["NO_COLOR"] = "1"
    with _collector_off(), _without_ssl():
        importlib.import_module("asyncio")
    with _collector_off():
        importlib.import_module("textual.app")
    # What is imported stays; the collector need not walk it again and again.
    gc.freeze()


@contextmanager
def _collector_off() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _without_ssl() -> Iterator[None]:
    """``import ssl`` fails in here, and only in here: asyncio does without (it has
    ``except ImportError: ssl = None``), and the face speaks no TLS. Nothing where it is loaded."""
    if "ssl" in sys.modules:
        yield
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["ssl"]
