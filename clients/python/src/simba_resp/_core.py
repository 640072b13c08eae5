"""What both clients do, and what they need of redis-py.

    _enter ── ACQUIRE ──queued──► the outcome, by SIMBA.NEXT
      │                               │
      └────────► the tenure ◄─────────┘
                     │   _tick decides when to renew, and what is lost; _renew sends GUARD
                     ▼
            lost, or released by _release

The coroutines send by redis-py, and wait by the abstract methods at the end of BaseClient. The
asyncio client awaits there. The client for threads blocks there, so that they never suspend.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import secrets
import socket
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import nullcontext, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypedDict, TypeVar

from redis import AuthenticationError, DataError, Redis, RedisError, ResponseError, exceptions

from .errors import Closed, InUse, Lost, NotAcquired, Owner, SimbaError, Unavailable

if TYPE_CHECKING:
    from typing_extensions import Unpack

log = logging.getLogger("simba_resp")
Time = float | timedelta
L = TypeVar("L", bound="BaseLock")
Work = Callable[[L], Any]
FOREVER = float("inf")

# Seconds
PAUSE, PAUSE_MAX = 0.1, 2.0  # before a request is repeated; after a failure, the pause doubles
POLL = 1.0  # before a contender asks again that the server cannot tell the outcome
WAIT_MAX = 60.0  # after that a contender asks whether it still waits
NEXT_WAIT = 2.0  # how long SIMBA.NEXT blocks
LISTEN_AFTER = 0.8  # shorter tenures are not worth a subscription
LISTEN_EVERY = 0.25  # how often new subscriptions are sent
REDIAL, REFUSED = 0.25, 60.0  # the pause of a loop after a failure, and after a refused request
TICK_MIN, TICK = 0.002, 0.1  # between two looks at all leases
QUICK = 1.0  # lead pauses after a shorter tenure
NOTE_EVERY = 10.0  # how often failures are logged

# The beginnings of error replies after which a retry may succeed. redis-py removes the codes for
# which it has a class.
TRANSIENT = ("TRYAGAIN", "OOM", "BUSY", "UNBLOCKED", "max number of ", "ERR max number of ")
TRANSIENT_CLASSES = exceptions.TryAgainError, exceptions.OutOfMemoryError
# The last two are errors of a connection by their class. DataError is a mistake of the caller.
REFUSALS = ResponseError, DataError, AuthenticationError, exceptions.AuthorizationError
FAILURES = RedisError, OSError, EOFError, asyncio.TimeoutError

_clients: weakref.WeakSet[BaseClient[Any]] = weakref.WeakSet()  # of this process
_host = "".join(c for c in socket.gethostname() if c.isascii() and c not in "@{} ")[:40]
# The clock of macOS has the second name.
_clock = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC_RAW", None))


def now() -> float:
    """Return the time of a clock that nobody can set. On Linux and macOS it also runs while the
    machine is suspended."""
    return time.monotonic() if _clock is None else time.clock_gettime(_clock)


def expect(fits: bool, name: str, value: Any, kind: str) -> None:
    """Raise unless an argument fits."""
    if not fits:
        raise TypeError(f"{name} must be {kind}, not {value!r}")


def millis(name: str, value: Time, lowest: int, highest: float = 86_400_000) -> float:
    """Return a time in milliseconds. value is in seconds, or a timedelta. The longest window is a
    day."""
    expect(isinstance(value, float | int | timedelta), name, value, "seconds or a timedelta")
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not lowest <= seconds * 1000 <= highest:
        raise ValueError(f"{name} is {seconds} s, not {lowest / 1000} s to {highest / 1000} s")
    return round(seconds * 1000) if seconds < FOREVER else FOREVER


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
    options |= {"socket_timeout": timeout if redis_class is Redis else None}
    options |= {"decode_responses": True, "encoding": "utf-8", "health_check_interval": 0}
    options |= {"protocol": 2, "retry": None, "retry_on_timeout": False, "retry_on_error": []}
    return redis_class(connection_pool=pool_class(pool.connection_class, **options))


def failure(error: Exception) -> Exception:
    """Return Unavailable if a retry may succeed, or else the error itself."""
    text = str(error) or "no reply in time"
    transient = text.startswith(TRANSIENT) or isinstance(error, TRANSIENT_CLASSES)
    if isinstance(error, REFUSALS) and not transient or not isinstance(error, FAILURES):
        return error  # a refusal, or a mistake in an option, or in this package
    return Unavailable(f"server unavailable: {text}")


def record(raw: Any) -> dict[str, Any]:
    """Return a record, which is a list of names and values in RESP2."""
    return dict(zip(raw[::2], raw[1::2], strict=True))


def owner_in(values: dict[str, Any]) -> Owner | None:
    return Owner(values["owner"], values["token"]) if values["owner"] else None


class Final(NamedTuple):
    """The result with which the work of lead or every ends lead or every, which returns value."""

    value: Any = None


class State(NamedTuple):
    """What watch has seen of a mutex: its present state, or one change."""

    owner: Owner | None  #: the owner after the change; None = the mutex is free
    event: str = ""  #: acquired, released, expired or broken; "" = the present state
    reason: str = ""  #: why; often ""


class Terms(TypedDict, total=False):
    """The options of one contender. The defaults of ttl and grace are those of the client."""

    id: str | None  #: the contender's id, which no other contender may have; None = a new one
    ttl: float | timedelta | None  #: the TTL window, in seconds
    grace: float | timedelta | None  #: the grace window, in seconds
    stop: threading.Event | asyncio.Event | None  #: ends the call when it is set


class BaseLock:
    """One unbroken ownership of a mutex, and before that the effort to get it.

    A lease counts from before its request was sent, and is given up 1 % before its end, at most
    250 ms. So the client gives it up before the server can grant the mutex to another contender.
    """

    mutex: str
    #: the contender's id
    id: str
    #: the fencing token, larger than that of every earlier tenure of the mutex
    token = 0
    lost: Any

    _began = 0.0  # when the effort has begun, and later the tenure; 0 = nothing has begun
    _stopped: BaseException | None = None  # why the effort, or the work, should end
    _works = False  # it is of lead or every, which release after the work
    _channel = ""  # the channel whose notices it needs; "" = none
    # The effort
    # What the server keeps: "" = nothing, wait = the last request, maybe = unknown,
    # polls = a place in the queue that no request names
    _kept = ""
    _request, _via = 0, ""  # the last request, and the name of the connection for its outcome
    _outcome: dict[str, Any] | Exception | None = None
    _why: NotAcquired | None = None  # raised at the deadline; None = no reply has come
    # The tenure
    _over, _leaving = "", False  # why it has ended; whether the release has begun
    _due = _until = 0.0  # when the lease is renewed next; when it is given up

    def __init__(
        self, client: Any, mutex: str, retry: tuple[type, ...] = (Unavailable,),
        wait: Time | None = None, /, *, id: str | None = None, ttl: Time | None = None,
        grace: Time | None = None, stop: Any = None,
    ) -> None:  # the options are those of Terms
        expect(isinstance(mutex, str) and mutex != "", "mutex", mutex, "a non-empty str")
        expect(id is None or isinstance(id, str) and id != "", "id", id, "a non-empty str")
        expect(stop is None or hasattr(stop, "is_set"), "stop", stop, "an event")
        self.mutex, self.id, self.lost = mutex, id or "", client._event()
        self._client, self._wake, self._named, self._stop = client, client._event(), id, stop
        self._wait = FOREVER if wait is None else millis("wait", wait, 0, FOREVER) / 1000
        # The errors after which it asks again; () = it does not wait
        self._retry = retry if self._wait else ()
        self._fits = client._fits and ttl is None and grace is None
        self._ttl = client._ttl if ttl is None else millis("ttl", ttl, 1)
        self._grace = client._grace if grace is None else millis("grace", grace, 0)

    def check(self) -> bool:
        """Return whether this process owns the mutex, and lost is not set. check reads the clock
        and sends nothing, so call it before each piece of work. It is right even after a freeze of
        the process, or after work that has blocked the event loop."""
        return self._held() and not self.lost.is_set()

    def _held(self) -> bool:
        return self.token > 0 and not self._over and now() < self._until

    def _command(self, verb: str, *more: Any) -> tuple[Any, ...]:
        return f"SIMBA.{verb}", self.mutex, self.id, self._ttl, "TRANSITION", self._grace, *more

    # Acquire

    async def _acquire(self: L) -> L:
        """Wait until this process owns the mutex, and return the lock. For the errors see
        Client.lock. In asyncio, a cancelled acquire leaves no queue entry: it is released in the
        background."""
        await self._client._guard(self._enter(), self)
        return self

    async def _enter(self, pause: float = 0.0) -> None:
        """Become the owner. The first request is sent after a pause."""
        client, longer = self._client, PAUSE
        if self._began:
            raise RuntimeError("this lock was used before: it serves once, and is not reentrant")
        self._began = now()
        try:
            client._join(self)
            while not self.token:
                if pause:
                    await self._rest(pause * random.uniform(0.5, 1.0))
                try:
                    pause, longer = await self._round(), PAUSE
                except (Unavailable, InUse, RedisError) as error:
                    if self._fits and str(error).startswith("TOOLONG "):
                        longest = int(str(error).split()[1])
                        log.warning("the server refuses the default lease: %s", error)
                        client._ttl = self._ttl = longest * 5 // 6
                        client._grace = self._grace = longest - self._ttl
                        continue
                    if not isinstance(error, self._retry):
                        raise
                    self._why = NotAcquired(f"mutex {self.mutex}: {error}")
                    client._note(self.mutex, error)
                    pause, longer = longer, min(2 * longer, PAUSE_MAX)
        except BaseException:
            self._leaving = True
            if self._kept:
                client._spawn(self._insist())
            else:
                client._leave(self)
            raise

    async def _round(self) -> float:
        """Send an ACQUIRE, and wait for its outcome. Return the pause before the next one."""
        client = self._client
        self.id = self.id or await client._new_id()
        # The server would treat two contenders with the same id as one.
        if (other := client._contenders.setdefault((self.mutex, self.id), self)) is not self:
            kind = Unavailable if other._leaving else InUse
            raise kind(f"{self.id!r} contends for {self.mutex} already")
        self._request, self._via, self._outcome = next(client._numbers), client._waiter, None
        client._waits[self._request] = self
        via = ("WAIT", 0, "VIA", self._via, "REQUEST", self._request)
        how = via if self._retry else ("NOQUEUE",)
        self._kept, sent = "polls" if self._kept == "polls" else "maybe", now()
        try:
            reply = record(await client._ask(*self._command("ACQUIRE", *how)))
            if reply["status"] in ("busy", "queued"):
                owner = owner_in(reply)
                why = f"owned by {owner.id}" if owner else "another is next"
                self._why = error = NotAcquired(f"mutex {self.mutex}: {why}")
                error.owner = owner
                if reply["status"] == "busy":
                    self._kept = ""
                    raise error
                if not reply.get("request"):
                    self._kept = "polls"
                    client._start("next", client._collect)
                    return POLL
                self._kept, end = "wait", now() + WAIT_MAX
                while self._outcome is None and self._via == client._waiter and now() < end:
                    await self._rest(end - now())
                if isinstance(self._outcome, Exception):
                    raise self._outcome
                reply = self._outcome or reply
        finally:
            client._waits.pop(self._request, None)
        if reply["status"] == "acquired" and now() - sent > (self._ttl + self._grace) / 3000:
            sent = now()
            reply = record(await client._ask(*self._command("GUARD", "TOKEN", reply["token"])))
        if reply["status"] in ("acquired", "renewed"):
            self._renewed(sent, reply["transition"])
            if now() >= self._until:
                raise Unavailable("server unavailable: the reply took longer than the lease")
            with client._lock:  # so that close finds the tenure
                if self._stopped:
                    raise self._stopped
                self._began, self.token = now(), reply["token"]
        return PAUSE

    def _renewed(self, sent: float, left: int) -> None:
        """Begin a lease. sent is when its request was sent, left is what the server has granted."""
        length = min(self._ttl + self._grace, left) / 1000
        self._until = max(self._until, sent + length - min(length / 100, 0.25))
        self._due = sent + min(self._ttl / 1000, length) / 3

    async def _rest(self, seconds: float) -> None:
        """Wait until somebody wakes it, at most for that time. Raise if it should end."""
        deadline = self._began + self._wait
        await self._client._pause(self._wake, min(seconds, deadline - now()))
        self._wake.clear()
        if self._stopped:
            raise self._stopped
        if now() >= deadline:
            raise self._why or NotAcquired(f"mutex {self.mutex}: no reply in time")

    def _quit(self, error: BaseException) -> None:
        """Make the effort or the work end."""
        self._stopped = self._stopped or error
        self._wake.set()
        if self._works:
            self.lost.set()

    # Release

    def _end(self, why: str, owner: Owner | None = None) -> None:
        """End the tenure."""
        if not self._over:
            self._over = why
            if why == "lost":
                self.lost.set()
                log.warning("mutex lost: %s contender=%s owner=%s", self.mutex, self.id, owner)

    async def _release(self) -> None:
        """Release the mutex. Raise Lost if it was lost before. Raise Unavailable if the server does
        not reply in time: then the release goes on in the background, as after a cancellation."""
        client, first = self._client, False
        if self.token:
            self._end("released" if self._held() else "lost")
            with client._lock:
                first, self._leaving = not self._leaving, True
        if first and self._over == "released":
            try:
                if not await self._free():
                    self._over = ""
                    self._end("lost")
            except BaseException:
                client._spawn(self._insist())
                raise
        if first:
            client._leave(self)
        if self._over != "released":
            raise Lost(f"mutex {self.mutex} lost: others can have changed what it protects")
        if not first and isinstance(self._stopped, Closed):  # close has released it before
            raise self._stopped

    async def _finish(self, failed: object = True, *_: object) -> None:
        """Release after work. Raise Lost and Closed unless the work has failed."""
        try:
            await self._release()
        except (Lost, Closed):  # _end has logged a loss
            if failed is None:
                raise
        except (SimbaError, RedisError) as error:
            log.warning("%s contender=%s: %s", self.mutex, self.id, error)

    async def _insist(self) -> None:
        """Repeat a release until the server replies, or the lease is over."""
        client, pause, end = self._client, 0.0, now() + (self._ttl + self._grace) / 1000
        while now() + pause < min(end, client._hurry):
            try:
                await client._pause(client._event(), pause)
                await self._free()
                end = 0.0  # the server keeps nothing
            except asyncio.CancelledError:  # by close, or the end of the event loop
                client._hurry = min(client._hurry, now() + client._timeout)
            except (SimbaError, RedisError):
                pause = min(2 * pause + PAUSE, 1.0)
        if now() + pause >= end:  # or else close raises
            client._leave(self)

    async def _free(self) -> Any:
        """Release a tenure, or what the server may keep for an effort. Others may use the caller's
        id later, so a late RELEASE of such an effort names its request or tenure."""
        what: tuple[Any, ...] = ("TOKEN", self.token) if self.token else ()
        if not self.token and self._named:
            if self._kept == "wait" and self._via == self._client._waiter:
                what = ("VIA", self._via, "REQUEST", self._request)
            elif self._kept == "polls":
                self._kept = "maybe"  # a second RELEASE could be late
            elif (owner := await self._client._owner(self.mutex)) and owner.id == self.id:
                what = ("TOKEN", owner.token)
            else:
                return None
        ask = self._client._ask
        return await ask("SIMBA.RELEASE", self.mutex, self.id, *what, again=bool(what))


class BaseClient(Generic[L]):
    """Locks mutexes of a simba-resp server, leads and watches."""

    _classes: tuple[Any, Any]  # of redis-py: of the client and its pool
    _lock_class: type[L]
    _event: Callable[[], Any]
    # Limits the time of its body in asyncio. For threads, the timeout of the socket does.
    _within: Callable[[float], Any] = nullcontext
    _limit: Callable[[], Any] = nullcontext  # of requests, and so of connections, at a time

    def __init__(
        self, redis: Any, *, timeout: Time = 3.0, ttl: Time | None = None,
        grace: Time | None = None, id_prefix: str | None = None,
    ) -> None:
        expect(isinstance(redis, self._classes[0]), "redis", redis, f"of {self._classes[0]}")
        self._redis, self._prefix, self._fits = redis, id_prefix, ttl is None and grace is None
        self._timeout, self._closed = millis("timeout", timeout, 1) / 1000, False
        self._ttl = millis("ttl", 10 if ttl is None else ttl, 1)
        self._grace = millis("grace", grace if grace is not None else 2 if self._fits else 0, 0)
        self._reset()
        _clients.add(self)

    def _reset(self) -> None:
        """Begin anew: at first, in the child of a fork, or in another event loop. What lives
        belongs to the parent, or to the other loop. A closed client stays closed."""
        for who in getattr(self, "_live", ()):
            who._over, who._leaving, who._kept, who.lost = "lost", True, "", self._event()
            who.lost.set()
            who._stopped = Closed("the process has forked, or the event loop has ended")
        self._lock = threading.RLock()
        # When close stops waiting, and when a failure was logged
        self._hurry, self._noted = -FOREVER if self._closed else FOREVER, -FOREVER
        self._live: set[L] = set()  # until the server keeps nothing of it
        self._contenders: dict[tuple[str, str], L] = {}  # those with an id, by mutex and id
        self._waits: dict[int, L] = {}  # by request
        self._waiter, self._tag = secrets.token_hex(16), secrets.token_hex(8)
        self._numbers = itertools.count(1)  # of ids and requests
        self._running: set[str] = set()  # the loops in the background
        self._slots, self._tasks = self._limit(), set[Any]()
        self._own = connect(self._redis, *self._classes, self._timeout)

    def lock(self, mutex: str, *, wait: Time | None = None, **terms: Unpack[Terms]) -> L:
        """Return a lock for with, or async with. It waits until this process owns the mutex, first
        come, first served.

        wait is how many seconds it waits, counted from acquire or the beginning of with, and then
        at most timeout for a reply; None = for ever, 0 = like try_lock. Then, or when the event
        stop is set, it raises NotAcquired. While the server is away, it asks again. It raises
        InUse if this client uses the id for the mutex already, Closed, or the server's error reply,
        a ResponseError of redis-py. The end of with raises Lost if the mutex was lost, unless the
        body has raised an exception. Nothing interrupts the body when the mutex is lost: see
        Lock.check and Lock.lost. terms are id, ttl, grace and stop, see Terms.
        """
        return self._lock_class(self, mutex, (Unavailable,), wait, **terms)

    def try_lock(self, mutex: str, **terms: Unpack[Terms]) -> L:
        """Return a lock for with, or async with, that does not wait. It raises NotAcquired if
        another contender owns the mutex or is next, and Unavailable if the server does not answer.
        For all else see lock."""
        return self._lock_class(self, mutex, (), **terms)

    # Contenders

    def _join(self, who: L) -> None:
        """Let the tick look after a contender or watch."""
        self._here()
        with self._lock:
            if self._hurry < FOREVER:
                raise Closed("the client is closed")
            self._live.add(who)
        self._start("tick", self._tick)

    def _leave(self, who: L) -> None:
        self._live.discard(who)
        if self._contenders.get((who.mutex, who.id)) is who:
            self._contenders.pop((who.mutex, who.id), None)

    async def _new_id(self) -> str:
        """Return a contender id that people can read: prefix counter:pid@host~random."""
        if self._prefix is None:
            try:
                name = await self._ask("ACL", "WHOAMI")
            except exceptions.NoPermissionError:
                name = self._redis.connection_pool.connection_kwargs.get("username")
            self._prefix = f"{name}:" if name and name != "default" else ""
        return f"{self._prefix}{next(self._numbers)}:{os.getpid()}@{_host}~{self._tag}"

    def _wake_all(self) -> None:
        for who in list(self._live):
            who._wake.set()

    async def _close(self) -> None:
        """End all waits, watches and work, release all locks, set their events lost, and wait for
        all that, at most for timeout. A body of with that still runs has lost its mutex: its end
        raises Closed. Raise Unavailable if a mutex may stay owned until its lease ends."""
        self._closed = True
        await self._hang_up()
        if any(who.token or who._kept for who in list(self._live)):
            raise Unavailable("close took too long: a mutex may stay owned until its lease ends")

    async def _exit(self, failed: object, *_: object) -> None:
        """Close. Raise Unavailable, or log it if the body of with has failed."""
        try:
            await self._close()
        except Unavailable as error:
            if failed is None:
                raise
            log.warning("%s", error)

    async def _hang_up(self) -> None:
        """Make all efforts, works and loops end, and wait for that."""
        with self._lock:
            self._hurry = min(self._hurry, now() + self._timeout)
            for who in list(self._live):
                who._quit(Closed("the client is closed"))
                who.lost.set()
                if self._closed and who.token and not who._works:  # work releases when it returns
                    self._spawn(who._finish())
        while self._live and now() < self._hurry:
            await self._pause(self._event(), 0.02)
        self._hurry = min(self._hurry, now())
        await wait(self._own.connection_pool.disconnect(inuse_connections=False))

    # The loops in the background

    def _start(self, name: str, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a loop, unless it runs."""
        with self._lock:
            if name not in self._running and self._hurry == FOREVER:
                self._spawn(self._keep(name, loop))  # which may fail
                self._running.add(name)

    async def _keep(self, name: str, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        running = self._running
        try:
            while self._live and now() < self._hurry:
                try:
                    return await loop()
                except Exception as error:  # such as no more threads
                    self._note(name, error)
                    pause = REFUSED if isinstance(failure(error), RedisError) else REDIAL
                await self._pause(self._event(), pause)
        finally:
            with self._lock:  # after _start has added it
                running.discard(name)
            if self._live:  # somebody has joined after the last tick
                self._start("tick", self._tick)

    async def _tick(self) -> None:
        """Look at all tenures again and again. It ends when nothing lives."""
        try:
            while self._live and now() < self._hurry:
                # not for long, since it does not count the time of a suspended machine
                await self._pause(self._event(), max(TICK_MIN, self._look() - now()))
        except asyncio.CancelledError:  # the event loop ends, which waits for this
            await self._hang_up()
            raise

    def _look(self) -> float:
        """Decide for all tenures when to renew, and what is lost. Return when to look again."""
        t, wake, due = now(), now() + TICK, list[L]()
        for who in list(self._live):
            if who._stop is not None and who._stop.is_set():
                who._quit(NotAcquired(f"mutex {who.mutex}: stop is set"))
            if who.token and not who._over:
                if t >= who._until:
                    who._end("lost")
                elif t >= who._due:  # again if there is no reply until then
                    who._due = t + min(self._timeout, (who._until - t) / 3)
                    due.append(who)
                if t - who._began > LISTEN_AFTER:
                    who._channel = f"simba:{{{who.mutex}}}"
                    self._start("notices", self._hear)
                wake = min(wake, who._due, who._until)
        if due:
            self._spawn(self._renew(due))
        return wake

    async def _renew(self, tenures: list[L]) -> None:
        """Send a GUARD for each tenure, and handle the replies."""
        sent, pipeline = now(), self._own.pipeline(transaction=False)
        for who in tenures:
            pipeline.execute_command(*who._command("GUARD", "TOKEN", who.token))
        try:
            replies = await self._send(lambda: pipeline.execute(raise_on_error=False))
        except (SimbaError, RedisError) as error:
            replies = [error] * len(tenures)
        for who, raw in zip(tenures, replies, strict=True):
            if isinstance(raw, Exception):
                self._note(who.mutex, raw)
                who._due = now() + min(PAUSE_MAX, (who._until - now()) / 8)
            elif (reply := record(raw))["status"] == "lost":
                who._end("lost", owner_in(reply))
            else:
                who._renewed(sent, reply["transition"])

    async def _collect(self) -> None:
        """Collect the outcomes of all waits on one connection, until there are no more waits."""
        connection, ms = self._own.connection_pool.make_connection(), 0
        try:
            while True:
                async with self._within(self._timeout):
                    await wait(connection.connect())  # once; only this asks Sentinel for the leader
                    await wait(connection.send_command("SIMBA.NEXT", self._waiter, ms))
                    outcomes = await wait(connection.read_response())
                for values in map(record, outcomes):
                    self._deliver(values)
                if not ms:
                    self._wake_all()  # now they can wait by this connection
                elif not self._waits:
                    return
                ms = round(min(NEXT_WAIT, self._timeout / 2) * 1000)
        finally:
            self._waiter = secrets.token_hex(16)
            await wait(connection.disconnect())  # the server hands on what was not received
            self._wake_all()

    def _deliver(self, values: dict[str, Any]) -> None:
        """Pass an outcome to its contender. Release a grant whose contender is gone."""
        name = values["mutex"], values.get("owner")
        if who := self._waits.pop(values["request"], None):
            who._outcome = failure(ResponseError(values["error"])) if "error" in values else values
            who._wake.set()
        elif values.get("status") == "acquired" and name not in self._contenders:
            who = self._lock_class(self, values["mutex"], id=values["owner"])
            who.token, who._over = values["token"], "released"
            self._live.add(who)
            self._spawn(who._insist())

    async def _hear(self) -> None:
        """Listen to notices, which make a contender renew, or a watch read, at once."""
        pubsub, have = self._own.pubsub(), set[str]()
        try:
            while (want := {who._channel for who in list(self._live)} - {""}) and not self._closed:
                async with self._within(self._timeout):
                    if new := want - have:
                        await wait(pubsub.subscribe(*new))
                    if old := have - want:
                        await wait(pubsub.unsubscribe(*old))
                    have = want
                    message = await wait(pubsub.get_message(timeout=LISTEN_EVERY))
                for who in list(self._live):
                    if message and who._channel == message["channel"]:
                        who._due = now()
                        who._wake.set()
        finally:
            await wait(getattr(pubsub, "aclose", pubsub.close)())

    # Lead, every and watch

    async def _lead(self, mutex: str, f: Work[L], **terms: Unpack[Terms]) -> Any:
        """Call f(lock) whenever this process is the leader, until f returns Final(value): then
        return value.

        f should return soon after the event lock.lost is set, which means that the mutex is lost,
        or that stop is set or the client is closed. When f returns, or raises an Exception, which
        is logged, the mutex is released, and lead contends again. Every other exception ends lead.
        lead returns None after stop is set, and raises Closed. It raises a refusal of the server
        only before the first tenure, and else logs it and tries again.

        With threads, f runs in the thread of the caller. In asyncio, f is a coroutine function that
        runs in a task of its own, which is cancelled when lost is set, or when lead is cancelled;
        lead waits until it has ended.
        """
        return await self._reign(mutex, f, terms, 0.0)

    async def _every(self, mutex: str, period: Time, f: Work[L], **terms: Unpack[Terms]) -> Any:
        """Call f(lock) once a period in one of many processes. The process that runs it holds the
        mutex from run to run. A new leader calls f at once, and counts the period from the
        beginning of its tenure. Of missed start times, f makes up for the last one only. For all
        else see lead.
        """
        return await self._reign(mutex, f, terms, millis("period", period, 1, FOREVER) / 1000)

    async def _reign(self, mutex: str, f: Any, terms: Terms, period: float) -> Any:
        expect(callable(f), "f", f, "callable")
        pause, who = 0.0, self._lock_class(self, mutex, **terms)
        with suppress(NotAcquired):
            while True:
                who._works = True
                await self._guard(who._enter(pause), who)
                try:
                    result = await self._follow(who, f, period)
                finally:
                    await who._finish()
                if isinstance(result, Final):
                    return result.value
                if who._stopped:
                    raise who._stopped
                quick = now() - who._began < QUICK
                pause = max(PAUSE, min(2 * pause, self._ttl / 1000)) if quick else 0.0
                who = self._lock_class(self, mutex, (Exception,), **terms)
        return None

    async def _follow(self, who: L, f: Any, period: float) -> Any:
        """Call f, once a period counted from the beginning of the tenure, until the tenure ends."""
        due, result = who._began, None
        while who.check() and not who._stopped and not isinstance(result, Final):
            if now() < due:
                await self._pause(who.lost, min(60.0, due - now()))  # a suspension does not count
                continue
            try:
                result = await self._call(who, f)
            except Exception:
                log.exception("the work failed: %s contender=%s", who.mutex, who.id)
            if not period:
                break
            due += period * max(1, (now() - due) // period)  # only the last missed start time
        # A cancellation of lead counts, whatever f returns.
        return None if isinstance(who._stopped, asyncio.CancelledError) else result

    async def _watch(self, mutex: str, *, stop: Any = None) -> AsyncGenerator[State, None]:
        """Yield the present state of a mutex, and then each change in order, until the event stop
        is set. While the server does not answer, watch asks again. It raises Closed, and the
        server's error replies."""
        who, seen = self._lock_class(self, mutex, stop=stop), None
        who._channel, newest = f"simba-events:{{{mutex}}}", -1  # the largest token so far
        try:
            self._join(who)
            while True:
                self._start("notices", self._hear)
                try:  # read the changes, so that no lost notice can hide one
                    before = await self._history(mutex) if newest < 0 else []
                    owner, events = await self._owner(mutex), await self._history(mutex)
                except Unavailable as error:
                    self._note(mutex, error)
                else:
                    states = list[State]()
                    if newest < 0:
                        seen, states = owner, [State(owner)]
                        newest = max([owner.token if owner else 0] + [e["token"] for e in before])
                    for event in events:
                        token, begins = event["token"], event["event"] == "acquired"
                        if token > newest if begins else seen is not None and token == seen.token:
                            seen = Owner(event["owner"], token) if begins else None
                            states.append(State(seen, event["event"], event["reason"]))
                        newest = max(newest, token)
                    if not states and owner != seen:  # the history was too short, or is off
                        seen, states = owner, [State(owner)]
                    for state in states:
                        yield state
                await who._rest(PAUSE_MAX)
        except NotAcquired:
            return
        finally:
            self._leave(who)

    # Ask

    async def _owner(self, mutex: str) -> Owner | None:
        """Return the owner of a mutex; None = it is free."""
        raw = await self._ask("SIMBA.OWNER", mutex)
        return None if raw is None else owner_in(record(raw))

    async def _history(self, mutex: str) -> list[dict[str, Any]]:
        return [record(raw) for raw in await self._ask("SIMBA.HISTORY", mutex, "COUNT", 100)]

    async def _check(self, mutex: str, token: int) -> bool:
        """Ask the server whether the tenure with this fencing token still lasts. A resource that
        can store a number needs no check: it keeps the largest token, and refuses smaller ones."""
        return token > 0 and await self._ask("SIMBA.CHECK", mutex, token) == 1

    async def _ask(self, *command: Any, again: bool = False) -> Any:
        """Send one command and return its reply. In asyncio the caller waits until then."""
        async with self._slots:  # renewals do not wait here
            return await self._send(lambda: self._own.execute_command(*command), again)

    async def _send(self, request: Callable[[], Any], again: bool = False) -> Any:
        """Do one request. Without a reply, no idle connection is trusted. again means that the
        request is sent once more if its connection breaks, and that it may have done its work
        before: then the reply is never 0."""
        self._here()
        if now() > self._hurry:
            raise Closed("the client is closed")
        try:
            async with self._within(min(self._timeout, self._hurry - now())):
                return await wait(request())
        except Exception as error:
            if (problem := failure(error)) is error:
                raise
            await wait(self._own.connection_pool.disconnect(inuse_connections=False))
            if again and isinstance(error, exceptions.ConnectionError):
                return await self._send(request) or 1
            raise problem from error

    def _note(self, what: str, error: Exception) -> None:
        """Log a failure after which the client tries again, but not each one."""
        if now() - self._noted > NOTE_EVERY:
            self._noted = now()
            known = isinstance(failure(error), SimbaError | RedisError)
            log.warning("%s: %s; trying again", what, error, exc_info=not known)

    # Input and output

    def _here(self) -> None:
        """In asyncio: raise if the event loop is another one, or begin anew if it has ended."""

    async def _guard(self, effort: Coroutine[Any, Any, None], who: L) -> None:
        """Await the effort of who. In asyncio: a cancellation does not cut it off, but ends it."""
        await effort

    async def _pause(self, event: Any, seconds: float) -> None:
        """Wait for an event, at most for that time."""

    def _spawn(self, work: Coroutine[Any, Any, None]) -> Any:
        """Run work in the background: a thread or a task."""

    async def _call(self, who: L, f: Any) -> Any:
        """Call the work of lead or every."""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: list(map(BaseClient._reset, _clients)))
