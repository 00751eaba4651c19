"""How a child of ours is started from whatever directory and environment a run has.

    python -E -c BOOT ROOT PATHS…      then ``cockpit run …`` or the pane's program

``-E``: the run's PYTHONHOME or PYTHONPATH is for its own interpreter, not for ours. Not ``-m``: it
would put the run's directory first on the module path, and any ``signal.py`` that lies in it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[2])
_BOOT = (
    "import sys; sys.path.pop(0); import json; "
    "sys.path += [p for p in json.loads(sys.argv.pop(1)) if p not in sys.path]; "
    "from {module} import main; sys.exit(main(sys.argv[1:]))"
)


def cockpit_command(*words: str) -> list[str]:
    """argv of this cockpit, of this interpreter: ``cockpit_command("run", "--", …)``."""
    return _command("cockpit.cli", words)


def pane_command(order: str) -> list[str]:
    """argv of the program in a tmux pane (pane.py)."""
    return _command("cockpit.act.pane", (order,))


def _command(module: str, words: tuple[str, ...]) -> list[str]:
    paths = [_ROOT, *(path for path in sys.path if os.path.isabs(path))]
    return [sys.executable, "-E", "-c", _BOOT.format(module=module), json.dumps(paths), *words]
