"""Tenures, and what they need: a clock, and ids."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import socket
import threading
from datetime import timedelta
from typing import Any, Generic, TypedDict, TypeVar

from ._wire import Command, now
from .errors import Lost, Owner

FOREVER = float("inf")
DAY = 24 * 60 * 60 * 1000  # the longest window, in milliseconds
MAX_ID = 128  # bytes

_counter = itertools.count(1)
_host = "".join(c for c in socket.gethostname() if c.isascii() and c not in "@{} ")


def millis(name: str, value: float | timedelta, lowest: int, highest: float = DAY) -> int:
    """Return a time in milliseconds. value is in seconds, or a timedelta."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not lowest <= round(seconds * 1000) <= highest:
        raise ValueError(f"{name} is {seconds} s, not {lowest / 1000} s to {highest / 1000} s")
    return round(seconds * 1000)


def new_id(prefix: str) -> str:
    """Return a contender id that people can read: prefix counter:pid@host~random."""
    begin, end = f"{prefix}{next(_counter)}:{os.getpid()}@", "~" + secrets.token_hex(8)
    return begin + _host[: max(0, MAX_ID - len(begin.encode()) - len(end))] + end


E = TypeVar("E", threading.Event, asyncio.Event)


class Terms(TypedDict, total=False):
    """The options of one contender. The default of the windows are those of the client."""

    id: str | None  #: the contender's id, which no other contender may have; None = a new one
    ttl: float | timedelta | None  #: the TTL window, in seconds
    grace: float | timedelta | None  #: the grace window, in seconds


class Tenure(Generic[E]):
    """One unbroken ownership of a mutex, and before that the effort to get it.

    A lease counts from before its request was sent, and is given up 1 % before its end, at most
    250 ms. So the client gives it up before the server can grant the mutex to another contender.
    """

    mutex: str
    #: the contender's id
    id: str
    #: the fencing token, larger than that of every earlier tenure of the mutex
    token = 0
    #: An event that is set when the mutex is lost. For work of lead and every, it is also set when
    #: the work should end because of stop or close.
    lost: E

    # The effort
    _epoch = 0  # of the engine; 0 = the effort has not begun
    _again = False  # lead has had a tenure: ask again even if refused
    _works = False  # of lead or every: the mutex is released when the work returns
    _quit = False  # the caller has ended the effort
    _owner: Owner | None = None  # in the last reply
    _failure: Exception | None = None  # of the last request; None = it was answered
    _keeps = False  # the server keeps, or may keep, something for the contender
    _request, _via = 0, ""  # the last request, and the name of the connection for its outcome
    _waits = False  # the server has confirmed that the request waits
    _outcome: dict[str, Any] | Exception | None = None
    _newest = -1  # the largest token that watch has seen
    # The lease
    _over, _leaving = "", False  # why the tenure has ended; whether its release has begun
    _began = _sent = _due = _noticed = 0.0  # when; due is the next renewal
    _until = -FOREVER  # when the lease is given up

    def __init__(
        self, engine: Any, mutex: str, terms: Terms, stop: E | None = None, wait: float | None = None,
        once: bool = False,
    ) -> None:
        if unknown := terms.keys() - Terms.__annotations__.keys():
            raise TypeError(f"unknown options: {', '.join(unknown)}")
        self.mutex, self.id, self.lost = mutex, terms.get("id") or "", engine.event()
        self._engine, self._terms, self._wake = engine, terms, engine.event()
        self._stop: E | None = stop
        self._once = once  # it does not wait
        self._deadline = FOREVER if wait is None else now() + wait

    def held(self) -> bool:
        """Return whether this process owns the mutex. held reads the clock and sends nothing. It is
        right even after a freeze of the process, or after work that has blocked the event loop."""
        return self._left() > 0

    def check(self) -> None:
        """Raise Lost unless this process owns the mutex, see held. Call it before each piece of
        work."""
        if not self.held():
            raise Lost(f"mutex {self.mutex} lost: others can have changed what it protects")

    def _left(self) -> float:
        return -1.0 if self._over else self._until - now()

    def _windows(self) -> tuple[int, int]:
        """Return ttl and grace, in milliseconds."""
        ttl, grace = self._terms.get("ttl"), self._terms.get("grace")
        return (
            self._engine.ttl if ttl is None else millis("ttl", ttl, 1),
            self._engine.grace if grace is None else millis("grace", grace, 0),
        )

    def _renewed(self, sent: float, left: int) -> None:
        """Begin a lease. sent is when its request was sent, left is what the server has granted."""
        ttl, grace = self._windows()
        length = min(ttl + grace, left) / 1000
        self._sent, self._until = sent, sent + length - min(length / 100, 0.25)
        self._due = sent + min(ttl / 1000, length) / 3 if sent >= self._noticed else sent

    def _ask(self, verb: str, *more: Any) -> Command:
        ttl, grace = self._windows()
        return f"SIMBA.{verb}", self.mutex, self.id, ttl, "TRANSITION", grace, *more
