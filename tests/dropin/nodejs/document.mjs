// Workers that use the document's functions.
import assert from "node:assert";
import { redis, mutex } from "./redis.mjs";
import { acquireLock, renewLock } from "./lock.mjs"; // lock.ts without its types
import { retry, runWorkers } from "./workers.mjs";

const SECONDS = 10;

await runWorkers((i) => {
  const id = `worker${process.pid}-${i}`;
  return {
    async acquire() {
      await retry(() => acquireLock(mutex, id, SECONDS));
      return id;
    },
    async check() {
      assert.equal(await acquireLock(mutex, "another", SECONDS), false);
      await assert.rejects(renewLock(mutex, "another", SECONDS), /held by another node/);
      await redis.expire(mutex, SECONDS / 2);
      assert.equal(await renewLock(mutex, id, SECONDS), true);
      assert.ok((await redis.ttl(mutex)) > SECONDS / 2);
    },
    // The document prints no release.
    async release() {
      assert.equal(await redis.get(mutex), id);
      assert.equal(await redis.del(mutex), 1);
    },
  };
});
