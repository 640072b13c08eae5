// Sends a request every 20 ms to the leader that Sentinels name. Arguments: host:port,… and a key. It
// prints a line for each request: when it began and ended, in nanoseconds since 1970, and "ok" or the
// error.
import Redis from "ioredis";

const [, , sentinels, key] = process.argv;
const delay = (times) => Math.min(times * 50, 500);
// Without failoverDetector: with it, a client ends for good if it is connecting when it hears of the
// new leader.
const redis = new Redis({
  name: "simba",
  sentinels: sentinels.split(",").map((address) => {
    const [host, port] = address.split(":");
    return { host, port: Number(port) };
  }),
  retryStrategy: delay,
  sentinelRetryStrategy: delay,
});
redis.on("error", () => {}); // the request fails too

const now = () => BigInt(Math.round((performance.timeOrigin + performance.now()) * 1000)) * 1000n;
for (;;) {
  const from = now();
  let result = "ok";
  try {
    await redis.set(key, "ioredis", "PX", 600_000);
  } catch (err) {
    result = String(err).replaceAll("\n", " ");
  }
  console.log(`${from} ${now()} ${result}`);
  await new Promise((resolve) => setTimeout(resolve, 20));
}
