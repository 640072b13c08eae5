import { now } from "./clock.js";
import { ClosedError, InUseError } from "./errors.js";
import type { Lease } from "./lease.js";

/** A Contender contends for a mutex, or owns it. Its windows are in milliseconds. */
export interface Contender {
  readonly mutex: string;
  /** "" = not made yet. */
  id: string;
  /** The caller has chosen the id, and may use it again. */
  readonly named: boolean;
  ttl: number;
  grace: number;
  /** The windows are defaults, which may be shortened. */
  readonly fits: boolean;
  /** Its release has begun. */
  leaving: boolean;
  /** Its last request was refused, which is logged. */
  refused: boolean;
  /** The present tenure. */
  lease: Lease | undefined;
}

export const leaseOf = (c: Contender): number => c.ttl + c.grace;
const keyOf = (mutex: string, id: string): string => `${mutex} ${id}`; // a mutex has no white space

/**
 * Contenders are those of a Client. Each is kept from its first request until the server keeps nothing
 * for it.
 */
export class Contenders {
  closed = false;
  /** Why the last release after close has failed. */
  failure: unknown;
  private readonly all = new Map<string, Contender>();
  private empty = (): void => undefined;
  private timer: NodeJS.Timeout | undefined;

  /** add refuses a second one with the same mutex and id, since the server treats the two as one. */
  add(c: Contender): void {
    if (this.closed) throw new ClosedError();
    if (this.all.has(keyOf(c.mutex, c.id))) throw new InUseError(`${c.id} contends for ${c.mutex} already`);
    c.leaving = false;
    c.lease = undefined;
    this.all.set(keyOf(c.mutex, c.id), c);
    this.timer ??= this.watchSuspension();
  }

  get(mutex: string, id: string): Contender | undefined {
    return this.all.get(keyOf(mutex, id));
  }

  /** watchSuspension makes owners ask the server after a suspension, in which timers stand still. */
  private watchSuspension(): NodeJS.Timeout {
    let before = now() - performance.now();
    return setInterval(() => {
      const ahead = now() - performance.now();
      if (this.all.size === 0) this.timer = void clearInterval(this.timer);
      if (ahead > before + 20) for (const { lease } of this.all.values()) lease?.verify();
      before = ahead;
    }, 200).unref();
  }

  remove(c: Contender, failure?: unknown): void {
    this.all.delete(keyOf(c.mutex, c.id));
    if (this.closed) this.failure ??= failure;
    if (this.all.size === 0) this.empty();
  }

  /** close makes add fail, and resolves when there are no contenders left. */
  close(): Promise<void> {
    this.closed = true;
    for (const { lease } of this.all.values()) lease?.close();
    return new Promise((resolve) => {
      this.empty = resolve;
      if (this.all.size === 0) resolve();
    });
  }
}
