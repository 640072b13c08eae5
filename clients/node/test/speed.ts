// Compares lock and release with the raw commands by the same Redis client, by turns. Arguments: the
// seconds of each turn, and how many loops run at the same time.
import { Client, type RedisClient } from "simba-resp";
import { startServer } from "./server.js";
import { variants } from "./variants.js";

const seconds = Number(process.argv[2] ?? 2);
const loops = Number(process.argv[3] ?? 1);
const turns = 5;

interface Raw extends RedisClient {
  connect(): Promise<unknown>;
  call?(...args: string[]): Promise<unknown>;
  sendCommand(args: string[]): Promise<unknown>;
  disconnect(): unknown;
}

async function rate(pair: (loop: number) => Promise<unknown>): Promise<number> {
  let pairs = 0;
  const end = performance.now() + seconds * 1000;
  const loop = async (_: unknown, i: number): Promise<void> => {
    for (; performance.now() < end; pairs++) await pair(i);
  };
  await Promise.all(Array.from({ length: loops }, loop));
  return pairs / seconds;
}

const median = (all: number[]): number => all.sort((a, b) => a - b)[all.length >> 1]!;
const server = await startServer();
for (const variant of variants) {
  const redis = variant.make(server.port) as Raw;
  await redis.connect();
  const send = (...args: string[]) => (redis.call ? redis.call(...args) : redis.sendCommand(args));
  const client = new Client(redis);
  const raw = async (i: number): Promise<void> => {
    await send("SIMBA.ACQUIRE", `raw${i}`, "me", "10000", "TRANSITION", "2000", "NOQUEUE");
    await send("SIMBA.RELEASE", `raw${i}`, "me");
  };
  const lock = async (i: number): Promise<void> => (await client.lock(`lock${i}`)).release();
  const rates: [number[], number[]] = [[], []];
  for (let turn = 0; turn <= turns; turn++) {
    const both = [await rate(raw), await rate(lock)];
    if (turn > 0) both.forEach((n, i) => rates[i]!.push(n)); // the first turn warms up
  }
  const [before, ours] = rates.map(median) as [number, number];
  console.log(`${variant.name}: raw ${before.toFixed(0)}/s, lock ${ours.toFixed(0)}/s, ${(ours / before).toFixed(2)}`);
  await client.close();
  redis.disconnect();
}
await server.kill();
