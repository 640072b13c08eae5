"""What the cases of clients/cases cannot reach from outside: fork, cancellation, the end of an event
loop, and a blocked one. SIMBA_RESP names the server's program, as in

    SIMBA_RESP=../../bin/simba-resp python -m pytest
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.sentinel

import simba_resp
import simba_resp.asyncio


@contextmanager
def serve(*flags: str) -> Iterator[int]:
    """Start a server, and yield its port."""
    program = os.environ.get("SIMBA_RESP")
    if program is None:
        pytest.skip("SIMBA_RESP does not name the server's program")
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    command = [program, "--addr", f"127.0.0.1:{number}", "--durability", "memory", *flags]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        wait_for(lambda: raw(number).ping())
        try:
            yield number
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serve() as number:
        yield number


def raw(port: int) -> Any:
    return redis.Redis(port=port, protocol=3, decode_responses=True)


def wait_for(condition: Callable[[], Any], seconds: float = 5) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except redis.ConnectionError:
            pass
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.02)


def free(port: int, mutex: str) -> bool:
    """Return whether a mutex has neither an owner nor waiters."""
    commands = ("SIMBA.OWNER", "SIMBA.QUEUE")
    return not any(raw(port).execute_command(command, mutex) for command in commands)


def in_child(f: Callable[[], bool]) -> bool:
    """Run f in the child of a fork, and return its result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of threads
        pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if f() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_child_of_fork_does_not_own(port: int) -> None:
    with simba_resp.Client(redis.Redis(port=port), ttl=0.6) as client:
        with client.lock("fork") as lock:

            def child() -> bool:
                time.sleep(1)
                with pytest.raises(simba_resp.Lost):
                    lock.release()
                return not lock.check() and lock.lost.is_set() and client.check("fork", lock.token)

            assert in_child(child)
            assert lock.check() and client.check("fork", lock.token)


def test_child_of_fork_contends_anew(port: int) -> None:
    with simba_resp.Client(redis.Redis(port=port)) as client:
        with client.lock("fork"):

            def child() -> bool:
                with client.lock("other") as other:
                    with pytest.raises(simba_resp.NotAcquired):
                        client.try_lock("fork").acquire()
                    time.sleep(1)
                    return other.check() and f":{os.getpid()}@" in other.id

            assert in_child(child)
        assert free(port, "other")


def test_child_of_fork_in_lead_does_not_lead(port: int) -> None:
    def work(tenure: simba_resp.Lock) -> Any:
        if pids:
            os._exit(1)  # the child leads, with the id of its parent
        pids.append(os.fork())
        if pids[0] == 0:
            return None
        return simba_resp.Final(os.waitstatus_to_exitcode(os.waitpid(pids[0], 0)[1]))

    pids: list[int] = []
    with simba_resp.Client(redis.Redis(port=port)) as client:
        try:
            result = client.lead("fork-lead", work)
        except simba_resp.Closed:
            os._exit(7)
        assert result == 7


def test_exception_in_body_releases(port: int) -> None:
    with simba_resp.Client(redis.Redis(port=port)) as client:
        with pytest.raises(KeyboardInterrupt), client.lock("body"):
            raise KeyboardInterrupt
        assert free(port, "body")


def test_lost_is_raised_at_end_of_with(port: int) -> None:
    with simba_resp.Client(redis.Redis(port=port)) as client:
        with pytest.raises(simba_resp.Lost), client.lock("body"):
            raw(port).execute_command("SIMBA.BREAK", "body")
        with pytest.raises(ValueError), client.lock("body"):
            raw(port).execute_command("SIMBA.BREAK", "body")
            raise ValueError


def test_lead_returns_final(port: int) -> None:
    with simba_resp.Client(redis.Redis(port=port)) as client:
        tokens: list[int] = []

        def work(tenure: simba_resp.Lock) -> Any:
            tokens.append(tenure.token)
            if len(tokens) == 1:
                raise ValueError("logged")
            return simba_resp.Final("done")

        assert client.lead("final", work) == "done"
        assert tokens[0] < tokens[1] and free(port, "final")


