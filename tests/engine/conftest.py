"""Programs with the agent in them: those of the agent's own tests."""

from tests.agent.conftest import folder, torch_python

__all__ = ["folder", "torch_python"]
