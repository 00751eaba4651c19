"""Runs inside the user's training process. Imports nothing else of ours; Python 3.8 syntax.

``from cockpit.agent import attach; attach()`` in a training script lets the cockpit look inside.
"""

from cockpit.agent.agent import attach, detach

__all__ = ["attach", "detach"]
