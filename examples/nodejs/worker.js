// A job worker. If several processes run it, only the owner of the lock works.
//
// Start a server with `make run`, and this program in two other terminals:
//
//	npm ci
//	node worker.js
//
// End the working process with Ctrl-C or kill -9, and the other begins to work.
import { randomUUID } from "node:crypto";
import { parseArgs } from "node:util";
import { Redis } from "ioredis";
import { Lock, NotOwner } from "./lock.js";
import { LockMachine } from "./lock-machine.js";

const { values: options } = parseArgs({
  options: {
    addr: { type: "string", default: "127.0.0.1:7379" },
    mutex: { type: "string", default: "worker" },
    id: { type: "string", default: randomUUID() },
    ttl: { type: "string", default: "3000" }, // TTL in ms; a transition window of 1 s follows
  },
});
const workerId = options.id;

const redis = new Redis(`redis://${options.addr}`, {
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  retryStrategy: (attempt) => Math.min(attempt * 100, 1000),
});
redis.on("error", (err) => console.error("Redis:", err.message || err.code));

const lock = new Lock(redis, { mutex: options.mutex, contender: workerId, ttl: Number(options.ttl), transition: 1000 });

// consumeResource does a piece of work each second. Before each piece it checks that it still owns
// the lock. A real program sends the token with each change, and the resource refuses a token that
// is smaller than the largest so far.
let working;
function consumeResource() {
  const piece = () => {
    if (lock.held()) console.log("Doing some heavy work...", { workerId });
  };
  piece();
  working = setInterval(piece, 1000);
}
function stopConsumingResource() {
  clearInterval(working);
}

const machine = new LockMachine({
  acquireLock: async () => {
    console.log("Trying to acquire lock", { workerId });
    await lock.acquire();
  },
  startWork: async () => {
    console.log(`Lock acquired. Starting work with token ${lock.token}`, { workerId });
    consumeResource();
  },
  renewalIsDue: (signal) => lock.due(signal),
  renewLock: (signal) => lock.renew(signal),
  stopWork: async () => {
    console.log("Stop work", { workerId });
    stopConsumingResource();
  },
  waitForTurn: (signal) => lock.turn(signal),
  releaseLock: async () => {
    if (await lock.release()) console.log("Lock released", { workerId });
  },
});
machine.on("failed", (state, err) => {
  if (err instanceof NotOwner) console.log("Waiting for the lock:", err.message);
  else console.error(`Failed while ${state}:`, err.message);
});
machine.start();

for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, async () => {
    await machine.stop();
    lock.close();
    redis.disconnect();
  });
}