def test_stop_ends_lead(port: int) -> None:
    with simba_resp.Client(redis.Redis(port=port)) as client:
        stop = threading.Event()
        threading.Timer(0.3, stop.set).start()
        assert client.lead("stop", lambda tenure: tenure.lost.wait(10), stop=stop) is None
        assert free(port, "stop")


def async_client(port: int, **options: Any) -> simba_resp.asyncio.Client:
    return simba_resp.asyncio.Client(redis.asyncio.Redis(port=port), **options)


async def cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_cancelled_acquire_leaves_nothing(port: int) -> None:
    async def main() -> None:
        async with async_client(port) as client:
            for i in range(60):  # cancelled at different steps
                task = asyncio.create_task(client.lock("cancel").acquire())
                for _ in range(i):
                    await asyncio.sleep(0)
                await asyncio.sleep(0.0002 * (i % 7))
                task.cancel()
                await asyncio.wait({task})
                if not task.cancelled():
                    await asyncio.sleep(0)
            async with client.lock("cancel2"):
                task = asyncio.create_task(client.lock("cancel2").acquire())
                await asyncio.sleep(0.3)
                await cancel(task)
                await asyncio.sleep(0.1)
                assert not raw(port).execute_command("SIMBA.QUEUE", "cancel2")

    asyncio.run(main())
    assert free(port, "cancel")


def test_cancelled_exit_releases(port: int) -> None:
    async def main() -> None:
        async def work() -> None:
            async with client.lock("exit"):
                inside.set()
                await asyncio.sleep(10)

        async with async_client(port) as client:
            inside = asyncio.Event()
            task = asyncio.create_task(work())
            await inside.wait()
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()  # while the exit waits for the reply
            await asyncio.wait({task})
            await asyncio.sleep(0.1)
            assert free(port, "exit")

    asyncio.run(main())


def test_loop_that_closes_awaits_release(port: int) -> None:
    async def main() -> None:
        async def work() -> None:
            async with client.lock("loop"):
                inside.set()
                await asyncio.sleep(10)

        inside = asyncio.Event()
        tasks.append(asyncio.create_task(work()))
        tasks.append(asyncio.create_task(client.lead("loop-lead", lambda tenure: asyncio.sleep(10))))
        await inside.wait()
        await asyncio.sleep(0.2)

    tasks: list[asyncio.Task[Any]] = []
    client = async_client(port)
    for _ in range(3):  # the client serves one loop after the other, and nobody closes it
        asyncio.run(main())
        assert free(port, "loop") and free(port, "loop-lead")


def test_loop_that_closes_removes_waiters(port: int) -> None:
    async def main() -> None:
        tasks.extend(asyncio.create_task(client.lock("queue").acquire()) for _ in range(3))
        await asyncio.sleep(0.3)
        assert len(raw(port).execute_command("SIMBA.QUEUE", "queue")) == 3

    tasks: list[asyncio.Task[Any]] = []
    client = async_client(port)
    raw(port).execute_command("SIMBA.ACQUIRE", "queue", "other", 60_000)
    asyncio.run(main())
    assert not raw(port).execute_command("SIMBA.QUEUE", "queue")


def test_close_waits_for_release_at_most_for_timeout(port: int) -> None:
    async def main() -> None:
        client = async_client(port, timeout=0.5)
        await client.lock("close").acquire()
        waits = asyncio.create_task(client.lock("close").acquire())
        await asyncio.sleep(0.2)
        await client.close()
        assert free(port, "close")
        with pytest.raises(simba_resp.Closed):
            await waits
        with pytest.raises(simba_resp.Closed):
            await client.lock("close").acquire()

    asyncio.run(main())


@pytest.mark.parametrize("executed", [False, True])
def test_release_needs_no_unbroken_connection(port: int, executed: bool) -> None:
    async def main() -> None:
        async with async_client(port) as client:
            lock = await client.lock("broken").acquire()
            send = client._own.execute_command

            async def breaks(*command: Any) -> None:
                client._own.execute_command = send
                if executed:
                    await send(*command)
                raise redis.ConnectionError("Connection reset by peer")

            client._own.execute_command = breaks
            await lock.release()
            assert free(port, "broken")

    asyncio.run(main())


