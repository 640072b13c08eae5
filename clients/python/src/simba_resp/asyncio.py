"""The client for asyncio: the same as simba_resp.Client, with coroutines.

    async with simba_resp.asyncio.Client(redis) as client:
        async with client.lock("report") as lock:
            await write(lock.token)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from redis.asyncio import Redis

from ._engine import Engine, State, Time
from ._tenure import FOREVER, Tenure, Terms, millis
from .errors import Closed, Owner

if TYPE_CHECKING:
    from typing_extensions import Unpack

Work = Callable[[Tenure[asyncio.Event]], Coroutine[Any, Any, Any]]


REQUESTS_MAX = 16  # how many requests, and so connections, are under way at a time


class _Task(asyncio.Task[None]):
    """A task of the client. The end of the event loop, which cancels all tasks, makes the client hang
    up. So a release does not end with the loop, which waits for its tasks."""

    engine: _Engine
    keep: bool

    def cancel(self, msg: Any = None) -> bool:
        if not self.get_loop().is_running():
            self.engine.hang_up()
            if self.keep:
                return False
        return super().cancel(msg)  # of a timeout, if the loop runs


class _Engine(Engine[asyncio.Event]):
    event = asyncio.Event

    def reset(self) -> None:
        super().reset()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.tasks: set[_Task] = set()
        self.slots = asyncio.Semaphore(REQUESTS_MAX)

    def enter_loop(self) -> None:
        """Begin anew if the event loop of the earlier calls is closed."""
        loop = asyncio.get_running_loop()
        if self.loop is not None and self.loop is not loop:
            if not self.loop.is_closed():
                raise RuntimeError("the client belongs to another event loop")
            self.abandon()
        self.loop = loop

    async def pause(self, event: asyncio.Event, seconds: float) -> None:
        waits = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({waits}, timeout=max(0, seconds))
        finally:
            waits.cancel()

    def spawn(self, work: Coroutine[Any, Any, None], keep: bool = True) -> _Task:
        task = _Task(work, loop=asyncio.get_running_loop())
        task.engine, task.keep = self, keep
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def guard(self, who: Tenure[asyncio.Event], work: Coroutine[Any, Any, None]) -> None:
        task = self.spawn(work)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            who._quit = True
            who._wake.set()
            task.add_done_callback(lambda _: task.cancelled() or task.exception())  # nobody else asks
            if task.done() and who.held():
                await self.guard(who, self.finish(who))
            raise
        if task.cancelled():
            raise Closed("the client is closed")
        task.result()

    async def ask(self, *command: Any, limit: float = FOREVER) -> Any:
        async with self.slots:  # renewals do not wait here
            return await super().ask(*command, limit=limit)

    async def call(self, who: Tenure[asyncio.Event], f: Any) -> Any:
        # In a task that is cancelled when the tenure or the present task ends. Wait for it.
        work, lost = asyncio.ensure_future(f(who)), asyncio.ensure_future(who.lost.wait())
        waits, cancelled = {work, lost}, False
        while not work.done():
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                cancelled = True
            if not work.done():
                work.cancel()
                waits = {work}
        lost.cancel()
        if cancelled:
            raise asyncio.CancelledError
        return None if work.cancelled() else work.result()


class Lock(Tenure[asyncio.Event]):
    """A mutex that is locked by async with, or by acquire. It is released at the end of async with,
    or by release. Locks are not reentrant, and serve once."""

    async def acquire(self) -> None:
        """Wait until this process owns the mutex. For the errors see Client.lock. A cancelled acquire
        leaves no queue entry: it is released in the background."""
        await self._engine.guard(self, self._engine.enter(self))

    async def release(self) -> None:
        """Release the mutex. Raise Lost if it was lost before. Raise Unavailable if the server does
        not reply in time: then the release goes on in the background, as after a cancellation."""
        await self._engine.guard(self, self._engine.release(self))

    async def __aenter__(self) -> Lock:
        await self.acquire()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        await self._engine.guard(self, self._engine.finish(self, kind is not None))


class Client:
    """Locks mutexes of a simba-resp server, leads and watches, in one event loop.

    The arguments are those of simba_resp.Client. Close the client before the loop ends, by async with
    or close.
    """

    def __init__(
        self, redis: Redis, *, timeout: float = 3.0, ttl: Time = None, grace: Time = None,
        id_prefix: str | None = None,
    ) -> None:
        if not isinstance(redis, Redis):
            raise TypeError(f"redis is {redis!r}, not a redis.asyncio.Redis; see simba_resp.Client")
        self._own = _Engine(redis, timeout, ttl, grace, id_prefix)

    @property
    def _engine(self) -> _Engine:
        self._own.enter_loop()
        return self._own

    def lock(self, mutex: str, *, wait: float | None = None, **terms: Unpack[Terms]) -> Lock:
        """Return a lock for async with, see simba_resp.Client.lock. The body is not cancelled when
        the mutex is lost: see Lock.lost and Lock.check."""
        return Lock(self._engine, mutex, terms, None, wait)

    def try_lock(self, mutex: str, **terms: Unpack[Terms]) -> Lock:
        """Return a lock for async with that does not wait, see simba_resp.Client.try_lock."""
        return Lock(self._engine, mutex, terms, once=True)

    async def lead(self, mutex: str, f: Work, **terms: Unpack[Terms]) -> Any:
        """Await f(tenure) whenever this process is the leader, until f returns Final(value): then
        return value.

        f runs in a task of its own, which is cancelled when the mutex is lost, and when lead is
        cancelled or the client is closed. lead waits until f has ended. Cancel lead to end it. For all
        else see simba_resp.Client.lead.
        """
        return await self._engine.lead(Tenure(self._engine, mutex, terms), f)

    async def every(self, mutex: str, period: timedelta | float, f: Work, **terms: Unpack[Terms]) -> Any:
        """Await f(tenure) once a period in one of many processes, see simba_resp.Client.every."""
        seconds = millis("period", period, 1, FOREVER) / 1000
        return await self._engine.lead(Tenure(self._engine, mutex, terms), f, seconds)

    async def watch(self, mutex: str) -> AsyncIterator[State]:
        """Yield the present state of a mutex, and then each change in order, see
        simba_resp.Client.watch."""
        engine = self._engine
        who: Tenure[asyncio.Event] = Tenure(engine, mutex, {})
        who._epoch = engine.epoch
        try:
            while True:
                for state in await engine.changes(who):
                    yield state
        finally:
            engine.watchers.discard(who)

    async def owner(self, mutex: str) -> Owner | None:
        """Return the owner of a mutex; None = it is free."""
        return await self._engine.owner(mutex)

    async def check(self, mutex: str, token: int) -> bool:
        """Ask the server whether the tenure with this fencing token still lasts, see
        simba_resp.Client.check."""
        return await self._engine.check(mutex, token)

    async def close(self) -> None:
        """End all waits, watches and work, release all locks, and wait for all that, at most for
        timeout."""
        await self._engine.close()
        for task in self._own.tasks:
            task.cancel()
        await asyncio.gather(*self._own.tasks, return_exceptions=True)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
