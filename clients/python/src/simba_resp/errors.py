"""The errors of the client. An error reply of the server is raised as an error of redis-py."""

from __future__ import annotations

from typing import NamedTuple


class Owner(NamedTuple):
    """The owner of a mutex, as the server has reported it."""

    id: str  #: the contender's id
    token: int  #: the fencing token of the tenure


class SimbaError(Exception):
    """The base class of all errors of this package."""


class NotAcquired(SimbaError):
    """The mutex was not acquired: another contender owns it or is next, the time is over, or the
    event stop is set."""

    #: the owner in the last reply; None = another contender is next, or nothing is known
    owner: Owner | None = None


class Lost(SimbaError):
    """The mutex was lost: others can have changed what it protects."""


class Unavailable(SimbaError):
    """The server or its store did not answer in time. A later attempt may succeed."""


class InUse(SimbaError):
    """Another contender of this client has the same id and mutex."""


class Closed(SimbaError):
    """The client is closed."""
