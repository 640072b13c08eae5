"""Runs the code of the README, as it is there, in its order."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from test_language import port, raw, wait_for  # noqa: F401, pytest needs port

import simba_resp

BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parent.parent / "README.md").read_text(), re.DOTALL)


def at(kind: Any, port: int) -> Callable[..., Any]:
    return lambda **options: kind(**options | {"port": port})


def test_readme(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis, "Redis", at(redis.Redis, port))
    monkeypatch.setattr(redis.asyncio, "Redis", at(redis.asyncio.Redis, port))
    seen: list[Any] = []
    names: dict[str, Any] = {"write": seen.append, "cleanup": seen.append, "print": lambda *of: seen.append(of)}
    create, lock, try_lock, lead, sigterm, every, watch, check, aio = BLOCKS
    exec(create, names)

    def runs(block: str) -> list[Any]:
        """Run a block, until it has done something, or has ended. Return what it has done."""
        seen.clear()
        thread = threading.Thread(target=ends, args=(block,))
        thread.start()
        wait_for(lambda: seen or not thread.is_alive())
        done = list(seen)
        names["client"].close()
        thread.join(5)
        assert not thread.is_alive()
        exec(create, names)
        return done

    def ends(block: str) -> None:
        try:
            exec(block, names)
        except simba_resp.Closed:
            pass

    assert isinstance(runs(lock)[0], int)
    assert isinstance(runs(try_lock)[0], int)
    raw(port).execute_command("SIMBA.ACQUIRE", "report", "other", 60_000)
    assert runs(try_lock)[0][1].id == "other"
    raw(port).execute_command("SIMBA.RELEASE", "report", "other")
    assert isinstance(runs(lead)[0], int)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)  # this is no main thread
    assert isinstance(runs(sigterm)[0], int)
    assert isinstance(runs(every)[0], int)
    assert runs(watch) == [("leader:", None)]
    names["token"] = 1
    with pytest.raises(PermissionError):
        exec(check, names)

    async def write(token: int) -> None:
        seen.append(token)

    async def main() -> None:
        main = eval(compile(aio, "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        assert inspect.iscoroutine(main)
        task = asyncio.create_task(main)
        while len(seen) < 2:  # by the lock, and by the leader
            await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait({task})

    names["client"].close()
    names["write"] = write
    seen.clear()
    asyncio.run(main())
    assert seen[0] < seen[1]
    wait_for(lambda: raw(port).execute_command("SIMBA.OWNER", "report") is None)
