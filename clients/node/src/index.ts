/**
 * Locks, leadership and periodic work on the mutexes of a simba-resp server.
 *
 * @packageDocumentation
 */
export { Client, final } from "./client.js";
export type { ClientOptions, ContendOptions, EveryOptions, LockOptions, Logger, Windows, Work } from "./client.js";
export type { IoRedis, NodeRedis, Redis } from "./connections.js";
export { ClosedError, InUseError, LostError, NotAcquiredError, UnavailableError } from "./errors.js";
export type { Lock, Owner } from "./lock.js";
export type { State } from "./watch.js";
