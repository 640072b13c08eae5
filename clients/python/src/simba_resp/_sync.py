"""The client for threads. It runs the coroutines of the engine without an event loop: they block
where those of the asyncio client would suspend."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from redis import Redis

from ._engine import Engine, State, Time
from ._tenure import FOREVER, Tenure, Terms, millis
from .errors import Owner, Stopped

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
Work = Callable[[Tenure[threading.Event]], Any]


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("a coroutine of the sync client has suspended")


class _Engine(Engine[threading.Event]):
    event = threading.Event

    async def pause(self, event: threading.Event, seconds: float) -> None:
        event.wait(max(0, seconds))

    def spawn(self, work: Coroutine[Any, Any, None], keep: bool = True) -> None:
        try:
            threading.Thread(target=_run, args=(work,), name="simba-resp", daemon=True).start()
        except RuntimeError:  # the interpreter ends
            work.close()

    async def call(self, who: Tenure[threading.Event], f: Any) -> Any:
        return f(who)


class Lock(Tenure[threading.Event]):
    """A mutex that is locked by with, or by acquire. It is released at the end of with, or by
    release. Locks are not reentrant, and serve once."""

    def acquire(self) -> None:
        """Wait until this process owns the mutex. For the errors see Client.lock."""
        _run(self._engine.enter(self))

    def release(self) -> None:
        """Release the mutex. Raise Lost if it was lost before. Raise Unavailable if the server does
        not reply in time: then the release goes on in the background."""
        _run(self._engine.release(self))

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        _run(self._engine.finish(self, kind is not None))


class Client:
    """Locks mutexes of a simba-resp server, leads and watches. It is safe for use by many threads.

    redis names the server. The client opens its own connections with the options of redis, and never
    closes redis. timeout is how long one request, one release, and close may take, in seconds. ttl
    and grace are the two windows of a lease, in seconds, or as timedelta. The owner renews when a
    third of ttl has passed. In the grace window it still owns the mutex. If the owner dies, the mutex
    is free when both have passed. The default is 10 s and 2 s, or less if the server grants no lease
    of that length; if only ttl is set, there is no grace window. id_prefix begins the contender ids
    that the client makes. By default it is the name of the user and a colon, as the server demands,
    and empty for the user default.
    """

    def __init__(
        self, redis: Redis, *, timeout: float = 3.0, ttl: Time = None, grace: Time = None,
        id_prefix: str | None = None,
    ) -> None:
        if not isinstance(redis, Redis):
            raise TypeError(f"redis is {redis!r}, not a redis.Redis; see also simba_resp.asyncio")
        self._engine = _Engine(redis, timeout, ttl, grace, id_prefix)

    def lock(
        self, mutex: str, *, wait: float | None = None, stop: threading.Event | None = None,
        **terms: Unpack[Terms],
    ) -> Lock:
        """Return a lock for with. It waits until this process owns the mutex, first come, first
        served.

        wait is how many seconds it waits; None = for ever. Then, or when stop is set, it raises
        NotAcquired. While the server does not answer, it asks again. terms are id, ttl and grace. It
        raises InUse if this client uses the id for the mutex already, Closed, or the server's error
        reply, a ResponseError of redis-py. The end of with raises Lost if the mutex was lost, unless
        the body has raised an exception.
        """
        return Lock(self._engine, mutex, terms, stop, wait)

    def try_lock(self, mutex: str, **terms: Unpack[Terms]) -> Lock:
        """Return a lock for with that does not wait. It raises NotAcquired if another contender owns
        the mutex or is next, and Unavailable if the server does not answer. See lock."""
        return Lock(self._engine, mutex, terms, once=True)

    def lead(
        self, mutex: str, f: Work, *, stop: threading.Event | None = None, **terms: Unpack[Terms]
    ) -> Any:
        """Call f(tenure) whenever this process is the leader, until f returns Final(value): then
        return value.

        f runs in the thread of the caller. It should return soon after the event tenure.lost is set,
        which means that the mutex is lost, or that stop is set or the client is closed. When f
        returns, or raises an Exception, which is logged, the mutex is released, and lead contends
        again. Every other exception ends lead. lead returns None after stop is set, and raises
        Closed. It raises a refusal of the server only before the first tenure, and else logs it and
        tries again.
        """
        return _run(self._engine.lead(Tenure(self._engine, mutex, terms, stop), f))

    def every(
        self, mutex: str, period: float | timedelta, f: Work, *, stop: threading.Event | None = None,
        **terms: Unpack[Terms],
    ) -> Any:
        """Call f(tenure) once a period in one of many processes. The process that runs it holds the
        mutex from run to run. A new leader calls f at once, and counts the period from the begin of
        its tenure. After several missed start times f runs once. For all else see lead."""
        seconds = millis("period", period, 1, FOREVER) / 1000
        return _run(self._engine.lead(Tenure(self._engine, mutex, terms, stop), f, seconds))

    def watch(self, mutex: str, *, stop: threading.Event | None = None) -> Iterator[State]:
        """Yield the present state of a mutex, and then each change in order, until stop is set. While
        the server does not answer, watch asks again. It raises Closed, and the server's error
        replies."""
        who = Tenure(self._engine, mutex, {}, stop)
        who._epoch = self._engine.epoch
        try:
            while True:
                yield from _run(self._engine.changes(who))
        except Stopped:
            return
        finally:
            self._engine.watchers.discard(who)

    def owner(self, mutex: str) -> Owner | None:
        """Return the owner of a mutex; None = it is free."""
        return _run(self._engine.owner(mutex))

    def check(self, mutex: str, token: int) -> bool:
        """Ask the server whether the tenure with this fencing token still lasts. A resource that can
        store a number needs no check: it keeps the largest token, and refuses smaller ones."""
        return _run(self._engine.check(mutex, token))

    def close(self) -> None:
        """End all waits and watches, release all locks, set the events lost of lead and every, and
        wait for all that, at most for timeout."""
        _run(self._engine.close())

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
