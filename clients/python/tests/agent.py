"""Drives one client for the cases of clients/cases. It reads requests from stdin, and writes replies
and events to stdout, as JSON lines. Requests run at the same time.

The variant in the request open, sync or asyncio, says which client it is.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel

import simba_resp
import simba_resp.asyncio

_write = threading.Lock()


def send(**line: Any) -> None:
    line["at"] = time.monotonic_ns() // 1000  # on the clock of all processes of the machine
    with _write:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def name_of(error: BaseException) -> str:
    names = [
        (asyncio.CancelledError, "cancelled"),
        (simba_resp.NotAcquired, "not_acquired"),
        (simba_resp.Lost, "lost"),
        (simba_resp.Unavailable, "unavailable"),
        (simba_resp.InUse, "in_use"),
        (simba_resp.Closed, "closed"),
        (redis.RedisError, "refused"),
        (ValueError, "argument"),
        (TypeError, "argument"),
    ]
    return next((name for kind, name in names if isinstance(error, kind)), "internal")


def fail(request: dict[str, Any], error: BaseException) -> None:
    send(id=request["id"], error=name_of(error), text=f"{type(error).__name__}: {error}")


def seconds(request: dict[str, Any], name: str) -> float | None:
    return None if request.get(name) is None else request[name] / 1000


def make_redis(request: dict[str, Any], kind: Any, sentinel: Any) -> Any:
    options: dict[str, Any] = {}
    if request.get("protocol"):
        options["protocol"] = request["protocol"]
    if request.get("ca"):
        options |= {"ssl_ca_certs": request["ca"], "ssl_check_hostname": True}  # redis-py 5: False
    if not request.get("sentinel"):
        return kind.from_url(request["url"], **options)
    addresses = [address.rsplit(":", 1) for address in request["sentinel"].split(",")]
    url = redis.connection.parse_url(request["url"])
    options |= {key: url[key] for key in ("username", "password") if key in url}
    options |= {"ssl": True} if request["url"].startswith("rediss:") else {}
    return sentinel([(host, int(port)) for host, port in addresses], socket_timeout=1).master_for("simba", **options)


def client_options(request: dict[str, Any]) -> dict[str, Any]:
    names = ("timeout", "ttl", "grace")
    return {name: seconds(request, name) for name in names if request.get(name) is not None}


def terms(request: dict[str, Any]) -> dict[str, Any]:
    return {"id": request.get("id_of"), "ttl": seconds(request, "ttl"), "grace": seconds(request, "grace")}


def is_lost(tenure: Any) -> bool:
    return not tenure._held() and tenure._over != "released"


def owner_of(owner: simba_resp.Owner | None) -> dict[str, Any]:
    return {"owner": owner.id, "token": owner.token} if owner else {"owner": "", "token": 0}


class Threads:
    """The agent of the sync client: a thread for each request."""

    def __init__(self, request: dict[str, Any]) -> None:
        client = make_redis(request, redis.Redis, redis.sentinel.Sentinel)
        self.client = simba_resp.Client(client, **client_options(request))
        self.locks: dict[str, simba_resp.Lock] = {}
        self.stops: dict[str, threading.Event] = {}

    def run(self, first: dict[str, Any]) -> None:
        self.start(first)
        for line in sys.stdin:
            self.start(json.loads(line))

    def start(self, request: dict[str, Any]) -> None:
        if request["do"] in ("lock", "lead", "every", "watch"):
            self.stops[request["as"]] = threading.Event()
        threading.Thread(target=self.handle, args=(request,), daemon=True).start()

    def handle(self, request: dict[str, Any]) -> None:
        try:
            reply = getattr(self, "do_" + request["do"])(request)
            send(id=request["id"], ok=reply or {})
        except BaseException as error:
            stop = self.stops.get(request.get("as", ""))
            stopped = isinstance(error, simba_resp.NotAcquired) and stop is not None and stop.is_set()
            fail(request, asyncio.CancelledError() if stopped else error)
        if request["do"] == "close":
            os._exit(0)

    def do_open(self, request: dict[str, Any]) -> None:
        pass

    def do_lock(self, request: dict[str, Any]) -> dict[str, Any]:
        stop = self.stops[request["as"]]
        return self._lock(request, self.client.lock(request["mutex"], wait=seconds(request, "limit"), stop=stop, **terms(request)))

    def do_try_lock(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._lock(request, self.client.try_lock(request["mutex"], **terms(request)))

    def _lock(self, request: dict[str, Any], lock: simba_resp.Lock) -> dict[str, Any]:
        lock.acquire()
        self.locks[request["as"]] = lock
        threading.Thread(target=self._await_loss, args=(request["as"], lock), daemon=True).start()
        return {"token": lock.token, "id": lock.id}

    def _await_loss(self, name: str, lock: simba_resp.Lock) -> None:
        lock.lost.wait()
        send(event="lost", **{"as": name})

    def do_unlock(self, request: dict[str, Any]) -> None:
        self.locks[request["as"]].release()

    def do_held(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"held": self.locks[request["as"]].check()}

    def do_lead(self, request: dict[str, Any]) -> None:
        def work(tenure: Any) -> None:
            send(event="begin", token=tenure.token, id=tenure.id, **{"as": request["as"]})
            tenure.lost.wait(seconds(request, "work"))
            send(event="end", lost=is_lost(tenure), **{"as": request["as"]})

        stop = self.stops[request["as"]]
        self.client.lead(request["mutex"], work, stop=stop, **terms(request))
        raise asyncio.CancelledError

    def do_every(self, request: dict[str, Any]) -> None:
        def work(tenure: Any) -> None:
            send(event="run", token=tenure.token, **{"as": request["as"]})

        stop = self.stops[request["as"]]
        self.client.every(request["mutex"], request["period"] / 1000, work, stop=stop, **terms(request))
        raise asyncio.CancelledError

    def do_watch(self, request: dict[str, Any]) -> None:
        for state in self.client.watch(request["mutex"], stop=self.stops[request["as"]]):
            send(event="owner", **owner_of(state.owner), **{"as": request["as"]})
        raise asyncio.CancelledError

    def do_stop(self, request: dict[str, Any]) -> None:
        self.stops[request["as"]].set()

    def do_owner(self, request: dict[str, Any]) -> dict[str, Any]:
        return owner_of(self.client.owner(request["mutex"]))

    def do_check(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"holds": self.client.check(request["mutex"], request["token"])}

    def do_block(self, request: dict[str, Any]) -> None:
        time.sleep(request["ms"] / 1000)

    def do_close(self, request: dict[str, Any]) -> None:
        self.client.close()


class Tasks:
    """The agent of the asyncio client: a task for each request."""

    def __init__(self, request: dict[str, Any]) -> None:
        client = make_redis(request, redis.asyncio.Redis, redis.asyncio.sentinel.Sentinel)
        self.client = simba_resp.asyncio.Client(client, **client_options(request))
        self.locks: dict[str, simba_resp.asyncio.Lock] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.others: set[asyncio.Task[Any]] = set()

    async def run(self, first: dict[str, Any]) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        self.start(first)
        while line := await reader.readline():
            self.start(json.loads(line))

    def start(self, request: dict[str, Any]) -> None:
        task = asyncio.create_task(self.handle(request))
        if request["do"] in ("lock", "lead", "every", "watch"):
            self.tasks[request["as"]] = task
        self._keep(task)

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self.others.add(task)
        task.add_done_callback(self.others.discard)

    async def handle(self, request: dict[str, Any]) -> None:
        try:
            reply = await getattr(self, "do_" + request["do"])(request)
            send(id=request["id"], ok=reply or {})
        except BaseException as error:
            fail(request, error)
        if request["do"] == "close":
            os._exit(0)

    async def do_open(self, request: dict[str, Any]) -> None:
        pass

    async def do_lock(self, request: dict[str, Any]) -> dict[str, Any]:
        return await self._lock(request, self.client.lock(request["mutex"], wait=seconds(request, "limit"), **terms(request)))

    async def do_try_lock(self, request: dict[str, Any]) -> dict[str, Any]:
        return await self._lock(request, self.client.try_lock(request["mutex"], **terms(request)))

    async def _lock(self, request: dict[str, Any], lock: simba_resp.asyncio.Lock) -> dict[str, Any]:
        await lock.acquire()
        self.locks[request["as"]] = lock
        self._keep(asyncio.create_task(self._await_loss(request["as"], lock)))
        return {"token": lock.token, "id": lock.id}

    async def _await_loss(self, name: str, lock: simba_resp.asyncio.Lock) -> None:
        await lock.lost.wait()
        send(event="lost", **{"as": name})

    async def do_unlock(self, request: dict[str, Any]) -> None:
        await self.locks[request["as"]].release()

    async def do_held(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"held": self.locks[request["as"]].check()}

    async def do_lead(self, request: dict[str, Any]) -> None:
        async def work(tenure: Any) -> None:
            send(event="begin", token=tenure.token, id=tenure.id, **{"as": request["as"]})
            try:
                await asyncio.sleep(seconds(request, "work") or 1e6)
            finally:
                send(event="end", lost=is_lost(tenure), **{"as": request["as"]})

        await self.client.lead(request["mutex"], work, **terms(request))

    async def do_every(self, request: dict[str, Any]) -> None:
        async def work(tenure: Any) -> None:
            send(event="run", token=tenure.token, **{"as": request["as"]})

        await self.client.every(request["mutex"], request["period"] / 1000, work, **terms(request))

    async def do_watch(self, request: dict[str, Any]) -> None:
        async for state in self.client.watch(request["mutex"]):
            send(event="owner", **owner_of(state.owner), **{"as": request["as"]})

    async def do_stop(self, request: dict[str, Any]) -> None:
        self.tasks[request["as"]].cancel()

    async def do_owner(self, request: dict[str, Any]) -> dict[str, Any]:
        return owner_of(await self.client.owner(request["mutex"]))

    async def do_check(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"holds": await self.client.check(request["mutex"], request["token"])}

    async def do_block(self, request: dict[str, Any]) -> None:
        time.sleep(request["ms"] / 1000)

    async def do_close(self, request: dict[str, Any]) -> None:
        await self.client.close()


async def run_tasks(first: dict[str, Any]) -> None:
    await Tasks(first).run(first)


def main() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    first = json.loads(sys.stdin.readline())
    try:
        if first.get("variant") == "asyncio":
            asyncio.run(run_tasks(first))
        else:
            Threads(first).run(first)
    except (TypeError, ValueError, redis.RedisError) as error:  # an option of open
        fail(first, error)


if __name__ == "__main__":
    main()
