"""The client for asyncio: the same as simba_resp.Client, with coroutines.

    async with simba_resp.asyncio.Client(redis) as client:
        async with client.lock("report") as lock:
            await write(lock.token)
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from redis.asyncio import Redis

from . import _wire
from ._engine import Engine, Time, log
from ._history import History, State
from ._tenure import FOREVER, Tenure, Terms, millis, now
from ._wire import Command, Commands
from .errors import Owner, Unavailable

if sys.version_info >= (3, 11):
    from asyncio import timeout as timeout_after
else:
    from async_timeout import timeout as timeout_after  # redis-py depends on it there
if TYPE_CHECKING:
    from typing_extensions import Unpack

Work = Callable[[Tenure[asyncio.Event]], Coroutine[Any, Any, Any]]


class _Wire:
    """One connection that many tasks may share. The replies come in the order of the commands. So a
    cancelled task leaves the connection in order, and its RELEASE follows its ACQUIRE."""

    def __init__(self, redis: Redis, notices: bool = False) -> None:
        self.closed, self._connection = False, _wire.connection(redis, None, notices)
        self.cancelled = False  # by somebody else: the event loop ends
        self._early: list[Command] | None = []  # what is sent when the connection is open
        self.waiting: deque[asyncio.Future[Any]] = deque()
        self._notices: asyncio.Queue[Any] = asyncio.Queue()
        self._task = asyncio.ensure_future(self._run())

    async def ask(self, commands: Commands, timeout: float, limit: float = FOREVER) -> list[Any]:
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in commands]
        self.waiting.extend(futures)
        guard = loop.call_later(timeout, self.close)
        try:
            await self.send(commands)
            if limit < timeout:
                await asyncio.wait(futures, timeout=limit)
                return [one.result() if one.done() else _silence() for one in futures]
            return [await one for one in futures]
        finally:
            guard.cancel()

    async def send(self, commands: Commands) -> None:
        if self._early is not None:
            self._early.extend(commands)
        elif not self.closed:
            # Nobody waits until the bytes are sent: each task waits for the reply to its few bytes.
            self._connection._writer.writelines(self._connection.pack_commands(commands))

    async def read(self, timeout: float) -> Any:
        try:
            async with timeout_after(timeout):
                return await self._notices.get()
        except asyncio.TimeoutError:
            return None

    async def _run(self) -> None:
        failure: Exception = _silence()
        try:
            await self._connection.connect()
            early, self._early = self._early or [], None
            await self.send(early)
            while True:
                try:
                    reply = await self._connection.read_response(disconnect_on_error=False)
                except _wire.REFUSALS as error:
                    reply = _wire.failure(error)
                if not self.waiting:
                    self._notices.put_nowait(reply)
                elif not (future := self.waiting.popleft()).done():
                    future.set_result(reply)
        except asyncio.CancelledError:
            self.cancelled = not self.closed
        except Exception as error:
            failure = _wire.failure(error)
        finally:
            self.closed = True
            self._notices.put_nowait(failure)
            for future in self.waiting:
                if not future.done():
                    future.set_result(failure)
            if self._connection._writer is not None:
                self._connection._writer.transport.abort()
            await self._connection.disconnect(nowait=True)

    def close(self) -> None:
        self.closed = True
        self._task.cancel()


class _Engine(Engine[asyncio.Event]):
    event = asyncio.Event

    def reset(self) -> None:
        super().reset()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.shared: _Wire | None = None
        self.ending = False  # the event loop ends
        self.tasks: set[asyncio.Task[None]] = set()
        self.kept: set[asyncio.Task[Any] | None] = set()  # those that go on after a cancellation

    def enter_loop(self) -> None:
        """Begin anew if the event loop of the earlier calls is closed."""
        loop = asyncio.get_running_loop()
        if self.loop is not None and self.loop is not loop:
            if not self.loop.is_closed():
                raise RuntimeError("the client belongs to another event loop")
            self.abandon()
        self.loop = loop

    async def pause(self, event: asyncio.Event, seconds: float) -> None:
        try:
            async with timeout_after(max(0, seconds)):  # wait_for could swallow a cancellation
                await event.wait()
        except asyncio.TimeoutError:
            pass
        except asyncio.CancelledError:
            self._go_on()

    def _go_on(self) -> None:
        """Go on in a task that is kept, but not for long."""
        if asyncio.current_task() not in self.kept:
            raise
        self.hurry = min(self.hurry, now() + self.timeout)

    def spawn(self, work: Coroutine[Any, Any, None], keep: bool = False) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        if keep:
            self.kept.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self.kept.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task of the client has failed", exc_info=task.exception())

    def wire(self, notices: bool = False) -> _Wire:
        return _Wire(self.redis, notices)

    async def ask_all(self, commands: Commands, timeout: float, limit: float = FOREVER) -> list[Any]:
        while True:
            if self._line_ended():
                self.shared = self.wire()
            assert self.shared is not None
            wire = self.shared
            try:
                replies = await wire.ask(commands, timeout, limit)
            except asyncio.CancelledError:
                self._go_on()
                return [_silence()] * len(commands)
            if not wire.cancelled:
                if self.ending and not wire.waiting:
                    wire.close()
                return replies
            # Ask again, since a release must not end with the event loop.

    def _line_ended(self) -> bool:
        self.ending = self.ending or self.shared is not None and self.shared.cancelled
        return self.shared is None or self.shared.closed

    async def call(self, who: Tenure[asyncio.Event], f: Any) -> Any:
        # In a task that is cancelled when the tenure or the present task ends. Wait for it.
        task, lost = asyncio.ensure_future(f(who)), asyncio.ensure_future(who.lost.wait())
        try:
            await asyncio.wait({task, lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            lost.cancel()
            while not task.done():
                task.cancel()
                try:
                    await asyncio.wait({task})
                except asyncio.CancelledError:
                    continue
        return None if task.cancelled() else task.result()

    async def settle(self, who: Tenure[asyncio.Event]) -> None:
        for _ in range(2):  # the end of the loop cancels the task of the connection, too
            await asyncio.sleep(0)
        end, _ = now() + self.timeout, self._line_ended()
        while self.ending and now() < end and who in self.contenders.values():
            await asyncio.sleep(0.01)

    async def end(self) -> None:
        """End all tasks of the client."""
        if self.shared is not None:
            self.shared.close()
            self.tasks.add(self.shared._task)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class Lock(Tenure[asyncio.Event]):
    """A mutex that is locked by async with, or by acquire. It is released at the end of async with,
    or by release. Locks are not reentrant, and serve once."""

    async def acquire(self) -> None:
        """Wait until this process owns the mutex. For the errors see Client.lock. A cancelled acquire
        leaves no queue entry: it is released in the background."""
        await self._engine.enter(self)

    async def release(self) -> None:
        """Release the mutex. Raise Lost if it was lost before. Raise Unavailable if the server does
        not reply in time: then the release goes on in the background, as after a cancellation."""
        await self._engine.release(self)

    async def __aenter__(self) -> Lock:
        await self.acquire()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        await self._engine.finish(self, kind is not None)


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
        engine, history = self._engine, History()
        who: Tenure[asyncio.Event] = Tenure(engine, mutex, {})
        who._pause = 0.0
        try:
            while True:
                for state in await engine.changes(who, history):
                    yield state
        finally:
            engine._unlisten(who)

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
        await self._own.end()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _silence() -> Unavailable:
    return Unavailable("server unavailable: no reply in time")
