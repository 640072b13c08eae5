"""Connections, requests and replies, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from redis import exceptions

from .errors import Owner, Unavailable

if sys.version_info >= (3, 11):
    from asyncio import timeout as timeout_after
else:
    from async_timeout import timeout as timeout_after  # redis-py depends on it there

Command = tuple[Any, ...]
FRESH = 0.1  # how long a connection is taken to be open after a request, in seconds
# The beginnings of error replies after which a retry may succeed. redis-py removes the codes for
# which it has a class.
TRANSIENT = ("TRYAGAIN", "OOM", "BUSY", "UNBLOCKED", "max number of ")
TRANSIENT_CLASSES = ("TryAgainError", "OutOfMemoryError")
# Two of them are errors of a connection by their class only.
_login = (exceptions.AuthenticationError, exceptions.AuthorizationError)
REFUSALS = (exceptions.ResponseError, exceptions.InvalidResponse, *_login)

_boottime = getattr(time, "CLOCK_BOOTTIME", None)


def now() -> float:
    """Return the time of a clock that nobody can set. On Linux it also runs while the machine is
    suspended."""
    return time.monotonic() if _boottime is None else time.clock_gettime(_boottime)


async def wait(result: Any) -> Any:
    """Return the result of a method of redis-py, which has the same methods for both worlds."""
    return await result if inspect.isawaitable(result) else result


class Wire:
    """One connection, used by one request, or one batch of them, at a time. It has the options of a
    client of redis-py, and sends nothing again."""

    def __init__(self, redis: Any, timeout: float, **more: Any) -> None:
        pool = redis.connection_pool
        options = {k: v for k, v in pool.connection_kwargs.items() if not k.startswith(("maint", "oss"))}
        options |= {"decode_responses": True, "encoding": "utf-8", "health_check_interval": 0}
        options |= {"retry": None, "retry_on_timeout": False, "retry_on_error": []}
        options |= {} if "path" in options else {"socket_connect_timeout": timeout}
        self.asyncio = inspect.iscoroutinefunction(pool.connection_class.read_response)
        # In asyncio, within is the timeout. Those of redis-py would cost a timer for each call.
        options |= {"socket_timeout": None if self.asyncio else timeout} | more
        self.connection = pool.connection_class(**options)
        self.timeout, self.used = timeout, now()

    def within(self, timeout: float) -> AbstractAsyncContextManager[Any]:
        """Limit the time of the body in asyncio. For threads, the socket and read do."""
        return timeout_after(max(0, timeout)) if self.asyncio else nullcontext()

    async def ask(self, commands: Sequence[Command], timeout: float) -> list[Any]:
        """Return the replies, each perhaps an exception: Unavailable, or the server's error reply.
        Without a reply, close the connection and raise Unavailable."""
        end = now() + timeout
        try:
            async with self.within(timeout):
                await self.send(commands)
                replies = [await self.read(end - now()) for _ in commands]
        except BaseException as error:
            await self.close()
            raise (failure(error) if isinstance(error, Exception) else error) from None
        self.used = now()
        return replies

    async def send(self, commands: Sequence[Command]) -> None:
        for command in commands:  # the first one connects
            await wait(self.connection.send_command(*command))

    async def read(self, timeout: float) -> Any:
        if not self.asyncio and not self.connection.can_read(max(0, timeout)):
            raise TimeoutError
        try:
            return await wait(self.connection.read_response(disconnect_on_error=False))
        except REFUSALS as error:
            return failure(error)

    async def stale(self) -> bool:
        """Return whether the connection is closed, or a reply is left. Then close it."""
        look = getattr(self.connection, "can_read", None) or self.connection.can_read_destructive
        try:
            if now() - self.used < FRESH or not await wait(look()):
                return False
        except Exception:
            pass
        await self.close()
        return True

    async def close(self) -> None:
        await wait(self.connection.disconnect(True))  # in asyncio: do not wait


def failure(error: Exception) -> Exception:
    """Return Unavailable if a retry may succeed, or else the error itself."""
    transient = str(error).removeprefix("ERR ").startswith(TRANSIENT)
    if isinstance(error, REFUSALS) and type(error).__name__ not in TRANSIENT_CLASSES:
        return Unavailable(f"server unavailable: {error}") if transient else error
    if isinstance(error, exceptions.RedisError | OSError | EOFError | asyncio.TimeoutError):
        return Unavailable(f"server unavailable: {str(error) or 'no reply in time'}")
    return error  # a mistake in an option, or in this package


def text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def record(raw: Any) -> dict[str, Any]:
    """Return a record, which is a map in RESP3, and a list of names and values in RESP2."""
    if not isinstance(raw, dict | list):
        raise exceptions.InvalidResponse(f"the reply is {raw!r}: not a simba-resp server?")
    pairs = raw.items() if isinstance(raw, dict) else zip(raw[::2], raw[1::2], strict=False)
    return {text(name): text(value) for name, value in pairs}


def owner_in(values: dict[str, Any]) -> Owner | None:
    return Owner(values["owner"], values["token"]) if values["owner"] else None
