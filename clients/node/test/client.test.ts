import assert from "node:assert/strict";
import os from "node:os";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";
import { Client, ClosedError, final, type Lock, LostError, NotAcquiredError, UnavailableError } from "simba-resp";
import { startProxy, startServer, type Proxy, type Server } from "./server.js";
import { variants } from "./variants.js";

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const quiet = { warn: () => undefined, error: () => undefined };
const aborted = (signal: AbortSignal): Promise<unknown> =>
  new Promise((resolve) => (signal.aborted ? resolve(undefined) : signal.addEventListener("abort", resolve)));

/** withLock runs work while it owns the mutex. */
async function withLock<T>(client: Client, mutex: string, work: (lock: Lock) => T | Promise<T>): Promise<T> {
  await using lock = await client.lock(mutex);
  return await work(lock);
}

/** block blocks the event loop. */
function block(ms: number): void {
  for (const end = performance.now() + ms; performance.now() < end; );
}

/** eventually waits until f returns true. */
async function eventually(f: () => Promise<boolean> | boolean, ms = 5000): Promise<void> {
  for (const end = performance.now() + ms; !(await f()); await sleep(10)) {
    if (performance.now() > end) assert.fail("it does not happen");
  }
}

/** An Inside can send any command. */
class Inside extends Client {
  ask(...args: string[]): Promise<unknown> {
    return (this as unknown as { send(args: string[]): Promise<unknown> }).send(args);
  }
}

/** An Inner has what the types of the package leave out. */
interface Inner {
  all: Map<string, Lock>;
  waits: { open(): void };
  wakeAt(time: number): void;
  send(args: string[], patience?: number): Promise<unknown>;
  noticed(channel: string): void;
}
const innerOf = (client: Client): Inner => client as unknown as Inner;

let server: Server;
let slept = 0;
const unhandled: unknown[] = [];
process.on("unhandledRejection", (err) => unhandled.push(err));
process.on("warning", (warning) => warning.name === "MaxListenersExceededWarning" && unhandled.push(warning));

before(async () => (server = await startServer()));
after(async () => {
  await server.kill();
  assert.deepEqual(unhandled, []);
});

