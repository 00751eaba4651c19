"""The report of a flow as a file that only its user can read."""

from __future__ import annotations

import os
import time

from cockpit.errors import CockpitError
from cockpit.model.flow import FlowId
from cockpit.model.text import clean


def write_report(text: str, flow: FlowId | None, path: str | None = None) -> str:
    """Its path: the given one, else a new name in the current directory.

    Raises CockpitError; never writes over a file.
    """
    name = f"cockpit-report-{flow or 'none'}-{time.strftime('%Y%m%d-%H%M%S')}.md"
    try:
        path = os.path.abspath(path or name)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(file, "w", encoding="utf-8", errors="replace") as out:
            out.write(text)
    except FileExistsError as error:
        there = clean(path or name)
        raise CockpitError(f"{there} is there already: it is not written over.") from error
    except OSError as error:
        why = clean(error.strerror or str(error))
        raise CockpitError(f"The report could not be written: {why}.") from error
    return path
