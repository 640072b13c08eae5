import os from "node:os";

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

/** Signals are those that can end a call. */
export type Signals = readonly (AbortSignal | undefined)[];

/**
 * onAbort calls f with the reason when a signal fires, until the function that it returns is called. It
 * returns before it calls f.
 */
export function onAbort(signals: Signals, f: (reason: unknown) => void): () => void {
  const abort = (): void => f(signals.find((signal) => signal?.aborted)?.reason);
  for (const signal of signals) signal?.addEventListener("abort", abort);
  if (signals.some((signal) => signal?.aborted)) queueMicrotask(abort);
  return () => signals.forEach((signal) => signal?.removeEventListener("abort", abort));
}

/**
 * within settles as the promise does. After ms milliseconds it rejects with the error that late returns,
 * or resolves without late. A signal that fires rejects it. From 2 ** 31 - 1 ms on, which no timer can
 * last, there is no limit. Its timer keeps the process alive, and stands still while the machine is
 * suspended.
 */
export function within<T>(ms: number, promise: Promise<T>, signals: Signals = [], late?: () => unknown) {
  return new Promise<T>((resolve, reject) => {
    const end = (f: () => void): void => {
      clearTimeout(timer);
      unlink();
      f();
    };
    const expire = (): void => end(() => (late ? reject(late()) : resolve(undefined as T)));
    // It expires after the replies that came while the event loop was blocked.
    const timer = ms < 2 ** 31 - 1 ? setTimeout(setImmediate, ms, expire) : setInterval(() => {}, 2 ** 30);
    const unlink = onAbort(signals, (reason) => end(() => reject(reason)));
    promise.then((value) => end(() => resolve(value)), (err) => end(() => reject(err)));
  });
}

/** sleep resolves after ms milliseconds. A signal that fires rejects it. */
export const sleep = (ms: number, signals?: Signals) => within(ms, new Promise<void>(() => {}), signals);
