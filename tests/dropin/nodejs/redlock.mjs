// Workers that use the npm package redlock.
import assert from "node:assert";
import Redlock, { ExecutionError } from "redlock";
import { redis, mutex } from "./redis.mjs";
import { runWorkers } from "./workers.mjs";
import { setTimeout as sleep } from "node:timers/promises";

const LEASE = 60_000; // the package counts it from before it waits

const redlock = new Redlock([redis], { retryCount: -1, retryDelay: 20, retryJitter: 10 });
const once = { retryCount: 0 };
const own = `${mutex}:${process.pid}`; // keys of this process

// Two resources are locked together or not at all.
const both = await redlock.acquire([`${own}:a`, `${own}:b`], LEASE);
await assert.rejects(redlock.acquire([`${own}:b`], LEASE, once), ExecutionError);
await assert.rejects(redlock.acquire([`${own}:c`, `${own}:a`], LEASE, once), ExecutionError);
assert.equal(await redis.exists(`${own}:c`), 0);
await both.release();
assert.equal(await redis.exists(`${own}:a`, `${own}:b`), 0);
await assert.rejects(redlock.release(both, once), ExecutionError);

// A lock is extended by itself for as long as the routine takes.
await redlock.using([`${own}:long`], 2500, { automaticExtensionThreshold: 2300 }, async (signal) => {
  await sleep(3000);
  assert.equal(signal.aborted, false);
  assert.ok((await redis.pttl(`${own}:long`)) > 0);
});
assert.equal(await redis.exists(`${own}:long`), 0);

await runWorkers(() => {
  let lock;
  return {
    async acquire() {
      lock = await redlock.acquire([mutex], LEASE);
      return lock.value;
    },
    async check() {
      await assert.rejects(redlock.acquire([mutex], LEASE, once), ExecutionError);
      await redis.pexpire(mutex, LEASE / 2);
      lock = await lock.extend(LEASE);
      assert.ok((await redis.pttl(mutex)) > LEASE / 2);
    },
    async release() {
      await lock.release();
    },
  };
});
