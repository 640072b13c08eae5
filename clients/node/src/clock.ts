import os from "node:os";
import { UnavailableError } from "./errors.js";

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
 * within returns what the promise brings, or rejects with an UnavailableError after ms milliseconds.
 * If the event loop was blocked, it first delivers the replies that have arrived meanwhile.
 */
export function within<T>(ms: number, promise: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const late = (): void => reject(new UnavailableError("the server does not reply in time"));
    const timer = setTimeout(() => setImmediate(late), ms);
    const settle = <V>(f: (value: V) => void) => (value: V): void => {
      clearTimeout(timer);
      f(value);
    };
    promise.then(settle(resolve), settle(reject));
  });
}

/** rest resolves after ms milliseconds, and does not keep the process alive. */
export const rest = (ms: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, ms).unref());
