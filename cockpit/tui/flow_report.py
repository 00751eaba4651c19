"""The report of a flow as a file that only its user can read."""

from __future__ import annotations

import os
import time

from cockpit.errors import CockpitError
from cockpit.model.flow import FlowId
from cockpit.model.text import clean


def write_report(text: str, flow: FlowId | None) -> str:
    """Its path, in the current directory. Raises CockpitError; never writes over a file."""
    name = f"cockpit-report-{flow or 'none'}-{time.strftime('%Y%m%d-%H%M%S')}.md"
    path = ""
    try:
        path = os.path.join(os.getcwd(), name)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(file, "w", encoding="utf-8", errors="replace") as out:
            out.write(text)
    except FileExistsError as error:
        raise CockpitError(f"{clean(path)} is there already: it is not written over.") from error
    except OSError as error:
        why = clean(error.strerror or str(error))
        raise CockpitError(f"The report could not be written here: {why}.") from error
    return path
