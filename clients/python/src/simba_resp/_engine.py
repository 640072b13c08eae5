"""What a client does, without its input and output.

An Engine asks for mutexes, renews leases, collects the outcomes of waits, and listens to notices.
Its coroutines send and wait only by a Wire and by the abstract methods at the end of the class. The
asyncio client awaits there. The sync client blocks there, so that its coroutines never suspend.

    _round ── queued ──► _collect: SIMBA.NEXT returns the outcomes of all waits
       │
       ▼
    Tenure ── _tick decides when to renew, and what is lost ──► _renew: SIMBA.GUARD
       │                                  ▲
       ▼                               _hear: a notice means SIMBA.GUARD now
    release

lock protects the sets and dicts of the engine. Nothing sends, waits or logs while it holds the lock.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import secrets
import threading
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic

from redis.exceptions import RedisError, ResponseError

from ._tenure import FOREVER, E, Tenure, millis, new_id
from ._wire import Command, Wire, failure, now, owner_in, record, text
from .errors import Closed, InUse, Lost, NotAcquired, NotAnswered, Owner, Stopped, Unavailable

log = logging.getLogger("simba_resp")
Time = float | timedelta | None
_engines: weakref.WeakSet[Engine[Any]] = weakref.WeakSet()  # of this process

# Seconds
PAUSE, PAUSE_MAX = 0.1, 2.0  # between two requests of an effort; the pause doubles
NEXT_WAIT, NEXT_TIMEOUT = 2.0, 3.0  # of SIMBA.NEXT; without a reply its connection is broken
NEXT_REFUSED = 60.0  # how long waiters poll after the server has refused SIMBA.NEXT
WAIT_MAX = 60.0  # after that a contender asks whether it still waits
IDLE = 30.0  # how long the connection for outcomes is kept without waits
LISTEN_AFTER = 0.8  # shorter tenures are not worth a subscription
LISTEN_EVERY = 0.25  # how often new subscriptions are sent
REDIAL = 1.0  # the pause before a new connection for notices
TICK_MIN, TICK = 0.002, 0.2  # between two looks at all leases
STOP_EVERY = 0.1  # how often a wait looks at the event stop
QUICK = 1.0  # lead pauses after a shorter tenure
NOTE_EVERY = 10.0  # how often failures are logged
IDLE_MAX = 16  # how many connections are kept that nobody uses


@dataclass(frozen=True)
class Final:
    """The result with which the work of lead or every ends lead or every, which returns value."""

    value: Any = None


@dataclass(frozen=True)
class State:
    """What watch has seen of a mutex: its present state, or one change."""

    owner: Owner | None  #: the owner after the change; None = the mutex is free
    event: str = ""  #: acquired, released, expired or broken; "" = the present state
    reason: str = ""  #: why; often ""


class Engine(Generic[E]):
    event: type[E]

    def __init__(self, redis: Any, timeout: float, ttl: Time, grace: Time, id_prefix: str | None):
        self.redis, self.prefix, self.fits = redis, id_prefix, ttl is None and grace is None
        self.timeout = millis("timeout", timeout, 1) / 1000
        self.ttl = millis("ttl", 10 if ttl is None else ttl, 1)
        self.grace = millis("grace", grace if grace is not None else 2 if self.fits else 0, 0)
        self.epoch = 0
        self.reset()
        _engines.add(self)

    def reset(self) -> None:
        """Begin anew: at first, in the child of a fork, or in another event loop."""
        self.epoch += 1
        self.lock = threading.RLock()
        self.closed, self.noted = False, -FOREVER
        self.hurry = FOREVER  # when releases that have no reply end
        # From before the first request until the server has confirmed that it keeps nothing
        self.contenders: dict[tuple[str, str], Tenure[E]] = {}
        self.waits: dict[int, Tenure[E]] = {}  # by request
        self.waiter, self.requests = secrets.token_hex(16), itertools.count(1)
        self.used, self.refused = 0.0, -FOREVER  # the connection for outcomes
        self.watchers: set[Tenure[E]] = set()
        self.running: set[str] = set()  # the loops in the background
        self.tick_now: E = self.event()
        self.idle: list[Wire] = []

    def abandon(self) -> None:
        """Forget the tenures and connections of the process before a fork, or of another loop."""
        for who in self.contenders.values():
            who._over, who._leaving, who.lost = "lost", True, self.event()
            who.lost.set()
        self.reset()

    # Acquire

    async def enter(self, who: Tenure[E]) -> None:
        """Make the contender the owner."""
        if who._epoch:
            raise RuntimeError("this lock was used before: a lock serves once, and is not reentrant")
        self.alive()
        who._windows()
        who._epoch, pause = self.epoch, PAUSE
        try:
            while True:
                try:
                    pause = await self._round(who, pause)
                    if who.token:
                        return
                except (Unavailable, InUse, RedisError) as error:
                    if self._shorten(who, error):
                        continue
                    if who._once or not (isinstance(error, Unavailable) or who._again):
                        raise
                    who._failure = error
                    self.note(who.mutex, error)
                await self.rest(who, pause * random.uniform(0.5, 1.5))
                pause = min(2 * pause, PAUSE_MAX)
        except BaseException:
            if who._keeps and who._epoch == self.epoch:
                who._leaving = True
                await self._insist_later(who)
            else:
                self._leave(who)
            raise

    async def _round(self, who: Tenure[E], pause: float) -> float:
        """Send an ACQUIRE, and wait for its outcome. Return the pause until the next one."""
        limit = who._deadline - now()
        if self.prefix is None:
            self.prefix = await self._id_prefix(limit)
        who.id = who.id or new_id(self.prefix)
        # The server would treat two contenders with the same id as one.
        if (other := self.contenders.setdefault((who.mutex, who.id), who)) is not who:
            if who._once or not other._leaving:
                raise InUse(f"{who.id!r} contends for {who.mutex} already")
            return pause
        how: Command = ("NOQUEUE",)
        if not who._once:
            with self.lock:  # so that the end of the connection ends this wait
                self.waits.pop(who._request, None)
                who._request, who._via, who._outcome = next(self.requests), self.waiter, None
                self.waits[who._request] = who
            how = ("WAIT", 0, "VIA", who._via, "REQUEST", who._request)
        kept, who._keeps, who._waits, sent = who._keeps, True, False, now()
        try:
            reply = record(await self.ask(*who._ask("ACQUIRE", *how), limit=limit))
        except RedisError as error:  # a store that is misconfigured may have done a part
            who._keeps = kept or "misconfigured: " in str(error)
            raise
        who._keeps, who._failure, who._owner = reply["status"] != "busy", None, owner_in(reply)
        if who._once and reply["status"] == "busy":
            raise self._not_acquired(who)
        if reply["status"] == "queued" and not reply.get("request"):  # it polls
            if now() - self.refused > NEXT_REFUSED:
                self.start("next", self._collect)
            return pause
        if reply["status"] == "queued":
            who._waits, end, pause = True, now() + WAIT_MAX, PAUSE
            while who._outcome is None and now() < end:
                await self.rest(who, end - now())
            if isinstance(who._outcome, Exception):
                raise who._outcome
            reply = who._outcome or reply
            if reply["status"] == "acquired" and now() - sent > sum(who._windows()) / 3000:
                sent = now()
                reply = record(await self.ask(*who._ask("GUARD", "TOKEN", reply["token"])))
        if reply["status"] in ("acquired", "renewed"):
            self._own(who, reply, sent)
        return pause

    def _own(self, who: Tenure[E], reply: dict[str, Any], sent: float) -> None:
        """Begin the tenure that a reply has granted."""
        who._renewed(sent, reply["transition"])
        if not who.held():
            raise Unavailable("server unavailable: the reply took longer than the lease")
        with self.lock:  # so that close finds the tenure
            self.alive(who)
            self.waits.pop(who._request, None)
            who._began, who.token = now(), reply["token"]
        self.start("tick", self._tick)
        if who._due < now() + TICK:
            self.tick_now.set()

    async def _id_prefix(self, limit: float) -> str:
        try:
            name = text(await self.ask("ACL", "WHOAMI", limit=limit))
        except ResponseError:  # the user may not ask
            name = self.redis.connection_pool.connection_kwargs.get("username")
        return f"{name}:" if name and name != "default" else ""

    def _shorten(self, who: Tenure[E], error: Exception) -> bool:
        """Shorten the default windows to the longest lease of the server. Return False if that is not
        the error, or the windows are the caller's."""
        code, _, rest = str(error).partition(" ")
        longest = int(rest.split()[0]) if code == "TOOLONG" else 0
        if longest < 2 or not self.fits or who._windows() != (self.ttl, self.grace):
            return False
        if longest < self.ttl + self.grace:  # or another contender has shortened them already
            log.warning("the server refuses the default lease: %s", error)
            self.ttl, self.grace = longest * 5 // 6, longest - longest * 5 // 6
        return True

    def alive(self, who: Tenure[E] | None = None) -> None:
        """Raise if the client, or the effort, is over."""
        if self.closed or who is not None and who._epoch not in (0, self.epoch):
            raise Closed("the client is closed" if self.closed else "the process has forked")
        if who is not None and (who._quit or who._stop is not None and who._stop.is_set()):
            raise Stopped(f"mutex {who.mutex} not acquired: stopped")

    async def rest(self, who: Tenure[E], seconds: float) -> None:
        """Wait until who is woken, at most for that time. Raise if the effort is over."""
        end = now() + seconds
        while True:
            self.alive(who)
            if now() >= who._deadline:
                raise self._not_acquired(who)
            if now() >= end or who._wake.is_set():
                who._wake.clear()
                return
            left = min(end, who._deadline) - now()
            await self.pause(who._wake, left if who._stop is None else min(left, STOP_EVERY))

    def _not_acquired(self, who: Tenure[E]) -> NotAcquired:
        why = who._failure or (f"owned by {who._owner.id}" if who._owner else "another is next")
        error = (NotAnswered if who._failure else NotAcquired)(f"mutex {who.mutex}: {why}")
        error.owner = who._owner
        return error

    # Release

    async def release(self, who: Tenure[E]) -> None:
        """End a tenure. Raise Lost if it was lost, and Unavailable if there is no reply: then the
        release goes on in the background."""
        if not who.token:
            who.check()
        with self.lock:
            first, who._leaving = not who._leaving, True
        self._end(who, "released" if who.held() else "lost")
        if first and who._over == "lost":
            await self._insist_later(who)
        elif first:
            try:
                if await self.ask("SIMBA.RELEASE", who.mutex, who.id, "TOKEN", who.token) == 0:
                    who._over = "lost"
            except (Unavailable, RedisError):
                await self._insist_later(who)
                raise
            self._leave(who)
        if who._over == "lost":
            who.check()

    async def finish(self, who: Tenure[E], failed: bool = True) -> None:
        """Release after work. Raise Lost unless the work has failed."""
        try:
            await self.release(who)
        except Lost:
            if not failed:
                raise
        except (Unavailable, RedisError) as error:
            log.warning("free when the lease ends: %s contender=%s: %s", who.mutex, who.id, error)

    async def _insist_later(self, who: Tenure[E]) -> None:
        """Release in the background. But wait for it while the client closes, or its loop ends."""
        if self.closed:
            await self._insist(who)
        else:
            self.spawn(self._insist(who))

    async def _insist(self, who: Tenure[E]) -> None:
        """Repeat a release until the server replies, or the lease is over."""
        end, pause = now() + sum(who._windows()) / 1000, PAUSE
        while True:
            try:
                await self._free(who)
                break
            except Unavailable:
                if now() > min(end, self.hurry):
                    break
                await self.pause(self.event(), min(pause, self.hurry - now()))
                pause = min(2 * pause, 1.0)
            except RedisError as error:
                self.note(who.mutex, error)
                break
        self._leave(who)

    async def _free(self, who: Tenure[E]) -> None:
        """Release a tenure, or what the server may keep for an effort. Others may use the caller's id
        later, so a late RELEASE of such an effort names its request or tenure."""
        token = who.token
        if not token and who._terms.get("id"):
            if who._waits and who._via == self.waiter:
                named = "VIA", who._via, "REQUEST", who._request
                await self.ask("SIMBA.RELEASE", who.mutex, who.id, *named)
                if who._via == self.waiter:
                    return
            owner = await self._owner(who.mutex)
            if owner is None or owner.id != who.id:
                return
            token = owner.token
        await self.ask("SIMBA.RELEASE", who.mutex, who.id, *(("TOKEN", token) if token else ()))

    def _leave(self, who: Tenure[E]) -> None:
        with self.lock:
            self.waits.pop(who._request, None)
            if self.contenders.get((who.mutex, who.id)) is who:
                del self.contenders[who.mutex, who.id]

    async def close(self) -> None:
        """End all efforts and work, release all locks, and wait for that, at most for timeout. Work
        of lead and every releases its mutex when it returns."""
        self.hang_up()
        for who in self._tenures():
            if who._works:
                self._end(who, "released")
            else:
                self.spawn(self.finish(who))
        while self.contenders and now() < self.hurry:
            await self.pause(self.event(), 0.02)
        await self._drop_idle()

    def hang_up(self) -> None:
        """Make all efforts and loops end."""
        with self.lock:
            self.closed, self.hurry = True, min(self.hurry, now() + self.timeout)
        self._wake_all()

    def _wake_all(self) -> None:
        for who in list(self.contenders.values()):
            who._wake.set()
        self.tick_now.set()

    # The loops in the background

    def start(self, name: str, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a loop, unless it runs."""
        with self.lock:
            starts = name not in self.running and not self.closed
            self.running.add(name)
        if starts:
            self.spawn(self._keep(name, loop), keep=False)

    async def _keep(self, name: str, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a loop again after an error while it is needed."""
        while True:
            try:
                await loop()
            except (Unavailable, RedisError, OSError, asyncio.TimeoutError) as error:
                self.note(name, error)
                await self.pause(self.event(), REDIAL if name == "notices" else 0)
            with self.lock:
                if self.closed or name == "next" or not self._needed(name):
                    self.running.discard(name)
                    return

    def _needed(self, name: str) -> bool:
        return bool(self._tenures() if name == "tick" else self.watchers or self._tenures(LISTEN_AFTER))

    def _tenures(self, age: float = 0) -> list[Tenure[E]]:
        old = [who for who in list(self.contenders.values()) if who.token and not who._over]
        return [who for who in old if now() - who._began >= age]

    async def _tick(self) -> None:
        """Decide for all tenures when to renew, and what is lost. It ends when there are none."""
        while self._tenures():
            self.tick_now.clear()
            t, wake, due = now(), now() + TICK, []
            for who in self._tenures():
                left = who._left()
                if left <= 0:
                    self._end(who, "lost")
                    continue
                if who._works and who._stop is not None and who._stop.is_set():
                    who.lost.set()
                if t >= who._due:  # again if there is no reply until then
                    who._due = t + max(TICK_MIN, min(self.timeout, left / 3))
                    due.append(who)
                wake = min(wake, who._due, who._until)
            if due:
                self.spawn(self._renew(due, min(who._due for who in due) - t), keep=False)
            if self._needed("notices"):
                self.start("notices", self._hear)
            # The waits are short, since they do not count the time of a suspended machine.
            await self.pause(self.tick_now, max(TICK_MIN, wake - now()))

    def _end(self, who: Tenure[E], why: str, owner: Owner | None = None) -> None:
        with self.lock:
            first, who._over = not who._over, who._over or why
        if first and (why == "lost" or who._works):
            who.lost.set()
        if first and why == "lost":
            log.warning("mutex lost: %s contender=%s owner=%s", who.mutex, who.id, owner)

    async def _renew(self, tenures: list[Tenure[E]], timeout: float) -> None:
        """Send a GUARD for each tenure, and handle the replies."""
        sent, commands = now(), [who._ask("GUARD", "TOKEN", who.token) for who in tenures]
        try:
            replies = await self.exchange(commands, timeout)
        except (Unavailable, RedisError) as error:
            replies = [error] * len(tenures)
        for who, raw in zip(tenures, replies, strict=True):
            if isinstance(raw, Exception):
                self.note(who.mutex, raw)
                if sent >= who._sent:
                    who._due = now() + max(TICK_MIN, min(PAUSE_MAX, who._left() / 8))
            elif (reply := record(raw))["status"] == "lost":
                self._end(who, "lost", owner_in(reply))
            elif sent >= who._sent:
                who._renewed(sent, reply["transition"])
        self.tick_now.set()

    async def _collect(self) -> None:
        """Collect the outcomes of all waits on one connection, until it ends."""
        wire, ms = Wire(self.redis, NEXT_TIMEOUT), 0
        try:
            self.used = now()
            while self.waits if self.closed else self.waits or now() - self.used < IDLE:
                [outcomes] = await wire.ask([("SIMBA.NEXT", self.waiter, ms)], NEXT_TIMEOUT)
                if isinstance(outcomes, Exception):
                    raise outcomes
                if not ms:
                    ms = round(NEXT_WAIT * 1000)
                    self._wake_all()
                for values in map(record, outcomes):
                    self._deliver(values)
        except RedisError:
            self.refused = now()
            raise
        finally:
            with self.lock:
                self.waiter, broken, self.waits = secrets.token_hex(16), self.waits, {}
            await wire.close()  # the server hands on what this connection did not receive
            for who in broken.values():
                who._outcome = Unavailable("server unavailable: the connection for outcomes has ended")
                who._wake.set()

    def _deliver(self, values: dict[str, Any]) -> None:
        """Pass an outcome to its contender. Give a grant back that nobody waits for."""
        who, self.used = self.waits.pop(values["request"], None), now()
        if who is not None and not who._leaving:
            who._outcome = failure(ResponseError(values["error"])) if "error" in values else values
            who._wake.set()
        elif values.get("status") == "acquired":
            who = self.contenders.get((values["mutex"], values["owner"]))
            # One that still asks learns of the tenure by its next request.
            if who is None or who._leaving or who.token not in (0, values["token"]):
                who = Tenure(self, values["mutex"], {"id": values["owner"]})
                who.token = values["token"]
                self.spawn(self._insist(who))

    async def _hear(self) -> None:
        """Listen to the notices of old tenures and of watched mutexes. A notice makes them ask now."""
        wire, have = Wire(self.redis, self.timeout, protocol=2), set[str]()
        try:
            while not self.closed and self._needed("notices"):
                listeners = [(f"simba:{{{who.mutex}}}", who) for who in self._tenures(LISTEN_AFTER)]
                listeners += [(f"simba-events:{{{who.mutex}}}", who) for who in list(self.watchers)]
                want = {channel for channel, _ in listeners}
                async with wire.within(self.timeout):
                    for verb, names in ("SUBSCRIBE", want - have), ("UNSUBSCRIBE", have - want):
                        await wire.send([(verb, name) for name in names])
                have = want
                try:
                    async with wire.within(LISTEN_EVERY):
                        reply = await wire.read(LISTEN_EVERY)
                except (TimeoutError, asyncio.TimeoutError):
                    continue
                if isinstance(reply, list) and reply[0] == "message":
                    for who in [who for channel, who in listeners if channel == reply[1]]:
                        who._noticed = who._due = now()
                        (self.tick_now if who.token else who._wake).set()
        finally:
            await wire.close()

    # Lead, every and watch

    async def lead(self, who: Tenure[E], f: Any, period: float = 0) -> Any:
        """Call f for each tenure, or every period of it, until it returns Final. Return the value;
        None = stopped."""
        pause, epoch = 0.0, self.epoch
        try:
            while True:
                who._works = True
                await self.guard(who, self.enter(who))
                try:
                    result = await (self._follow(who, f, period) if period else self._run(who, f))
                finally:
                    await self.guard(who, self.finish(who))
                if isinstance(result, Final):
                    return result.value
                quick = now() - who._began < QUICK
                pause = max(PAUSE, min(2 * pause, self.ttl / 1000)) if quick else 0.0
                who = Tenure(self, who.mutex, who._terms, who._stop)
                who._again = True
                await self.rest(who, pause)
                if self.epoch != epoch:
                    raise Closed("the process has forked")
        except Stopped:
            return None

    async def _follow(self, who: Tenure[E], f: Any, period: float) -> Any:
        """Call f once a period, counted from the begin of the tenure, until the tenure ends."""
        due, result = now(), None
        while not isinstance(result, Final):
            while now() < due and not who.lost.is_set():
                await self.pause(who.lost, min(60.0, due - now()))  # a suspension does not count
            if who.lost.is_set() or not who.held():
                return None
            result = await self._run(who, f)
            due += period * max(1, (now() - due) // period)  # only the last missed start time
        return result

    async def _run(self, who: Tenure[E], f: Any) -> Any:
        """Call f one time, and log its exception."""
        try:
            return await self.call(who, f)
        except Exception as error:
            if who.held() or not isinstance(error, Lost):
                log.exception("the work failed: %s contender=%s", who.mutex, who.id)

    async def changes(self, who: Tenure[E]) -> list[State]:
        """Wait for the next changes of a mutex. A notice only wakes who, so none can be lost."""
        while True:
            self.alive(who)
            try:
                raw = await self.ask("SIMBA.HISTORY", who.mutex, "COUNT", 100)
                states = self._changes(who, [record(one) for one in raw], await self._owner(who.mutex))
                with self.lock:
                    self.watchers.add(who)
                self.start("notices", self._hear)
                if states:
                    return states
            except Unavailable as error:
                self.note(who.mutex, error)
            await self.rest(who, PAUSE_MAX)

    def _changes(self, who: Tenure[E], events: list[dict[str, Any]], owner: Owner | None) -> list[State]:
        """Return what the history has after the tokens seen, and the owner if that is newer."""
        states, first = [], who._newest < 0
        for event in events:
            token, begins = event["token"], event["event"] == "acquired"
            ends = not begins and who._owner is not None and token == who._owner.token
            if not first and (ends or begins and token > who._newest):
                who._owner = Owner(event["owner"], token) if begins else None
                states.append(State(who._owner, event["event"], event["reason"]))
            who._newest = max(who._newest, token)
        who._newest = max(who._newest, owner.token if owner else 0)
        if first or owner != who._owner:
            who._owner = owner
            states.append(State(owner))
        return states

    # Ask

    async def owner(self, mutex: str) -> Owner | None:
        self.alive()
        return await self._owner(mutex)

    async def _owner(self, mutex: str) -> Owner | None:
        raw = await self.ask("SIMBA.OWNER", mutex)
        return None if raw is None else owner_in(record(raw))

    async def check(self, mutex: str, token: int) -> bool:
        self.alive()
        return token > 0 and await self.ask("SIMBA.CHECK", mutex, token) == 1

    async def ask(self, *command: Any, limit: float = FOREVER) -> Any:
        """Send one command, once, and return its reply. limit is how long the caller waits for it,
        if that is less than timeout."""
        [reply] = await self.exchange([command], limit)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def exchange(self, commands: list[Command], limit: float) -> list[Any]:
        """Send commands on a connection that nobody uses. Without a reply, no idle connection is
        trusted."""
        timeout = max(0.001, min(self.timeout, limit))
        while True:
            with self.lock:
                wire = self.idle.pop() if self.idle else Wire(self.redis, timeout)
            if not await wire.stale():
                break
        try:
            replies = await wire.ask(commands, timeout)
        except Unavailable:
            await self._drop_idle()
            raise
        if wire.timeout < self.timeout or len(self.idle) >= IDLE_MAX or self.closed:
            await wire.close()
        else:
            self.idle.append(wire)
        return replies

    async def _drop_idle(self) -> None:
        dead, self.idle = self.idle, []
        for wire in dead:
            await wire.close()

    def note(self, what: str, error: Exception) -> None:
        """Log a failure after which the client tries again, but not each one."""
        if now() - self.noted > NOTE_EVERY:
            self.noted = now()
            log.warning("%s: %s; trying again", what, error)

    # Input and output

    async def pause(self, event: E, seconds: float) -> None:
        """Wait for an event, at most for that time."""
        raise NotImplementedError

    def spawn(self, work: Coroutine[Any, Any, None], keep: bool = True) -> Any:
        """Run work in the background: a thread or a task. keep means that the end of the event loop
        does not cancel it."""
        raise NotImplementedError

    async def guard(self, who: Tenure[E], work: Coroutine[Any, Any, None]) -> None:
        """Run a request of who that no cancellation may cut off."""
        await work

    async def call(self, who: Tenure[E], f: Any) -> Any:
        """Call the work of lead or every."""
        raise NotImplementedError


def _after_fork() -> None:
    for engine in list(_engines):
        engine.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
