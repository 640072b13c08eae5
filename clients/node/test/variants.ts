// The Redis clients that the tests use.
import { Redis } from "ioredis";
import { Redis as Redis6 } from "ioredis6";
import { createClient } from "redis";
import type { RedisClient } from "simba-resp";

export interface Variant {
  name: string;
  /** make returns a client that is not connected. */
  make(port: number): RedisClient;
}

export const variants: Variant[] = [
  { name: "ioredis 5", make: (port) => new Redis(port, { lazyConnect: true }) },
  { name: "ioredis 6", make: (port) => new Redis6(port, { lazyConnect: true }) },
  { name: "node-redis, RESP2", make: (port) => createClient({ socket: { port } }) },
  { name: "node-redis, RESP3", make: (port) => createClient({ RESP: 3, socket: { port } }) },
];