def test_work_is_cancelled_when_lost(port: int) -> None:
    async def main() -> None:
        events: list[str] = []

        async def work(tenure: simba_resp.asyncio.Lock) -> Any:
            if events:
                return simba_resp.Final(tenure.token)
            first.append(tenure.token)
            try:
                raw(port).execute_command("SIMBA.BREAK", "work")
                await asyncio.sleep(10)
            finally:
                events.append("cancelled" if not tenure.check() else "held")

        first: list[int] = []
        async with async_client(port, ttl=0.5) as client:
            assert await client.lead("work", work) > first[0]
        assert events == ["cancelled"]

    asyncio.run(main())


def test_blocked_loop_does_not_hold(port: int) -> None:
    async def main() -> None:
        async with async_client(port, ttl=0.5) as client:
            lock = client.lock("blocked")
            await lock.acquire()
            time.sleep(0.7)
            assert not lock.check()
            await asyncio.wait_for(lock.lost.wait(), 1)

    asyncio.run(main())


def test_cancellation_of_lead_counts_while_lost_work_ends(port: int) -> None:
    async def main() -> None:
        async def work(tenure: simba_resp.asyncio.Lock) -> None:
            try:
                raw(port).execute_command("SIMBA.BREAK", "ending")
                await asyncio.sleep(10)
            finally:
                ending.set()
                await asyncio.sleep(0.3)

        ending = asyncio.Event()
        async with async_client(port, ttl=0.5) as client:
            task = asyncio.create_task(client.lead("ending", work))
            await ending.wait()
            await cancel(task)
            await asyncio.sleep(0.1)
        assert free(port, "ending")

    asyncio.run(main())


def test_wait_outlasts_timeout(port: int) -> None:
    with simba_resp.Client(redis.Redis(port=port), timeout=0.5) as client:
        first, second = client.lock("outlasts"), client.lock("outlasts", wait=10)
        first.acquire()
        waiter = threading.Thread(target=second.acquire)
        waiter.start()
        time.sleep(1.5)
        first.release()
        waiter.join(0.2)  # a waiter that polls would need longer
        assert second.check()
        second.release()


def test_release_before_acquire_is_lost(port: int) -> None:
    with simba_resp.Client(redis.Redis(port=port)) as client:
        lock = client.lock("before")
        with pytest.raises(simba_resp.Lost):
            lock.release()
        with lock:
            assert lock.check()


def test_given_up_effort_with_an_id_leaves_nothing(port: int) -> None:
    with simba_resp.Client(redis.Redis(port=port)) as client:
        raw(port).execute_command("SIMBA.ACQUIRE", "named", "other", 60_000)
        with pytest.raises(simba_resp.NotAcquired):
            client.lock("named", id="one", wait=0.4).acquire()
        wait_for(lambda: not raw(port).execute_command("SIMBA.QUEUE", "named"), 1)
        raw(port).execute_command("SIMBA.RELEASE", "named", "other")
        with client.lock("named", id="one", wait=1):
            pass
        assert free(port, "named")


