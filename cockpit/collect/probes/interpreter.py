"""The interpreter about itself. Imports nothing but the standard library."""

from __future__ import annotations

import importlib.util
import json
import os
import sys


def main() -> None:
    """One line: version, prefix, and whether and from where torch could be imported."""
    try:
        found = importlib.util.find_spec("torch")
    except Exception:  # noqa: BLE001 - a broken finder of the job's environment
        found = None
    # a folder of that name without a package in it is found as well, without an origin
    origin = found.origin if found is not None else None
    facts = {
        "version": ".".join(str(part) for part in sys.version_info[:3]),
        "prefix": sys.prefix,
        "has_torch": origin is not None,
        "torch_folder": os.path.dirname(origin) if origin is not None else None,
    }
    sys.stdout.write("cockpit-probe " + json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
