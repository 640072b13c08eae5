"""The changes of a mutex, for watch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from ._wire import record
from .errors import Owner

HISTORY_MAX = 10_000  # how many changes the server returns at most


@dataclass(frozen=True)
class State:
    """What watch has seen of a mutex: its present state, or one change."""

    owner: Owner | None  #: the owner after the change; None = the mutex is free
    event: str = ""  #: acquired, released, expired or broken; "" = the present state
    reason: str = ""  #: why; often ""
    at: datetime | None = None  #: when, by the server's clock; None = the present state
    seq: int = 0  #: the number of the change; later changes have larger numbers
    gap: bool = False  #: changes before this present state may be missing


class History:
    """What is known of the changes of one mutex."""

    run = ""  # the server's run, which counts seq; "" = nothing is known
    owner: Owner | None = None  # after the change seq
    seq = newest = 0  # newest is the largest token so far
    differs = False  # the server has reported another owner in the last read
    gap = False  # changes are missing: only the present state can follow

    def since(self) -> tuple[str, int]:
        """Return the option of SIMBA.HISTORY for the next read."""
        return ("SINCE", self.seq) if self.run and not self.gap else ("COUNT", 1)

    def read(self, run: str, raw: list[Any], owner: Owner | None) -> list[State]:
        """Return what is new. If changes are missing, gap is set: read again."""
        events, before = [record(one) for one in raw], self.differs
        if self.run and not self.gap:
            self.gap = run != self.run or len(events) >= HISTORY_MAX
            states = [] if self.gap else self._follow(events)
            # The owner may be newer than the changes. But then the next read has a change.
            self.differs = owner != self.owner
            self.gap = self.gap or before and self.differs and not states
            return [] if self.gap else states
        self.run, self.owner, self.seq = run, owner, events[-1]["seq"] if events else 0
        self.newest = max([owner.token if owner else 0] + [event["token"] for event in events])
        state, self.differs, self.gap = State(owner, seq=self.seq, gap=self.gap), False, False
        return [state]

    def _follow(self, events: list[dict[str, Any]]) -> list[State]:
        states = []
        for event in events:
            self.seq, token, begins = event["seq"], event["token"], event["event"] == "acquired"
            ends = not begins and self.owner is not None and token == self.owner.token
            if ends or begins and token > self.newest and self.owner is None:
                self.owner, self.newest = None if ends else Owner(event["owner"], token), token
                at = datetime.fromtimestamp(event["at"] / 1000, timezone.utc)
                states.append(State(self.owner, event["event"], event["reason"], at, self.seq))
            elif token > self.newest:  # the server does not keep the change before any more
                self.gap = True
        return states