for (const variant of variants) {
  describe(variant.name, () => {
    let proxy: Proxy;
    let client: Client;
    let other: Inside;
    let n = 0;
    let mutex: string;

    beforeEach(async () => {
      proxy = await startProxy(server.port);
      client = new Client(variant.make(proxy.port), { logger: quiet });
      other = new Inside(variant.make(server.port), { logger: quiet });
      mutex = `${variant.name.replace(/\W/g, "")}-${++n}`;
    });
    afterEach(async () => {
      await client.close().catch(() => undefined);
      await other.close().catch(() => undefined);
      proxy.close();
    });
    const waiters = async (): Promise<number> =>
      ((await other.ask("SIMBA.QUEUE", mutex)) as unknown[]).length;
    const subscribed = (channel: string): Promise<void> =>
      eventually(async () => ((await other.ask("PUBSUB", "NUMSUB", channel)) as unknown[])[1] === 1);

    test("a lock is held until its release, whatever happens", async () => {
      const result = await withLock(client, mutex, async (lock) => {
        assert.equal((await other.owner(mutex))?.token, lock.token);
        assert.ok(lock.check() && (await other.check(mutex, lock.token)));
        await assert.rejects(other.tryLock(mutex), (err) => err instanceof NotAcquiredError && err.owner?.id === lock.id);
        return 7;
      });
      assert.equal(result, 7);
      assert.equal(await other.owner(mutex), undefined);
      const failure = new Error("work");
      await assert.rejects(withLock(client, mutex, () => Promise.reject(failure)), failure);
      assert.equal(await other.owner(mutex), undefined);
    });

    test("await using releases the mutex", async () => {
      let token = 0;
      {
        await using lock = await client.lock(mutex);
        token = lock.token;
        assert.ok(lock.check());
      }
      assert.equal(await other.owner(mutex), undefined);
      await using lock = await other.tryLock(mutex);
      assert.ok(lock.token > token);
    });

    test("a waiter gets the mutex at the release, in order", async () => {
      const lock = await client.lock(mutex);
      const order: number[] = [];
      const waits: Promise<unknown>[] = [];
      for (let i = 0; i < 5; i++) {
        const one = withLock(other, mutex, async () => {
          order.push(i);
          await sleep(5);
        });
        waits.push(one);
        await eventually(async () => (await waiters()) === i + 1);
      }
      await lock.release();
      await Promise.all(waits);
      assert.deepEqual(order, [0, 1, 2, 3, 4]);
    });

    test("an aborted wait rejects with the reason and leaves the queue", async () => {
      await using lock = await other.lock(mutex);
      for (const method of ["lock", "lead"] as const) {
        const stop = new AbortController();
        const options = { signal: stop.signal };
        const waiting = method === "lock" ? client.lock(mutex, options) : client.lead(mutex, () => undefined, options);
        await eventually(async () => (await waiters()) === 1);
        const reason = new Error("enough");
        stop.abort(reason);
        await assert.rejects(waiting, reason);
        await eventually(async () => (await waiters()) === 0);
      }
      await assert.rejects(client.lock(mutex, { wait: 100 }), NotAcquiredError);
      await eventually(async () => (await waiters()) === 0);
      await assert.rejects(client.lock(mutex, { signal: AbortSignal.abort(7) }), (err) => err === 7);
      assert.ok(lock.check());
    });

    test("an owner learns of a BREAK at once", async () => {
      const lock = await client.lock(mutex, { ttl: 3_600_000 }); // the next renewal is far away
      await subscribed(`simba:{${mutex}}`);
      await other.ask("SIMBA.BREAK", mutex);
      await aborted(lock.signal);
      assert.ok(lock.signal.reason instanceof LostError && !lock.check());
      await assert.rejects(lock.release(), LostError);
      await assert.rejects(withLock(client, mutex, () => other.ask("SIMBA.BREAK", mutex)), LostError);
    });

    test("an owner renews", async () => {
      const lock = await client.lock(mutex, { ttl: 1000, grace: 1000 });
      await sleep(2500);
      assert.ok(lock.check());
      assert.equal((await other.owner(mutex))?.token, lock.token);
      await lock.release();
    });

    test("an owner behind a black hole loses the mutex before the server grants it again", async () => {
      const lock = await client.lock(mutex, { ttl: 600, grace: 200 });
      proxy.deaf = true;
      const next = await other.lock(mutex);
      assert.ok(!lock.check() && lock.signal.aborted);
      assert.ok(!lock.check());
      await assert.rejects(lock.release(), LostError);
      proxy.deaf = false;
      await next.release();
    });

    test("an owner renews by a new connection when one is deaf", async () => {
      const lock = await client.lock(mutex, { ttl: 1500, grace: 1500 });
      proxy.deaf = true;
      await sleep(600); // the first renewal is lost
      proxy.deaf = false;
      await sleep(3000);
      assert.ok(lock.check());
      await lock.release();
    });

    test("a request whose reply is lost is sent again, with the same id", async () => {
      await withLock(client, mutex, () => undefined);
      proxy.mute = true;
      const waiting = client.lock(mutex);
      await eventually(async () => (await other.owner(mutex)) !== undefined);
      const owner = await other.owner(mutex);
      proxy.mute = false;
      proxy.cut();
      const lock = await waiting;
      assert.deepEqual([lock.id, lock.token], [owner?.id, owner?.token]);
      await lock.release();
      assert.equal(await other.owner(mutex), undefined);
    });

    test("an aborted call whose reply is lost leaves nothing", async () => {
      await withLock(client, mutex, () => undefined);
      proxy.mute = true;
      const stop = new AbortController();
      const waiting = client.lock(mutex, { signal: stop.signal });
      await eventually(async () => (await other.owner(mutex)) !== undefined);
      stop.abort(1);
      await assert.rejects(waiting, (err) => err === 1);
      proxy.mute = false;
      proxy.cut();
      await eventually(async () => (await other.owner(mutex)) === undefined);
    });

    test("check is right after the event loop was blocked, and a short block costs nothing", async () => {
      const lock = await client.lock(mutex, { ttl: 1000, grace: 300 });
      block(400);
      assert.ok(lock.check());
      await sleep(300);
      assert.ok(lock.check());
      block(1400);
      assert.ok(!lock.check());
      assert.ok(lock.signal.aborted);
      await assert.rejects(lock.release(), LostError);
    });

    test("a wait survives a blocked event loop", async () => {
      const lock = await other.lock(mutex);
      const waiting = client.lock(mutex);
      await eventually(async () => (await waiters()) === 1);
      block(3500); // longer than the time in which NEXT must reply
      assert.equal(await waiters(), 1);
      await lock.release();
      await (await waiting).release();
    });

    test("lead contends again after a loss, and ends with the signal or a final value", async () => {
      const stop = new AbortController();
      const tokens: number[] = [];
      const leading = client.lead(
        mutex,
        async (tenure) => {
          tokens.push(tenure.token);
          await aborted(tenure.signal);
        },
        { signal: stop.signal },
      );
      await eventually(() => tokens.length === 1);
      await subscribed(`simba:{${mutex}}`);
      await other.ask("SIMBA.BREAK", mutex);
      await eventually(() => tokens.length === 2);
      assert.ok(tokens[1]! > tokens[0]!);
      stop.abort();
      await assert.rejects(leading, (err) => err === stop.signal.reason);
      assert.equal(await other.owner(mutex), undefined);
      assert.equal(await client.lead(mutex, () => final(3)), 3);
      assert.equal(await other.owner(mutex), undefined);
    });

    test("lead goes on when its work fails", async () => {
      let runs = 0;
      const result = await client.lead(mutex, () => {
        if (++runs < 3) throw new Error("work");
        return final("done");
      });
      assert.deepEqual([runs, result], [3, "done"]);
    });

    test("every keeps the mutex from run to run", async () => {
      const stop = new AbortController();
      const runs: number[] = [];
      const work = ({ token }: { token: number }): void => void runs.push(token);
      const running = client.every(mutex, 50, work, { signal: stop.signal });
      await eventually(() => runs.length >= 5);
      assert.equal(new Set(runs).size, 1);
      stop.abort();
      await assert.rejects(running, { name: "AbortError" });
      assert.equal(await other.owner(mutex), undefined);
    });

    test("watch yields the owner and each change", async () => {
      const stop = new AbortController();
      const seen: (string | undefined)[] = [];
      const watching = (async () => {
        for await (const { owner } of client.watch(mutex, { signal: stop.signal })) seen.push(owner?.id);
      })();
      await eventually(() => seen.length === 1);
      await other.lock(mutex, { id: "a" }).then((lock) => lock.release());
      await other.lock(mutex, { id: "b" }).then((lock) => lock.release());
      await eventually(() => seen.length === 5);
      assert.deepEqual(seen, [undefined, "a", undefined, "b", undefined]);
      stop.abort();
      await assert.rejects(watching, { name: "AbortError" });
    });

    test("close ends all calls and releases all mutexes", async () => {
      const lock = await client.lock(mutex);
      const leading = client.lead(`${mutex}-2`, ({ signal }) => aborted(signal));
      const waiting = client.lock(mutex);
      await eventually(async () => (await other.owner(`${mutex}-2`)) !== undefined && (await waiters()) === 1);
      const ends = [assert.rejects(leading, ClosedError), assert.rejects(waiting, ClosedError)];
      await client.close();
      await Promise.all(ends);
      assert.ok(!lock.check());
      assert.equal(await other.owner(mutex), undefined);
      assert.equal(await other.owner(`${mutex}-2`), undefined);
      assert.equal(await waiters(), 0);
      assert.ok(lock.signal.reason instanceof ClosedError);
      await assert.rejects(client.lock(mutex), ClosedError);
    });

    test("check is false as soon as the call of a leader is aborted, and the work keeps the mutex", async () => {
      for (const end of [(stop: AbortController) => stop.abort(), () => void client.close()]) {
        const stop = new AbortController();
        let owned = false;
        const work = async (tenure: Lock): Promise<void> => {
          setTimeout(end, 20, stop);
          for (let i = 0; i < 300 && tenure.check(); i++) await sleep(5);
          assert.ok(tenure.signal.aborted && !tenure.check());
          await sleep(1500); // longer than the TTL
          owned = await other.check(mutex, tenure.token);
        };
        const leading = client.lead(mutex, work, { signal: stop.signal, ttl: 600, grace: 600 });
        await assert.rejects(leading);
        assert.ok(owned);
        assert.equal(await other.owner(mutex), undefined);
      }
    });

    test("a call that is aborted at the moment of the grant leaves nothing", async () => {
      const stop = new AbortController();
      const inner = innerOf(client);
      const { wakeAt } = inner;
      inner.wakeAt = (time) => {
        for (const lock of inner.all.values()) if (lock.check()) stop.abort(7);
        wakeAt.call(client, time);
      };
      await assert.rejects(client.lock(mutex, { signal: stop.signal }), (err) => err === 7);
      await eventually(async () => (await other.owner(mutex)) === undefined && inner.all.size === 0);
    });

    test("a wait with an id of the caller that polls leaves the queue at its end", async () => {
      await using lock = await other.lock(mutex);
      innerOf(client).waits.open = () => undefined; // as when the user may not send SIMBA.NEXT
      await assert.rejects(client.lock(mutex, { id: "mine", wait: 500 }), NotAcquiredError);
      await eventually(async () => (await waiters()) === 0, 500);
      assert.ok(lock.check());
    });

    test("a wait longer than any timer has no limit", async () => {
      const lock = await other.lock(mutex);
      const waiting = client.lock(mutex, { wait: 2 ** 31 });
      await eventually(async () => (await waiters()) === 1);
      await sleep(50); // a timer of that length would fire after 1 ms
      await lock.release();
      await (await waiting).release();
    });

    test("wait 0 asks once", async () => {
      await (await client.lock(mutex, { wait: 0 })).release();
      await using _ = await other.lock(mutex);
      await assert.rejects(client.lock(mutex, { wait: 0 }), NotAcquiredError);
      assert.equal(await waiters(), 0);
    });

    test("arguments are verified at the call", async () => {
      const loose = client as unknown as Record<string, (...args: unknown[]) => Promise<unknown>>;
      const work = (): undefined => undefined;
      const calls: [ErrorConstructor, RegExp, string, ...unknown[]][] = [
        [TypeError, /^mutex /, "lock", undefined],
        [RangeError, /^mutex /, "tryLock", ""],
        [TypeError, /^mutex /, "owner", 3],
        [TypeError, /^mutex /, "check", undefined, 1],
        [RangeError, /^id /, "lock", mutex, { id: "" }],
        [TypeError, /^id /, "lock", mutex, { id: 5 }],
        [TypeError, /^signal /, "lock", mutex, { signal: "x" }],
        [TypeError, /^signal /, "lead", mutex, work, { signal: {} }],
        [RangeError, /^wait /, "lock", mutex, { wait: -1 }],
        [RangeError, /^wait /, "lock", mutex, { wait: NaN }],
        [TypeError, /^wait /, "lock", mutex, { wait: "1" }],
        [RangeError, /^ttl /, "lock", mutex, { ttl: 0 }],
        [RangeError, /^grace /, "lock", mutex, { grace: -1 }],
        [TypeError, /^work /, "lead", mutex, undefined],
        [TypeError, /^work /, "every", mutex, 1, 2],
        [RangeError, /^period /, "every", mutex, 0, work],
      ];
      for (const [type, message, method, ...args] of calls) {
        await assert.rejects(loose[method]!(...args), (err) => err instanceof type && message.test(err.message));
      }
      for (const timeout of [0, NaN, 2 ** 31]) assert.throws(() => new Client(variant.make(1), { timeout }), RangeError);
      await assert.rejects(client.watch(undefined as unknown as string).next(), TypeError);
      assert.equal(await other.owner(mutex), undefined);
    });

    test("an aborted signal sends nothing", async () => {
      const sent: string[] = [];
      const { send } = innerOf(client);
      innerOf(client).send = (args, patience) => (sent.push(args[0]!), send.call(client, args, patience));
      await assert.rejects(client.lock(mutex, { signal: AbortSignal.abort(7) }), (err) => err === 7);
      await sleep(20);
      assert.deepEqual(sent, []);
    });

    test("watch does not miss a notice while its consumer works", async () => {
      const stop = new AbortController();
      const inner = innerOf(client);
      const { noticed, send } = inner;
      let notices = 0;
      let requests = 0;
      inner.noticed = (channel) => (notices++, noticed.call(client, channel));
      inner.send = (args, patience) => (requests++, send.call(client, args, patience));
      const watching = client.watch(mutex, { signal: stop.signal });
      await watching.next();
      const change = watching.next();
      await subscribed(`simba-events:{${mutex}}`);
      const lock = await other.lock(mutex, { id: "a" });
      const { value } = await change;
      assert.deepEqual([value.owner?.id, value.event], ["a", "acquired"]);
      await eventually(() => notices === 1);
      await lock.release();
      await eventually(() => notices === 2);
      requests = 0;
      const released = watching.next();
      await new Promise(setImmediate);
      assert.equal(requests, 1); // it asks now, and does not wait for the next poll
      assert.equal((await released).value.event, "released");
      stop.abort();
      await assert.rejects(watching.next());
    });

    test("a late reply to a renewal does not shorten the lease", async () => {
      const lock = await client.lock(mutex);
      const inner = lock as unknown as { until: number; sent: number; renewed(reply: object, sent: number): void };
      const { until, sent } = inner;
      inner.renewed({ transition: 12_000 }, sent - 5000);
      assert.equal(inner.until, until);
      await lock.release();
    });

    test("a logger that throws stops nothing", async () => {
      const fail = (): never => assert.fail("the logger");
      const loud = new Client(variant.make(server.port), { logger: { warn: fail, error: fail } });
      const lock = await loud.lock(mutex);
      await subscribed(`simba:{${mutex}}`);
      await other.ask("SIMBA.BREAK", mutex);
      await aborted(lock.signal);
      let runs = 0;
      await loud.lead(mutex, () => (++runs < 2 ? assert.fail("work") : final()));
      await loud.close();
    });

    test("a server that is away is waited for, but not by tryLock", async () => {
      proxy.close();
      const away = new Client(variant.make(proxy.port), { logger: quiet, timeout: 300 });
      await assert.rejects(away.tryLock(mutex), UnavailableError);
      await assert.rejects(away.lock(mutex, { wait: 200 }), UnavailableError);
      await assert.rejects(away.owner(mutex), UnavailableError);
      await away.close();
    });

    test("check is right after a suspension", async (t) => {
      const lock = await client.lock(mutex);
      const { uptime } = os;
      slept += 60; // more than in the tests before, since the clock never goes back
      t.mock.method(os, "uptime", () => uptime() + slept);
      const { now } = Date;
      t.mock.method(Date, "now", () => now() + slept * 1000);
      assert.ok(!lock.check());
      await assert.rejects(lock.release(), LostError);
    });
  });
}