def test_waiter_without_next_polls(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse() -> None:
        raise redis.ResponseError("NOPERM")

    with simba_resp.Client(redis.Redis(port=port)) as client:
        monkeypatch.setattr(client, "_collect", refuse)
        raw(port).execute_command("SIMBA.ACQUIRE", "polls", "other", 60_000)
        waiter = client.lock("polls")
        thread = threading.Thread(target=waiter.acquire)
        thread.start()
        time.sleep(4)  # a pause that grows would be long now
        raw(port).execute_command("SIMBA.RELEASE", "polls", "other")
        thread.join(2)
        assert waiter.check()


def test_default_windows_fit_the_server(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = simba_resp.Client._ask

    async def limited(self: Any, *command: Any, **options: Any) -> Any:
        if command[0] == "SIMBA.ACQUIRE" and command[3] + command[5] > 3000:
            raise redis.ResponseError("TOOLONG 3000 is the longest lease")
        return await ask(self, *command, **options)

    monkeypatch.setattr(simba_resp.Client, "_ask", limited)
    with simba_resp.Client(redis.Redis(port=port)) as client:
        with client.lock("fits"):
            assert 2000 < raw(port).execute_command("SIMBA.OWNER", "fits")["transition"] <= 3000
        with pytest.raises(redis.ResponseError), client.lock("fits", ttl=4):
            pass


def test_every_makes_up_for_the_last_missed_start(port: int) -> None:
    starts: list[float] = []

    def work(lock: simba_resp.Lock) -> Any:
        starts.append(time.monotonic())
        time.sleep(1.3 if len(starts) == 1 else 0)
        return simba_resp.Final() if len(starts) == 4 else None

    with simba_resp.Client(redis.Redis(port=port)) as client:
        client.every("missed", 0.5, work)
    offsets = [start - starts[0] for start in starts]
    # A busy machine delays a run. The missed starts at 0.5 s and 1 s make one run, not two.
    assert all(offset > due - 0.1 for offset, due in zip(offsets, [0, 1.3, 1.5, 2], strict=True))


def test_second_cancellation_of_lead_reaches_the_work_and_does_not_release_early(port: int) -> None:
    async def main() -> None:
        async def work(lock: simba_resp.asyncio.Lock) -> None:
            try:
                begun.set()
                await asyncio.sleep(10)
            finally:
                for _ in range(2):
                    try:
                        await asyncio.sleep(0.3)
                    except asyncio.CancelledError:
                        interrupted.append(True)
                held.append(client_check())

        def client_check() -> bool:
            return raw(port).execute_command("SIMBA.OWNER", "twice") is not None

        begun, held, interrupted = asyncio.Event(), list[bool](), list[bool]()
        async with async_client(port) as client:
            task = asyncio.create_task(client.lead("twice", work))
            await begun.wait()
            task.cancel()
            await asyncio.sleep(0.1)
            await cancel(task)
            assert held == interrupted == [True]
            wait_for(lambda: free(port, "twice"), 1)

    asyncio.run(main())


@pytest.mark.parametrize("method", ["lead", "every"])
def test_cancellation_of_lead_counts_if_work_returns_final(port: int, method: str) -> None:
    async def main() -> None:
        async def work(lock: simba_resp.asyncio.Lock) -> Any:
            begun.set()
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                return simba_resp.Final("done")

        begun = asyncio.Event()
        async with async_client(port) as client:
            lead = client.lead("f", work) if method == "lead" else client.every("f", 1, work)
            task = asyncio.create_task(lead)
            await begun.wait()
            await cancel(task)
            assert free(port, "f")

    asyncio.run(main())


def test_stopped_lead_returns_final(port: int) -> None:
    def work(lock: simba_resp.Lock) -> Any:
        stop.set()
        return simba_resp.Final(lock.lost.wait(5))

    stop = threading.Event()
    with simba_resp.Client(redis.Redis(port=port)) as client:
        assert client.lead("stopped", work, stop=stop) is True


def test_user_without_the_right_to_whoami_is_that_of_the_options(tmp_path: Path) -> None:
    rights = "~* +@simba +@connection +@pubsub"
    users = tmp_path / "users.acl"
    users.write_text(f"user default on nopass {rights}\nuser mute on >word {rights}\n")
    with serve("--aclfile", str(users)) as port:
        for options, prefix in (({}, ""), ({"username": "mute", "password": "word"}, "mute:")):
            server = redis.Redis(port=port, **options)
            with pytest.raises(redis.exceptions.NoPermissionError):
                server.execute_command("ACL WHOAMI")
            with simba_resp.Client(server) as client, client.lock("job") as lock:
                assert lock.id.startswith(f"{prefix}1:")


def test_renewals_go_on_after_the_machine_had_no_threads(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with simba_resp.Client(redis.Redis(port=port), ttl=0.9) as client:
        with client.lock("threads") as lock:
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", refuse)
                with pytest.raises(RuntimeError):
                    simba_resp.Client(redis.Redis(port=port)).lock("other").acquire()
                time.sleep(0.5)
            time.sleep(1)
            assert lock.check()


def test_loop_that_fails_starts_again(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    look = simba_resp.Client._look
    looks: list[int] = []

    def fails(self: Any) -> float:
        looks.append(1)
        if len(looks) == 2:
            raise ValueError
        return look(self)

    monkeypatch.setattr(simba_resp.Client, "_look", fails)
    with simba_resp.Client(redis.Redis(port=port), ttl=0.6) as client, client.lock("look") as lock:
        time.sleep(1)
        assert lock.check()


def test_wrong_arguments_raise_at_once(port: int) -> None:
    nan, event = float("nan"), threading.Event()
    wrong: list[tuple[str, dict[str, Any]]] = [
        *(("stop", {"stop": stop}) for stop in (True, 5, "event")),
        *(("id", {"id": id}) for id in ("", 5, b"id")),
        *((name, {name: of}) for name in ("wait", "ttl", "grace") for of in ("5", nan, -1, [])),
    ]
    with simba_resp.Client(redis.Redis(port=port)) as client:
        for name, options in wrong:
            with pytest.raises((TypeError, ValueError), match=name):
                client.lock("wrong", **options)
        for mutex in (None, 5, "", b"wrong"):
            with pytest.raises(TypeError, match="mutex"):
                client.lock(mutex)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="f must be"):
            client.lead("wrong", None, stop=event)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="f must be"):
            client.every("wrong", 1, "f", stop=event)  # type: ignore[arg-type]
        with pytest.raises((TypeError, ValueError), match="period"):
            client.every("wrong", "1", print, stop=event)  # type: ignore[arg-type]
        with client.lock("wrong", wait=float("inf")):
            pass


def test_data_error_is_no_outage() -> None:
    error = redis.DataError("Invalid input of type")
    assert simba_resp._core.failure(error) is error  # type: ignore[attr-defined]


def test_given_up_polling_with_an_id_leaves_nothing(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse() -> None:
        raise redis.ResponseError("NOPERM")

    with simba_resp.Client(redis.Redis(port=port)) as client:
        monkeypatch.setattr(client, "_collect", refuse)
        raw(port).execute_command("SIMBA.ACQUIRE", "polled", "other", 60_000)
        for wait in (0.4, 1.3):  # in the first poll, and after the second
            with pytest.raises(simba_resp.NotAcquired):
                client.lock("polled", id="one", wait=wait).acquire()
            wait_for(lambda: not raw(port).execute_command("SIMBA.QUEUE", "polled"), 1)
        raw(port).execute_command("SIMBA.RELEASE", "polled", "other")


def test_close_reaches_the_body(port: int) -> None:
    client = simba_resp.Client(redis.Redis(port=port))
    with pytest.raises(simba_resp.Closed):
        with client.lock("closes") as lock:
            client.close()
            assert lock.lost.is_set() and not lock.check() and free(port, "closes")


def test_interrupted_release_is_repeated(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupt() -> None:
        raise KeyboardInterrupt

    with simba_resp.Client(redis.Redis(port=port)) as client:
        lock = client.lock("interrupt", id="one").acquire()
        with monkeypatch.context() as patch:
            patch.setattr(lock, "_free", interrupt)
            patch.setattr(threading.Thread, "run", run_later(threading.Thread.run))
            with pytest.raises(KeyboardInterrupt):
                lock.release()
        wait_for(lambda: free(port, "interrupt"))
        with client.lock("interrupt", id="one", wait=1):
            pass


def run_later(run: Callable[[Any], None]) -> Callable[[Any], None]:
    def later(self: Any) -> None:
        time.sleep(0.2)
        run(self)

    return later


def test_wait_of_zero_asks_once(port: int) -> None:
    async def main() -> None:
        async with async_client(port) as client:
            for i in range(20):
                async with client.lock("zero", wait=0):
                    with pytest.raises(simba_resp.NotAcquired):
                        await client.lock("zero", wait=0).acquire()

    asyncio.run(main())


def test_wait_counts_from_acquire(port: int) -> None:
    with simba_resp.Client(redis.Redis(port=port)) as client:
        lock = client.lock("from", wait=0.5)
        time.sleep(0.6)
        raw(port).execute_command("SIMBA.ACQUIRE", "from", "other", 200)
        with lock:
            assert lock.check()


def test_watch_hides_no_event(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, asked = simba_resp.Client._owner, list[str]()

    async def races(self: Any, mutex: str) -> Any:
        asked.append(mutex)
        if len(asked) == 2:
            raw(port).execute_command("SIMBA.ACQUIRE", mutex, "other", 60_000)
        return await owner(self, mutex)

    monkeypatch.setattr(simba_resp.Client, "_owner", races)
    with simba_resp.Client(redis.Redis(port=port)) as client:
        states = client.watch("hides")
        assert next(states) == simba_resp.State(None)
        state = next(states)
        assert state.event == "acquired" and state.owner and state.owner.id == "other"
        states.close()
    raw(port).execute_command("SIMBA.RELEASE", "hides", "other")


def test_subscriptions_are_given_back(port: int) -> None:
    def channels() -> list[str]:
        return [c for c in raw(port).pubsub_channels() if "back" in c]

    with simba_resp.Client(redis.Redis(port=port)) as client, client.lock("back1"):
        with client.lock("back2"):
            wait_for(lambda: len(channels()) == 2)
        wait_for(lambda: channels() == ["simba:{back1}"])


@pytest.mark.parametrize("failed", [False, True])
def test_close_raises_or_logs_if_a_release_has_no_reply(
    port: int, failed: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def silent(self: Any, *command: Any, **options: Any) -> Any:
        if command[0] == "SIMBA.RELEASE":
            raise simba_resp.Unavailable
        return await ask(self, *command, **options)

    ask = simba_resp.Client._ask
    with monkeypatch.context() as patch:
        patch.setattr(simba_resp.Client, "_ask", silent)
        with pytest.raises(ValueError if failed else simba_resp.Unavailable):
            with simba_resp.Client(redis.Redis(port=port), timeout=0.5) as client:
                lock = client.lock("silent").acquire()
                if failed:
                    raise ValueError("the body has failed")
    assert ("close took too long" in caplog.text) == failed
    raw(port).execute_command("SIMBA.RELEASE", "silent", lock.id)


def test_close_is_final_in_another_loop(port: int) -> None:
    async def main() -> None:
        with pytest.raises(simba_resp.Closed):
            await client.lock("final").acquire()

    client = async_client(port)
    asyncio.run(client.close())
    asyncio.run(main())


def test_cancelled_work_that_fails_is_logged(port: int, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async def work(lock: simba_resp.asyncio.Lock) -> None:
            try:
                begun.set()
                await asyncio.sleep(10)
            finally:
                raise ValueError("cleanup")

        begun = asyncio.Event()
        async with async_client(port) as client:
            task = asyncio.create_task(client.lead("cleanup", work))
            await begun.wait()
            await cancel(task)

    asyncio.run(main())
    assert "ValueError: cleanup" in caplog.text


def test_loss_is_logged_once(port: int, caplog: pytest.LogCaptureFixture) -> None:
    def work(lock: simba_resp.Lock) -> simba_resp.Final:
        raw(port).execute_command("SIMBA.BREAK", "once")
        lock.lost.wait(5)
        return simba_resp.Final()

    with simba_resp.Client(redis.Redis(port=port), ttl=0.6) as client:
        client.lead("once", work)
        with pytest.raises(simba_resp.Lost), client.lock("once"):
            raw(port).execute_command("SIMBA.BREAK", "once")
    assert [r.message.split(" contender")[0] for r in caplog.records] == ["mutex lost: once"] * 2


def test_outage_has_its_cause() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    with simba_resp.Client(redis.Redis(port=number)) as client:
        with pytest.raises(simba_resp.Unavailable) as raised:
            client.owner("cause")
    assert isinstance(raised.value.__cause__, redis.ConnectionError)


def test_sentinel_names_the_server(port: int) -> None:
    class Sentinel(redis.sentinel.Sentinel):
        def discover_master(self, service_name: str) -> Any:
            return "127.0.0.1", port

    master = Sentinel([("127.0.0.1", 1)]).master_for("simba")
    with simba_resp.Client(master) as client, client.lock("sentinel") as lock:
        assert client.check("sentinel", lock.token)


def test_uvloop(port: int) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        client = async_client(port)
        lock = client.lock("uvloop")
        await lock.acquire()
        waits.append(asyncio.create_task(client.lock("uvloop").acquire()))
        await asyncio.sleep(0.3)
        await lock.release()
        await waits[0]

    waits: list[asyncio.Task[Any]] = []
    uvloop.run(main())  # nobody releases the second lock
    assert raw(port).execute_command("SIMBA.OWNER", "uvloop")
