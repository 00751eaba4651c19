"""One thing that can be done in a run, before anybody has said yes to it."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from cockpit.model.memory import RunRequest

STEP = "It runs on the training thread, right after the next optimizer step."


class Choice(NamedTuple):
    """One of the values that a fix may have."""

    word: str
    request: RunRequest


class Fix(NamedTuple):
    """What is asked of the run, what happens, what is lost by it."""

    key: str
    title: str
    aside: str
    request: RunRequest
    happens: tuple[str, ...]
    loses: str
    choices: tuple[Choice, ...] = ()
    """Empty: there is nothing to choose. Else ``request`` is one of theirs."""

    def pinned(self, start_ticks: int | None) -> Fix:
        """For that very process: a later one with its pid is refused by the engine."""
        return self._replace(
            request=replace(self.request, start_ticks=start_ticks),
            choices=tuple(
                one._replace(request=replace(one.request, start_ticks=start_ticks))
                for one in self.choices
            ),
        )

    def stepped(self, step: int) -> Fix:
        """With the next value, or the one before; the ends are ends."""
        requests = [one.request for one in self.choices]
        if self.request not in requests:
            return self
        at = min(max(0, requests.index(self.request) + step), len(requests) - 1)
        return self._replace(request=requests[at])
