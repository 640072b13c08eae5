// Runs the steps of the list of cases: JSON lines on stdin and stdout, logs on stderr. A request names
// what to do, and its reply has its id. Requests run at the same time. `npm run build && npm run build:test`
// makes build/agent.js.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import * as simba from "simba-resp";

interface Request {
  id: number;
  do: string;
  url: string;
  ca?: string;
  protocol?: 2 | 3;
  variant?: string;
  sentinel?: string;
  timeout?: number;
  ttl?: number;
  grace?: number;
  mutex: string;
  as: string;
  id_of?: string;
  limit?: number;
  work?: number;
  period: number;
  token: number;
  ms: number;
}

const cancelled = new Error("cancelled by stop");
const locks = new Map<string, simba.Lock>();
const held = new Map<string, simba.Lock>();
const stops = new Map<string, AbortController>();
let client: simba.Client;

const print = (line: object): void => {
  const at = Number(process.hrtime.bigint() / 1000n); // on the clock of all processes of the machine
  process.stdout.write(JSON.stringify({ ...line, at }) + "\n");
};
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const log = (level: string) => (message: string, details: object) => console.error(level, message, details);

// open makes a Client. The package uses only the options of the given client, so it need not connect.
async function open(r: Request): Promise<simba.Client> {
  const { hostname: host, port, username, password, protocol } = new URL(r.url);
  const user = { ...(username && { username }), ...(password && { password }) };
  const ca = r.ca ? readFileSync(r.ca) : undefined;
  const secure = protocol === "rediss:";
  const sentinels = (r.sentinel ?? "").split(",").filter(Boolean).map((address) => {
    const [name, number] = address.split(":");
    return { host: name!, port: Number(number) };
  });
  const { timeout, ttl, grace } = r;
  const options = { timeout, ttl, grace, logger: { warn: log("WARN"), error: log("ERROR") } };
  if (r.variant?.startsWith("ioredis")) {
    const { Redis } = (await import(r.variant)) as typeof import("ioredis");
    const redis = new Redis({
      ...user,
      ...(sentinels.length > 0 ? { sentinels, name: "simba" } : { host, port: Number(port) }),
      ...(secure && { tls: ca ? { ca } : {} }),
      ...{ protocol: r.protocol ?? 2 }, // ioredis 5 knows only RESP2
      lazyConnect: true,
    });
    redis.on("error", log("ioredis"));
    return new simba.Client(redis, options);
  }
  const { createClient } = await import("redis");
  const to = (host: string, port: number) =>
    createClient({
      ...user,
      RESP: r.protocol ?? 2,
      socket: secure ? { tls: true, host, port, ...(ca && { ca }) } : { host, port },
    });
  if (sentinels.length === 0) return new simba.Client(to(host, Number(port)), options);
  // node-redis has another class for Sentinel. So a function asks the sentinels for the leader.
  return new simba.Client(async () => {
    for (const { host, port } of sentinels) {
      const sentinel = createClient({ socket: { host, port, reconnectStrategy: false } });
      sentinel.on("error", () => undefined);
      try {
        await sentinel.connect();
        const [leader, at] = await sentinel.sendCommand<string[]>(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "simba"]);
        return to(leader!, Number(at));
      } catch {
        continue;
      } finally {
        if (sentinel.isOpen) sentinel.destroy();
      }
    }
    throw new Error("no sentinel answers");
  }, options);
}

// contendOptions returns the options of a call that stop can cancel.
function contendOptions(r: Request): simba.LockOptions {
  const stop = new AbortController();
  stops.set(r.as, stop);
  return { id: r.id_of, ttl: r.ttl, grace: r.grace, wait: r.limit, signal: stop.signal };
}

function keep(as: string, lock: simba.Lock): object {
  locks.set(as, lock);
  held.set(as, lock);
  lock.signal.addEventListener("abort", () => print({ event: "lost", as }));
  return { token: lock.token, id: lock.id };
}

// aborted resolves when the signal fires.
const aborted = (signal: AbortSignal): Promise<unknown> =>
  new Promise((resolve) => (signal.aborted ? resolve(undefined) : signal.addEventListener("abort", resolve)));

const actions: Record<string, (r: Request) => Promise<object>> = {
  open: async (r) => {
    client = await open(r);
    return {};
  },
  lock: async (r) => keep(r.as, await client.lock(r.mutex, contendOptions(r))),
  try_lock: async (r) => keep(r.as, await client.tryLock(r.mutex, contendOptions(r))),
  unlock: async ({ as }) => {
    await held.get(as)!.release();
    return {};
  },
  held: async ({ as }) => ({ held: locks.get(as)?.check() ?? false }),
  lead: async (r) => {
    await client.lead(
      r.mutex,
      async (tenure) => {
        locks.set(r.as, tenure);
        print({ event: "begin", as: r.as, token: tenure.token, id: tenure.id });
        await Promise.race([aborted(tenure.signal), ...(r.work === undefined ? [] : [sleep(r.work)])]);
        print({ event: "end", as: r.as, lost: tenure.signal.reason instanceof simba.LostError });
      },
      contendOptions(r),
    );
    return {};
  },
  every: async (r) => {
    await client.every(
      r.mutex,
      r.period,
      (tenure) => {
        locks.set(r.as, tenure);
        print({ event: "run", as: r.as, token: tenure.token });
      },
      contendOptions(r),
    );
    return {};
  },
  watch: async (r) => {
    for await (const { owner } of client.watch(r.mutex, contendOptions(r))) {
      print({ event: "owner", as: r.as, owner: owner?.id ?? "", token: owner?.token ?? 0 });
    }
    return {};
  },
  stop: async ({ as }) => {
    stops.get(as)?.abort(cancelled);
    return {};
  },
  owner: async ({ mutex }) => {
    const owner = await client.owner(mutex);
    return { owner: owner?.id ?? "", token: owner?.token ?? 0 };
  },
  check: async ({ mutex, token }) => ({ holds: await client.check(mutex, token) }),
  block: async ({ ms }) => {
    for (const end = performance.now() + ms; performance.now() < end; );
    return {};
  },
  close: async () => {
    await client.close();
    return {};
  },
};

function nameOf(err: unknown): string {
  if (err === cancelled) return "cancelled";
  if (err instanceof simba.NotAcquiredError) return "not_acquired";
  if (err instanceof simba.LostError) return "lost";
  if (err instanceof simba.UnavailableError) return "unavailable";
  if (err instanceof simba.InUseError) return "in_use";
  if (err instanceof simba.ClosedError) return "closed";
  return err instanceof RangeError || err instanceof TypeError ? "argument" : "refused";
}

async function answer(r: Request): Promise<void> {
  try {
    const action = actions[r.do];
    if (!action) throw new TypeError(`unknown request ${r.do}`);
    print({ id: r.id, ok: await action(r) });
  } catch (err) {
    print({ id: r.id, error: nameOf(err), text: String(err) });
  }
  if (r.do === "close") input.close();
}

process.on("unhandledRejection", (err) => {
  console.error("unhandled rejection", err);
  process.exit(70);
});
const input = createInterface({ input: process.stdin });
input.on("close", () => setTimeout(() => process.exit(), 1000).unref());
input.on("line", (line) => void answer(JSON.parse(line) as Request));
