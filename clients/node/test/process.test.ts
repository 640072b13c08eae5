// What can only be seen from outside of a process: how it ends, what it can load, and a freeze.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, before, test } from "node:test";
import { startServer, type Server } from "./server.js";

let server: Server;
before(async () => (server = await startServer()));
after(() => server.kill());

/** run runs a program and returns what it prints. It fails if the program does not end in time. */
async function run(program: string, type: "module" | "commonjs", ready?: (pid: number) => void): Promise<string> {
  const child = spawn(process.execPath, [`--input-type=${type}`, "-e", program], { timeout: 20_000 });
  let out = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (out += data));
  if (ready) child.stdout.once("data", () => ready(child.pid!));
  const code = await new Promise((resolve) => child.once("close", resolve));
  assert.equal(code, 0, out);
  return out;
}

const setUp = (): string => `
  import { Redis } from "ioredis";
  import { Client } from "simba-resp";
  const client = new Client(new Redis(${server.port}, { lazyConnect: true }));
`;

test("a program that closes the Client ends by itself", async () => {
  const from = performance.now();
  const out = await run(
    `${setUp()}
    const lock = await client.lock("m");
    await Promise.allSettled([client.lock("m", { wait: 50 }), client.owner("m")]);
    await lock.release();
    await client.close();
    console.log("end");`,
    "module",
  );
  assert.equal(out, "end\n");
  assert.ok(performance.now() - from < 20_000); // an idle connection would last for 30 s
});

test("a call in progress keeps the process alive while the server is away", async () => {
  const out = await run(
    `import { Redis } from "ioredis";
    import { Client } from "simba-resp";
    const client = new Client(new Redis(1, { lazyConnect: true }), { logger: { warn() {}, error() {} } });
    await client.lock("m", { wait: 700 }).catch((err) => console.log(err.name));
    await client.close();`,
    "module",
  );
  assert.equal(out, "UnavailableError\n");
});

test("a leader whose work waits for the signal keeps the process alive in an outage", async () => {
  const lost = await startServer();
  const out = await run(
    `import { Redis } from "ioredis";
    import { Client, final } from "simba-resp";
    const redis = new Redis(${lost.port}, { lazyConnect: true });
    const client = new Client(redis, { ttl: 600, grace: 200, logger: { warn() {}, error() {} } });
    await client.lead("m", async ({ signal }) => {
      console.log("leads");
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      return final(console.log(signal.reason.name));
    });
    await client.close();`,
    "module",
    () => void lost.kill(),
  );
  assert.equal(out, "leads\nLostError\n");
});

test("CommonJS can load the package", async () => {
  const out = await run(
    `const { createClient } = require("redis");
    const { Client } = require("simba-resp");
    const client = new Client(createClient({ url: "redis://127.0.0.1:${server.port}" }));
    client.lock("c").then((lock) => console.log(lock.check())).then(() => client.close());`,
    "commonjs",
  );
  assert.equal(out, "true\n");
});

test("after SIGSTOP beyond the lease, check returns false at once", async () => {
  const out = await run(
    `${setUp()}
    const lock = await client.lock("s", { ttl: 500, grace: 100 });
    let last = Date.now();
    console.log("locked");
    for (;;) {
      const now = Date.now();
      if (now - last > 500) break; // frozen, in the middle of work that blocks the event loop
      last = now;
    }
    console.log(lock.check(), lock.signal.reason.name);
    await lock.release().catch((err) => console.log(err.name));
    await client.close();`,
    "module",
    (pid) => {
      process.kill(pid, "SIGSTOP");
      setTimeout(() => process.kill(pid, "SIGCONT"), 1500);
    },
  );
  assert.match(out, /^locked\nmutex lost.*\n(.*\n)*false LostError\nLostError\n$/);
});
