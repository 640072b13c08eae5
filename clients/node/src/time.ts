import os from "node:os";
import { UnavailableError } from "./errors.js";

const longestTimer = 2 ** 31 - 1;

// How far the boot clock is ahead of the monotonic clock, in milliseconds, and when that was read.
let ahead = process.platform === "linux" ? -Infinity : 0;
let wallAhead = 0;
let readAt = -Infinity;

/**
 * now returns milliseconds on a clock that nobody can set, and that also runs while the machine is
 * suspended. The monotonic clock of Linux stands still then, but the server's clock may run on.
 *
 * /proc/uptime counts a suspension, but has steps of 10 ms and is a file. So now reads it only once
 * a second, and when the wall clock has moved otherwise than the monotonic clock, as it does in a
 * suspension. Other systems have only the monotonic clock.
 */
export function now(): number {
  const monotonic = performance.now();
  const wall = Date.now() - monotonic;
  if (ahead !== 0 && (monotonic - readAt > 1000 || Math.abs(wall - wallAhead) > 5)) {
    readAt = monotonic;
    wallAhead = wall;
    // A delay between the two readings makes the result too small, so it never falls. After a
    // suspension the step counts as passed, so that a lease never seems to last longer.
    const read = os.uptime() * 1000 - performance.now();
    ahead = Math.max(ahead, ahead !== -Infinity && read > ahead + 20 ? read + 10 : read);
  }
  return monotonic + ahead;
}

/**
 * race settles as the promise does, or as late does after ms milliseconds, or rejects with the reason
 * of the signal. If the event loop was blocked, the replies that have arrived meanwhile come first.
 */
function race<T, L>(ms: number, promise: Promise<T> | undefined, signal: AbortSignal | undefined, late: () => L | Promise<L>): Promise<T | L> {
  return new Promise((resolve, reject) => {
    let over = false;
    const settle = (f: () => void): void => {
      if (over) return;
      over = true;
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      f();
    };
    const abort = (): void => settle(() => reject(signal?.reason));
    const timer = setTimeout(() => setImmediate(settle, () => resolve(late())), Math.min(ms, longestTimer));
    promise?.then((value) => settle(() => resolve(value)), (err) => settle(() => reject(err)));
    signal?.addEventListener("abort", abort);
    if (signal?.aborted) abort();
  });
}

/** within settles as the promise, or rejects with an UnavailableError after ms milliseconds. */
export const within = <T>(ms: number, promise: Promise<T>, signal?: AbortSignal): Promise<T> =>
  race<T, never>(ms, promise, signal, async () => {
    throw new UnavailableError("the server does not reply in time");
  });

/** sleep resolves after ms milliseconds, or earlier as wake does. Its timer keeps the process alive. */
export const sleep = <T>(ms: number, signal?: AbortSignal, wake?: Promise<T>): Promise<T | undefined> =>
  race(ms, wake, signal, () => undefined);
