"""What a client does, without its input and output.

An Engine asks for mutexes, renews leases, collects the outcomes of waits, and listens to notices.
Its coroutines send and wait only by the abstract methods at the end of the class. The asyncio client
awaits there. The sync client blocks there, so that its coroutines never suspend.

    _acquire ── busy ──► _collect: SIMBA.NEXT returns the outcomes of all waits
       │
       ▼
    Tenure ── _tend decides when to renew, and what is lost ──► _renew: SIMBA.GUARD
       │
       ▼
    release

lock protects the sets and dicts of the engine. Nothing sends, waits or logs while it holds the lock.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import secrets
import threading
import weakref
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic

from redis.exceptions import RedisError, ResponseError

from . import _wire
from ._history import History, State
from ._tenure import FOREVER, PAUSE, E, Tenure, millis, new_id, now
from ._wire import Command, Commands
from .errors import Closed, InUse, Lost, NotAcquired, NotAnswered, Owner, Stopped, Unavailable

log = logging.getLogger("simba_resp")
Time = float | timedelta | None
_engines: weakref.WeakSet[Engine[Any]] = weakref.WeakSet()  # of this process

# Seconds
PAUSE_MAX = 2.0  # PAUSE doubles up to this
NEXT_WAIT, NEXT_TIMEOUT = 2.0, 3.0  # of SIMBA.NEXT; without a reply its connection is broken
NEXT_REFUSED = 60.0  # how long waiters poll after the server has refused SIMBA.NEXT
IDLE = 30.0  # how long a connection is kept that nobody uses
POLL_MAX = 1.0  # the longest pause of a waiter that gets neither outcomes nor notices
LISTEN_AFTER = 0.8  # shorter tenures are not worth a subscription
LISTEN_EVERY = 0.25  # how often new subscriptions are sent
PING_EVERY = 3.0
TEND_MIN, TEND_MAX = 0.002, 0.25  # between two looks at all leases
STOP_EVERY = 0.1  # how often a wait looks at the event stop
QUICK = 1.0  # lead pauses after a shorter tenure
WATCH_EVERY = 15.0


@dataclass(frozen=True)
class Final:
    """The result with which the work of lead or every ends lead or every, which returns value."""

    value: Any = None


class Broken(Exception):
    """The outcome of a wait whose connection has ended."""


class Engine(Generic[E]):
    event: type[E]

    def __init__(self, redis: Any, timeout: float, ttl: Time, grace: Time, id_prefix: str | None):
        self.redis, self.prefix, self.fits = redis, id_prefix, ttl is None and grace is None
        self.timeout = millis("timeout", timeout, 1) / 1000
        self.ttl = millis("ttl", 10 if ttl is None else ttl, 1)
        self.grace = millis("grace", grace if grace is not None else 2 if self.fits else 0, 0)
        self.longest = self.epoch = 0  # longest is the longest lease of the server; 0 = not known
        self.reset()
        _engines.add(self)

    def reset(self) -> None:
        """Begin anew: at first, in the child of a fork, or in another event loop."""
        self.epoch += 1
        self.lock = threading.RLock()
        self.closed = self.away = False  # away = the server does not answer, which is logged
        self.hurry = FOREVER  # when releases that have no reply end
        # From before the first request until the server has confirmed that it keeps nothing
        self.contenders: dict[tuple[str, str], Tenure[E]] = {}
        self.tenures: set[Tenure[E]] = set()  # those that last
        self.tending, self.tend_at = False, 0.0  # when _tend will wake
        self.left, self.tend_now = self.event(), self.event()
        self.waits: dict[int, Tenure[E]] = {}  # by request
        self.waiter, self.requests = "", itertools.count(1)  # "" = no connection for outcomes
        self.collecting, self.used, self.next_refused = False, 0.0, -FOREVER
        self.listeners: dict[str, set[Tenure[E]]] = {}  # by channel
        self.listening = self.denied = False  # denied = the server refuses SUBSCRIBE

    def abandon(self) -> None:
        """Forget the tenures and connections of the process before a fork, or of another loop."""
        for who in self.tenures:
            who._over, who._leaving, who.lost = "lost", True, self.event()
            who.lost.set()
        self.reset()

    # Acquire

    async def enter(self, who: Tenure[E]) -> None:
        """Make the contender the owner."""
        if who._epoch:
            raise RuntimeError("this lock was used before: a lock serves once, and is not reentrant")
        ttl, grace = who._terms.get("ttl"), who._terms.get("grace")
        who._ttl = self.ttl if ttl is None else millis("ttl", ttl, 1)
        who._grace = self.grace if grace is None else millis("grace", grace, 0)
        who._fits, who._epoch = self.fits and ttl is None and grace is None, self.epoch
        who._fit(self.longest)
        while not who.id:
            try:
                who.id = new_id(await self._id_prefix())
            except Unavailable as error:
                if who._once:
                    raise
                who._failure = error
                await self.rest(who, POLL_MAX)
        # The server would treat two contenders with the same id as one.
        while (other := self.contenders.setdefault((who.mutex, who.id), who)) is not who:
            if who._once or not other._leaving:
                raise InUse(f"{who.id!r} contends for {who.mutex} already")
            await self.rest(who, PAUSE)
        try:
            await self._acquire(who)
        except BaseException:
            self._give_up(who)
            await self.settle(who)
            raise
        finally:
            if not who.token:
                self._unlisten(who)

    async def _id_prefix(self) -> str:
        if self.prefix is None:
            try:
                name = _wire.text(await self.ask("ACL", "WHOAMI"))
            except ResponseError:  # the user may not ask
                name = self.redis.connection_pool.connection_kwargs.get("username")
            self.prefix = f"{name}:" if name and name != "default" else ""
        return self.prefix

    def _leave(self, who: Tenure[E]) -> None:
        if self.contenders.get((who.mutex, who.id)) is who:
            del self.contenders[who.mutex, who.id]
        if self.closed:
            self.left.set()

    def alive(self, who: Tenure[E] | None = None) -> None:
        if self.closed or who is not None and who._epoch not in (0, self.epoch):
            raise Closed("the client is closed" if self.closed else "the process has forked")

    async def rest(self, who: Tenure[E], seconds: float = FOREVER) -> None:
        """Wait until who is woken, at most for that time. Raise if the whole effort is over."""
        end = now() + seconds
        while True:
            self.alive(who)
            if who._stop is not None and who._stop.is_set():
                raise Stopped(f"mutex {who.mutex} not acquired: stopped")
            if now() >= who._deadline:
                raise self._not_acquired(who)
            if now() >= end or who._wake.is_set():
                who._wake.clear()
                return
            left = min(end, who._deadline) - now()
            await self.pause(who._wake, min(left, 3600 if who._stop is None else STOP_EVERY))

    def _not_acquired(self, who: Tenure[E]) -> NotAcquired:
        why = who._failure or (f"owned by {who._owner.id}" if who._owner else "another is next")
        error = (NotAnswered if who._failure else NotAcquired)(f"mutex {who.mutex}: {why}")
        error.owner = who._owner
        return error

    async def _acquire(self, who: Tenure[E]) -> None:
        pause = PAUSE
        while True:
            again = 0.0  # the pause until the contender asks again
            try:
                reply, sent = await self._ask_for(who)
                if reply["status"] == "busy" and who._once:
                    raise self._not_acquired(who)
                if reply["status"] == "busy":
                    await self._open(who)
                elif reply["status"] == "queued" and not reply.get("request"):  # polls
                    who._polls = False  # try again to open the connection
                    self._listen(who, _channel(who), f"{_channel(who)}:{who.id}")
                    again = min(reply["transition"] / 1000 + random.random(), POLL_MAX)
                elif reply["status"] == "queued":
                    reply, sent = await self._outcome(who, sent)
                    again = PAUSE
                if reply["status"] in ("acquired", "renewed") and await self._own(who, reply, sent):
                    return
                pause = PAUSE
            except Broken:
                again = random.uniform(0, PAUSE)  # not all at once
            except (Unavailable, RedisError) as error:
                code, _, longest = str(error).partition(" ")
                if code == "TOOLONG" and who._fit(int(longest.split()[0])):
                    log.warning("the server refuses the default lease: %s", error)
                    self.longest = who._ttl + who._grace
                    continue
                if who._once or not who._last and not isinstance(error, Unavailable):
                    raise
                self._note(who, error)
                again = pause * random.uniform(0.5, 1.5)
                pause = min(2 * pause, who._ttl / 1000, PAUSE_MAX)
            await self.rest(who, again)

    async def _ask_for(self, who: Tenure[E]) -> tuple[dict[str, Any], float]:
        """Send an ACQUIRE. It waits at the server if the connection for outcomes is open. If not,
        it takes no queue entry, unless the contender polls."""
        command: Command = ("SIMBA.ACQUIRE", who.mutex, who.id, who._ttl)
        command += ("TRANSITION", who._grace) if who._grace else ()
        self._forget(who)
        if self.waiter and not who._once:
            who._request, who._via, who._outcome = next(self.requests), self.waiter, None
            self.waits[who._request] = who
            command += ("WAIT", 0, "VIA", who._via, "REQUEST", who._request)
        elif who._once or not who._polls:
            command += ("NOQUEUE",)
        before, who._uncertain, sent = who._uncertain, True, now()
        try:
            reply = _wire.record(await self.ask(*command, limit=max(0.001, who._deadline - sent)))
        except RedisError as error:  # a store that is misconfigured may have done a part
            who._uncertain = before or "misconfigured: " in str(error)
            raise
        who._uncertain, who._failure, who._owner = before, None, _wire.owner_in(reply)
        who._present = who._present or reply["status"] != "busy"
        return reply, sent

    async def _open(self, who: Tenure[E]) -> None:
        """Open the connection for outcomes, or make the contender poll."""
        with self.lock:
            opens = not self.collecting and now() - self.next_refused > NEXT_REFUSED
            self.collecting = self.collecting or opens
        if opens:
            self.spawn(self._collect())
        while self.collecting and not self.waiter:
            await self.rest(who, LISTEN_EVERY)
        who._polls = not self.waiter

    async def _outcome(self, who: Tenure[E], sent: float) -> tuple[dict[str, Any], float]:
        """Wait for the outcome of a request. Return it, and from when its lease counts."""
        while who._outcome is None:
            await self.rest(who)
        if isinstance(who._outcome, Exception):
            raise who._outcome
        reply = who._outcome
        if reply["status"] == "acquired" and now() - sent > who._lease() / 3:
            who._uncertain, sent = True, now()
            reply = _wire.record(await self.ask(*who._guard(reply["token"])))
        return reply, sent

    async def _own(self, who: Tenure[E], reply: dict[str, Any], sent: float) -> bool:
        """Begin the tenure that a reply has granted. Return False if the contender must ask again."""
        if reply["status"] == "renewed" and reply["token"] == who._last:  # its release was lost
            await self.ask("SIMBA.RELEASE", who.mutex, who.id, "TOKEN", reply["token"])
            return False
        who._renewed(sent, reply["transition"] / 1000)
        if not who.held():
            who._uncertain = True
            raise Unavailable("server unavailable: the reply took longer than the lease")
        self._forget(who)
        with self.lock:
            self.alive(who)
            who.token, who._began = reply["token"], now()
            self.tenures.add(who)
            starts, self.tending = not self.tending, True
        if starts:
            self.spawn(self._tend())
        elif min(who._due, who._began + LISTEN_AFTER) < self.tend_at:
            self.tend_now.set()
        return True

    def _forget(self, who: Tenure[E]) -> bool:
        waits = self.waits.pop(who._request, None) is not None
        self.used = now() if waits else self.used
        return waits

    # Release

    def _give_up(self, who: Tenure[E]) -> None:
        """Release in the background what the server may keep for a contender without a tenure."""
        waits = self._forget(who) and not who._uncertain
        named = who._terms.get("id") and not who._last  # others may use the id later
        who._leaving = who._epoch == self.epoch and (who._present or who._uncertain)
        if who._leaving:
            what: Command = ("VIA", who._via, "REQUEST", who._request) if waits and named else ()
            self.spawn(self._free(who, *what), keep=True)
        else:
            self._leave(who)

    async def _free(self, who: Tenure[E], *what: Any) -> None:
        """Repeat a RELEASE until the server replies, or the lease is over."""
        end, pause = now() + who._lease(), PAUSE
        while True:
            try:
                await self.ask("SIMBA.RELEASE", who.mutex, who.id, *what)
                break
            except Unavailable:
                if now() > min(end, self.hurry):
                    break
                await self.pause(self.event(), max(0.0, min(pause, self.hurry - now())))
                pause = min(2 * pause, 1.0)
            except RedisError as error:
                self._note(who, error)
                break
        self._leave(who)

    async def release(self, who: Tenure[E]) -> None:
        """End a tenure. Raise Lost if it was lost, and Unavailable if there is no reply: then the
        release goes on in the background."""
        with self.lock:
            first, who._leaving = not who._leaving, True
        self._end(who, "released" if who.held() else "lost")
        released = None
        try:
            if first and who._over != "lost":
                released = await self.ask("SIMBA.RELEASE", who.mutex, who.id, "TOKEN", who.token)
        except RedisError:
            released = -1
            raise
        finally:
            if first and released is None:
                self.spawn(self._free(who, "TOKEN", who.token), keep=True)
                await self.settle(who)
            elif first:
                self._leave(who)
        who._over = "lost" if released == 0 else who._over
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

    async def close(self) -> None:
        """End all efforts and work, release all locks, and wait for that, at most for timeout. Work
        of lead and every releases its mutex when it returns."""
        with self.lock:
            self.closed, tenures = True, set(self.tenures)
        end = self.hurry = min(self.hurry, now() + self.timeout)
        self._wake_all()
        for who in tenures:
            if who._works:
                self._end(who, "released")
                who.lost.set()
            else:
                self.spawn(self.finish(who), keep=True)
        while self.contenders and now() < end:
            await self.pause(self.left, min(0.05, end - now()))
            self.left.clear()

    # Renew

    async def _tend(self) -> None:
        """Decide for all tenures when to renew, and what is lost. It ends when there are none."""
        while True:
            self.tend_now.clear()
            with self.lock:
                self.tending = bool(self.tenures)
                tenures = list(self.tenures)
            if not tenures:
                return
            t, self.tend_at, due = now(), FOREVER, []
            for who in tenures:
                left = who._left()
                if left <= 0:
                    self._end(who, "lost")
                    continue
                if who._works and who._stop is not None and who._stop.is_set():
                    who.lost.set()
                if t >= who._due:  # again if there is no reply until then
                    who._due = t + max(0.001, min(self.timeout, left / 3))
                    due.append(who)
                if not who._channels and t >= who._began + LISTEN_AFTER:
                    self._listen(who, _channel(who))
                listen_at = FOREVER if who._channels else who._began + LISTEN_AFTER
                self.tend_at = min(self.tend_at, who._due, who._until, listen_at)
            if due:
                self.spawn(self._renew(due, min(who._due for who in due) - t))
            # The waits are short, since they do not count the time of a suspended machine.
            seconds = max(TEND_MIN, min(self.tend_at - now(), TEND_MAX))
            await self.pause(self.tend_now, seconds)

    def _end(self, who: Tenure[E], why: str, owner: Owner | None = None) -> None:
        with self.lock:
            first, who._over = not who._over, who._over or why
            self.tenures.discard(who)
        if first and who._epoch == self.epoch:
            self._unlisten(who)
        if first and why == "lost":
            who.lost.set()
            log.warning("mutex lost: %s contender=%s owner=%s", who.mutex, who.id, owner)

    async def _renew(self, tenures: list[Tenure[E]], timeout: float) -> None:
        """Send a GUARD for each tenure, and handle the replies."""
        sent = now()
        replies = await self.ask_all([who._guard(who.token) for who in tenures], timeout)
        for who, raw in zip(tenures, replies, strict=True):
            try:
                reply = _wire.record(self._reply(raw))
            except (Unavailable, RedisError) as error:
                self._note(who, error)
                if sent >= who._sent:
                    who._due = now() + max(0.001, min(who._pause, who._left() / 8))
                    who._pause = min(2 * who._pause, PAUSE_MAX)
                continue
            who._failure, who._pause = None, PAUSE
            if reply["status"] == "lost":
                self._end(who, "lost", _wire.owner_in(reply))
            elif sent >= who._sent:
                who._renewed(sent, reply["transition"] / 1000)
            who._due = now() if sent < who._noticed else who._due  # a notice has come since
        self.tend_now.set()

    # Wait

    async def _collect(self) -> None:
        """Collect the outcomes of all waits on one connection, from its begin to its end."""
        wire, name, wait = self.wire(), secrets.token_hex(16), 0.0
        try:
            while not self.closed and (not wait or self.waits or now() - self.used < IDLE):
                command = ("SIMBA.NEXT", name, round(wait * 1000))
                outcomes = self._reply((await wire.ask([command], NEXT_TIMEOUT))[0])
                if not wait:
                    self.waiter, self.used, wait = name, now(), NEXT_WAIT
                    self._wake_all()
                for values in map(_wire.record, outcomes):
                    self._deliver(values)
        except (Unavailable, RedisError) as error:
            if isinstance(error, RedisError):
                self.next_refused = now()
                log.error("the server refuses SIMBA.NEXT, waiters poll instead: %s", error)
        finally:
            self.waiter, self.collecting, broken, self.waits = "", False, self.waits, {}
            wire.close()  # the server hands on what this connection did not receive
            for who in list(broken.values()):
                who._outcome = Broken()
            self._wake_all()

    def _wake_all(self) -> None:
        for who in list(self.contenders.values()):
            who._wake.set()

    def _deliver(self, values: dict[str, Any]) -> None:
        """Pass an outcome to its contender. Give a grant back that nobody waits for."""
        who, self.used = self.waits.pop(values["request"], None), now()
        failed = "error" in values
        if who is not None:
            who._outcome = _wire.failure(ResponseError(values["error"])) if failed else values
            who._wake.set()
        elif not failed and values["status"] == "acquired":
            who = self.contenders.get((values["mutex"], values["owner"]))
            # One that still asks learns of the tenure by its next request.
            if who is None or who._leaving or who.token not in (0, values["token"]):
                who = Tenure(self, values["mutex"], {"id": values["owner"]})
                who._ttl = self.ttl
                self.spawn(self._free(who, "TOKEN", values["token"]), keep=True)

    # Listen

    def _listen(self, who: Tenure[E], *channels: str) -> None:
        with self.lock:
            channels = () if who._over else channels
            known = [channel for channel in channels if self.listeners.get(channel)]
            for channel in channels:
                self.listeners.setdefault(channel, set()).add(who)
            starts, self.listening = not self.listening and not self.closed, True
        who._channels = channels
        if starts:
            self.spawn(self._hear())
        self._heard("", known)  # no confirmation will come

    def _unlisten(self, who: Tenure[E]) -> None:
        with self.lock:
            for channel in who._channels:
                self.listeners[channel].discard(who)
            who._channels = ()

    def _heard(self, message: str, channels: Sequence[str]) -> None:
        """Handle a notice; "" = a new subscription. It only makes owners and waiters ask."""
        for who in [who for channel in channels for who in list(self.listeners.get(channel, ()))]:
            begins, ends = message == f"acquired@@{who.id}", message.startswith("released@@")
            if not who.token and (not message or ends or channels[0] != _channel(who)):
                who._wake.set()
            elif who.token and (message == f"released@@{who.id}" or not begins and not ends):
                who._noticed = who._due = now()
                self.tend_now.set()

    async def _hear(self) -> None:
        """Keep a connection for notices while there are listeners."""
        while True:
            wire = self.wire(notices=True)
            try:
                await self._hear_on(wire)
            except (Unavailable, RedisError) as error:
                if not self.denied and not isinstance(_wire.failure(error), Unavailable):
                    self.denied = True
                    log.error("the server refuses SUBSCRIBE, so notices come late: %s", error)
                    self._heard("", list(self.listeners))
            finally:
                wire.close()
            with self.lock:
                self.listening = not self.closed and any(self.listeners.values())
            if not self.listening:
                return
            await self.pause(self.event(), PING_EVERY if self.denied else random.uniform(0, PAUSE))

    async def _hear_on(self, wire: Any) -> None:
        have: set[str] = set()
        used = heard = pinged = now()
        while not self.closed and now() - used < IDLE and now() - heard < 2 * PING_EVERY:
            with self.lock:
                self.listeners = {channel: who for channel, who in self.listeners.items() if who}
            want = set(self.listeners)
            for verb, names in ("SUBSCRIBE", want - have), ("UNSUBSCRIBE", have - want):
                await wire.send([(verb, name) for name in names])
            have, used = want, now() if want else used
            if now() - pinged > PING_EVERY:
                pinged = now()
                await wire.send([("PING",)])
            reply = self._reply(await wire.read(LISTEN_EVERY))
            heard = heard if reply is None else now()
            kind, channel, message = [*(reply if isinstance(reply, list) else ()), "", "", ""][:3]
            if kind in ("subscribe", "message"):
                self.denied = self.denied and kind != "subscribe"
                self._heard(message if kind == "message" else "", [channel])

    # Lead, every and watch

    async def lead(self, who: Tenure[E], f: Any, period: float = 0) -> Any:
        """Call f for each tenure, or every period of it, until it returns Final. Return the value;
        None = stopped."""
        pause, epoch, result = 0.0, self.epoch, None
        try:
            while True:
                who._works = True
                await self.enter(who)
                try:
                    result = await (self._follow(who, f, period) if period else self._run(who, f))
                finally:
                    await self.finish(who)
                if isinstance(result, Final):
                    return result.value
                quick = now() - who._began < QUICK
                pause = max(PAUSE, min(2 * pause, who._ttl / 1000)) if quick else 0.0
                terms, last = who._terms | {"id": who.id}, who.token
                who = Tenure(self, who.mutex, terms, who._stop)
                who._last = last
                await self.rest(who, pause)
                if self.epoch != epoch:  # the parent process uses the id
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

    async def changes(self, who: Tenure[E], history: History) -> list[State]:
        """Wait for the next changes of a mutex. Its notices only wake who, so none can be lost."""
        while True:
            seconds = POLL_MAX if history.differs or self.denied else WATCH_EVERY
            await self.rest(who, seconds if who._channels and not history.gap else who._pause)
            try:
                run = await self._run_id()
                raw = await self.ask("SIMBA.HISTORY", who.mutex, *history.since())
                states = history.read(run, raw, await self.owner(who.mutex))
            except Unavailable:
                who._pause = PAUSE_MAX
                continue
            if not who._channels:  # now, since the server has accepted a read
                self._listen(who, f"simba-events:{{{who.mutex}}}")
            if states:
                return states

    async def _run_id(self) -> str:
        try:
            info = str(_wire.text(await self.ask("INFO", "server")))
        except ResponseError:
            info = ""  # without the right, only another owner shows a restart
        return info.partition("run_id:")[2].partition("\r\n")[0] or "unknown"

    # Ask

    async def owner(self, mutex: str) -> Owner | None:
        self.alive()
        raw = await self.ask("SIMBA.OWNER", mutex)
        return None if raw is None else _wire.owner_in(_wire.record(raw))

    async def check(self, mutex: str, token: int) -> bool:
        self.alive()
        return token > 0 and await self.ask("SIMBA.CHECK", mutex, token) == 1

    async def ask(self, *command: Any, limit: float = FOREVER) -> Any:
        """Send one command, once, and return its reply. limit is how long the caller waits for it,
        if that is less than timeout."""
        return self._reply((await self.ask_all([command], self.timeout, limit))[0])

    def _reply(self, reply: Any) -> Any:
        before, self.away = self.away, isinstance(reply, Unavailable)
        if before != self.away:
            log.warning("%s", reply if self.away else "the server answers again")
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _note(self, who: Tenure[E], error: Exception) -> None:
        before, who._failure = who._failure, error
        if isinstance(error, RedisError) and not isinstance(before, RedisError):
            log.error("the server refuses a request: %s contender=%s: %s", who.mutex, who.id, error)

    # Input and output

    async def pause(self, event: E, seconds: float) -> None:
        """Wait for an event, at most for that time."""
        raise NotImplementedError

    def spawn(self, work: Coroutine[Any, Any, None], keep: bool = False) -> None:
        """Run work in the background: a thread or a task. keep means that nothing may cancel it
        before hurry."""
        raise NotImplementedError

    async def settle(self, who: Tenure[E]) -> None:
        """Wait for the release of a contender if nothing can go on in the background."""

    def wire(self, notices: bool = False) -> Any:
        """Return a new connection, which connects by itself.

        ask(commands, timeout) returns the replies, each perhaps an exception: Unavailable or the
        server's error reply. If a reply does not come in time, it closes the connection.
        send(commands) and read(timeout) are for notices; read returns None if there is none."""
        raise NotImplementedError

    async def call(self, who: Tenure[E], f: Any) -> Any:
        """Call the work of lead or every."""
        raise NotImplementedError

    async def ask_all(self, commands: Commands, timeout: float, limit: float = FOREVER) -> list[Any]:
        """Ask on a connection that others use, too."""
        raise NotImplementedError


def _channel(who: Tenure[Any]) -> str:
    return f"simba:{{{who.mutex}}}"


def _after_fork() -> None:
    for engine in list(_engines):
        engine.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
