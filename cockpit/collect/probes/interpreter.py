"""The interpreter about itself. Imports nothing but the standard library."""

from __future__ import annotations

import importlib.util
import json
import sys


def main() -> None:
    """One line: version, prefix, and whether torch could be imported."""
    try:
        found = importlib.util.find_spec("torch")
    except Exception:  # noqa: BLE001 - a broken finder of the job's environment
        found = None
    facts = {
        "version": ".".join(str(part) for part in sys.version_info[:3]),
        "prefix": sys.prefix,
        # a folder of that name without a package in it is found as well, without an origin
        "has_torch": found is not None and found.origin is not None,
    }
    sys.stdout.write("cockpit-probe " + json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
