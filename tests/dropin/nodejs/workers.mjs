// Runs workers that acquire and release one mutex. Writes a line for each tenure: the owner, its
// token, and its begin and end, in nanoseconds of the machine's monotonic clock.
import assert from "node:assert";
import { setTimeout as sleep } from "node:timers/promises";
import { redis, mutex, rounds } from "./redis.mjs";

const WORKERS = 3;
const PAUSE = 20;

// A worker's acquire resolves with the value of its lock. check runs during the tenure.
export async function runWorkers(newWorker) {
  await Promise.all(Array.from({ length: WORKERS }, (_, i) => work(newWorker(i))));
  redis.disconnect();
}

async function work({ acquire, check, release }) {
  for (let n = 0; n < rounds; n++) {
    const owner = await acquire();
    const from = process.hrtime.bigint();
    await check();
    const record = fields(await redis.call("SIMBA.OWNER", mutex));
    assert.equal(record.owner, owner);
    console.log(`${owner} ${record.token} ${from} ${process.hrtime.bigint()}`);
    await release();
    await sleep(PAUSE);
  }
}

// retry calls attempt until it resolves with a true value.
export async function retry(attempt) {
  while (!(await attempt())) await sleep(PAUSE);
}

function fields(reply) {
  const record = {};
  for (let i = 0; i + 1 < reply.length; i += 2) record[reply[i]] = reply[i + 1];
  return record;
}
