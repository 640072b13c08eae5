"""Requests and replies, and the options of the connections that carry them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis import exceptions

from .errors import Owner, Unavailable

Command = tuple[Any, ...]
Commands = Sequence[Command]
# The beginnings of error replies after which a retry may succeed. redis-py removes the codes for
# which it has a class.
TRANSIENT = ("TRYAGAIN", "OOM", "BUSY", "UNBLOCKED", "max number of ")
TRANSIENT_CLASSES = ("TryAgainError", "OutOfMemoryError")
# Two of them are errors of a connection by their class only.
_login = (exceptions.AuthenticationError, exceptions.AuthorizationError)
REFUSALS = (exceptions.ResponseError, exceptions.InvalidResponse, *_login)


def connection(redis: Any, timeout: float | None, notices: bool) -> Any:
    """Return a connection with the options of a client of redis-py. Nothing is sent again on it.
    With notices it speaks RESP2, where they come as replies."""
    pool = redis.connection_pool
    options = {k: v for k, v in pool.connection_kwargs.items() if not k.startswith(("maint", "oss"))}
    options |= {"decode_responses": True, "encoding": "utf-8", "health_check_interval": 0}
    options |= {"retry": None, "retry_on_timeout": False, "retry_on_error": []}
    options |= {"socket_timeout": timeout} | ({"protocol": 2} if notices else {})
    options |= {} if "path" in options else {"socket_connect_timeout": timeout}
    return pool.connection_class(**options)


def failure(error: Exception) -> Exception:
    """Return Unavailable if a retry may succeed, or else the error itself."""
    transient = str(error).removeprefix("ERR ").startswith(TRANSIENT)
    if isinstance(error, REFUSALS) and type(error).__name__ not in TRANSIENT_CLASSES:
        return Unavailable(f"server unavailable: {error}") if transient else error
    if isinstance(error, exceptions.RedisError | OSError | EOFError):
        return Unavailable(f"server unavailable: {error}")
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
