"""What both clients need of redis-py: connections, replies and errors."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from redis import exceptions

from .errors import Owner, Unavailable

# The beginnings of error replies after which a retry may succeed. redis-py removes the codes for
# which it has a class.
TRANSIENT = ("TRYAGAIN", "OOM", "BUSY", "UNBLOCKED", "max number of ")
TRANSIENT_CLASSES = ("TryAgainError", "OutOfMemoryError")
# The last two are errors of a connection by their class. DataError is a mistake of the caller.
REFUSALS = (
    exceptions.ResponseError, exceptions.DataError,
    exceptions.AuthenticationError, exceptions.AuthorizationError,
)


async def wait(result: Any) -> Any:
    """Return the result of a method of redis-py, which has the same methods for both worlds."""
    return await result if hasattr(result, "__await__") else result


def connect(redis: Any, redis_class: Any, pool_class: Any, timeout: float) -> Any:
    """Return a client of redis-py with the options of redis, but with connections of its own. It
    speaks RESP2, and sends nothing again."""
    pool, server = redis.connection_pool, ("maint", "oss")  # options for servers of Redis only
    options = {k: v for k, v in pool.connection_kwargs.items() if not k.startswith(server)}
    options |= {} if "path" in options else {"socket_connect_timeout": timeout}
    # The timeouts of redis-py would cost a task for each call in asyncio, which has _within.
    blocks = not inspect.iscoroutinefunction(redis_class.execute_command)
    options |= {"socket_timeout": timeout if blocks else None, "health_check_interval": 0}
    options |= {"protocol": 2, "decode_responses": True, "encoding": "utf-8"}
    options |= {"retry": None, "retry_on_timeout": False, "retry_on_error": []}
    own = pool_class(connection_class=pool.connection_class, **options)
    return redis_class(connection_pool=own)


def failure(error: Exception) -> Exception:
    """Return Unavailable if a retry may succeed, or else the error itself."""
    transient = str(error).removeprefix("ERR ").startswith(TRANSIENT)
    if isinstance(error, REFUSALS) and type(error).__name__ not in TRANSIENT_CLASSES:
        return Unavailable(f"server unavailable: {error}") if transient else error
    if isinstance(error, exceptions.RedisError | OSError | EOFError | asyncio.TimeoutError):
        return Unavailable(f"server unavailable: {str(error) or 'no reply in time'}")
    return error  # a mistake in an option, or in this package


def record(raw: Any) -> dict[str, Any]:
    """Return a record, which is a list of names and values in RESP2."""
    return dict(zip(raw[::2], raw[1::2], strict=True))


def owner_in(values: dict[str, Any]) -> Owner | None:
    return Owner(values["owner"], values["token"]) if values["owner"] else None
