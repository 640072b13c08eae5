/**
 * Locks, leadership and periodic work on the mutexes of a simba-resp server.
 *
 * @packageDocumentation
 */
export { Client, final } from "./client.js";
export type { ClientOptions, ContendOptions, LockOptions, Logger, Work } from "./client.js";
export type { Redis, RedisClient } from "./connections.js";
export * from "./errors.js";
export type { Lock, Owner } from "./lock.js";
export type { State } from "./watch.js";
