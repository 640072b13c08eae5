"""The client for asyncio: the same as simba_resp.Client, with coroutines.

    async with simba_resp.asyncio.Client(redis) as client:
        async with client.lock("report") as lock:
            await write(lock.token)
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from redis.asyncio import ConnectionPool, Redis

from ._core import BaseClient, BaseLock

if sys.version_info >= (3, 11):
    from asyncio import timeout as timeout_after
else:
    from async_timeout import timeout as timeout_after  # redis-py depends on it there

__all__ = ["Client", "Lock"]


class Lock(BaseLock):
    """A tenure: one unbroken ownership of a mutex. Lock it by async with, or by acquire; it is
    released at the end of async with, or by release. Locks are not reentrant, and serve once."""

    #: An event that is set when the mutex is lost, or the client is closed, or stop is set for work
    #: of lead and every.
    lost: asyncio.Event
    acquire, release = BaseLock._acquire, BaseLock._release
    __aenter__, __aexit__ = BaseLock._acquire, BaseLock._finish


class Client(BaseClient[Lock]):
    """Locks mutexes of a simba-resp server, leads and watches, in one event loop.

    The arguments are those of simba_resp.Client. Close the client before the loop ends, by async
    with or close.
    """

    _classes, _lock_class, _event = (Redis, ConnectionPool), Lock, asyncio.Event
    _loop: asyncio.AbstractEventLoop | None = None
    _within, _limit = staticmethod(timeout_after), staticmethod(lambda: asyncio.Semaphore(16))
    lead, every = BaseClient._lead, BaseClient._every
    owner, check, watch = BaseClient._owner, BaseClient._check, BaseClient._watch

    async def _close(self) -> None:
        """See simba_resp.Client.close."""
        try:
            await super()._close()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    close, __aexit__ = _close, BaseClient._exit

    async def __aenter__(self) -> Client:
        return self

    def _here(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise RuntimeError("the client belongs to another event loop")
            self._reset()
            self._loop = loop

    async def _pause(self, event: asyncio.Event, seconds: float) -> None:
        with suppress(asyncio.TimeoutError):
            async with self._within(seconds):
                await event.wait()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guard(self, effort: Coroutine[Any, Any, None], who: Lock) -> None:
        try:
            await asyncio.shield(self._spawn(effort))
        except asyncio.CancelledError as error:
            who._quit(error)
            await who._finish()  # in case it was acquired at the same moment
            raise

    async def _call(self, who: Lock, f: Any) -> Any:
        # In a task that is cancelled when lost is set, also if this one is cancelled. Wait for it.
        work, lost = asyncio.ensure_future(f(who)), asyncio.ensure_future(who.lost.wait())
        lost.add_done_callback(lambda _: work.cancel())
        while not work.done():
            try:
                await asyncio.wait({work})
            except asyncio.CancelledError as error:
                who._stopped = error
                work.cancel()
        lost.cancel()
        return None if work.cancelled() else work.result()
