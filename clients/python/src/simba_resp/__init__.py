"""The client of simba-resp, a distributed lock server: locks, leadership and periodic work.

    client = simba_resp.Client(redis.Redis(port=7379))
    with client.lock("report") as lock:
        write(lock.token)

This module is for threads; simba_resp.asyncio has the same for asyncio.

A tenure is one unbroken ownership of a mutex. Its fencing token is larger than that of every
earlier tenure of the mutex. A lease is the owner's right to the mutex for a limited time. Each
renewal begins a new lease of the same tenure. The client renews by itself.

After a freeze of the process or the machine, the lease may have ended. Lock.check reads the clock,
so it is right at once. A process can also be frozen right after its check. So pass the token to the
resource, which must refuse a token smaller than the largest that it has seen.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, ParamSpec, TypeVar, cast

from redis import ConnectionPool, Redis

from ._core import BaseClient, BaseLock, Final, State, Terms
from .errors import Closed, InUse, Lost, NotAcquired, Owner, SimbaError, Unavailable

P = ParamSpec("P")
T = TypeVar("T")

__all__ = ["BaseClient", "BaseLock", "Client", "Final", "Lock", "Owner", "State", "Terms"]
__all__ += ["Closed", "InUse", "Lost", "NotAcquired", "SimbaError", "Unavailable"]


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of the core, which blocks where it would suspend in asyncio."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    raise RuntimeError("a coroutine of the client for threads has suspended")


def _blocking(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    def blocks(*args: P.args, **kwargs: P.kwargs) -> T:
        return _run(method(*args, **kwargs))

    functools.update_wrapper(blocks, method)
    vars(blocks).pop("__wrapped__")  # which tools would take for a coroutine function
    vars(blocks)["__signature__"] = inspect.signature(method)
    return blocks


class Lock(BaseLock):
    """A tenure: one unbroken ownership of a mutex. Lock it by with, or by acquire; it is released
    at the end of with, or by release. Locks are not reentrant, and serve once. See BaseLock."""

    #: An event that is set when the mutex is lost, or the client is closed. For work of lead and
    #: every, it is also set when the work should end because stop is set.
    lost: threading.Event
    acquire, release = _blocking(BaseLock._acquire), _blocking(BaseLock._release)
    __enter__, __exit__ = acquire, _blocking(BaseLock._finish)


class Client(BaseClient[Lock]):
    """Locks mutexes of a simba-resp server, leads and watches. It is safe for use by many threads.
    lock and try_lock are those of BaseClient.

    redis names the server. The client opens its own connections with the options of redis, and
    never closes redis. timeout is how long one request, one release, and close may take, in
    seconds. ttl and grace are the two windows of a lease, in seconds, or as timedelta. The owner
    renews when a third of ttl has passed. In the grace window it still owns the mutex. If the owner
    dies, the mutex is free when both have passed. The default is 10 s and 2 s, or less if the
    server grants no lease of that length; if only ttl is set, there is no grace window. id_prefix
    begins the contender ids that the client makes. By default it is the name of the user and a
    colon, as the server demands, and empty for the user default.
    """

    _classes, _lock_class, _event = (Redis, ConnectionPool), Lock, threading.Event
    lead, every = _blocking(BaseClient._lead), _blocking(BaseClient._every)
    owner, check = _blocking(BaseClient._owner), _blocking(BaseClient._check)
    close, __exit__ = _blocking(BaseClient._close), _blocking(BaseClient._exit)

    def watch(self, mutex: str, *, stop: threading.Event | None = None) -> Iterator[State]:
        """Yield the present state of a mutex, and then each change in order, until the event stop
        is set. While the server does not answer, watch asks again. It raises Closed, and the
        server's error replies."""
        states = self._watch(mutex, stop=stop)
        try:
            while state := _run(anext(states, None)):
                yield state
        finally:
            _run(states.aclose())

    def __enter__(self) -> Client:
        return self

    async def _pause(self, event: threading.Event, seconds: float) -> None:
        event.wait(max(0, seconds))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        threading.Thread(target=_run, args=(work,), name="simba-resp", daemon=True).start()

    async def _call(self, who: Lock, f: Any) -> Any:
        return f(who)
