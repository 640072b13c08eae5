import { now, rest } from "./clock.js";
import type { Client } from "./client.js";
import { leaseOf, type Contender } from "./contenders.js";
import { ClosedError, isFinal, LostError } from "./errors.js";
import type { Notice } from "./subscriptions.js";
import type { Reply } from "./wire.js";

// A tenure subscribes to notices when it has lasted so long. It needs them only to learn at once that
// an administrator has broken it, which is not worth a subscription in a short tenure.
const subscribeAfter = 800;
const retryPause = 100;

/** A Tenure is one unbroken ownership of a mutex by this process. */
export interface Tenure {
  readonly mutex: string;
  /** The contender's id. */
  readonly id: string;
  /** The fencing token. It is larger than that of every earlier tenure of the mutex. */
  readonly token: number;
  /**
   * A signal that fires when the mutex is lost, with a LostError as its reason, or the Client is
   * closed. That of a function fires, too, when the signal of the call fires. It can fire only while
   * the event loop runs.
   */
  readonly signal: AbortSignal;
  /**
   * check reports whether this process still owns the mutex. It asks no server but reads a clock, so
   * it is right at once after a freeze of the process or work that has blocked the event loop.
   */
  check(): boolean;
}

/** A Lock is the tenure of a caller, who must release it. */
export interface Lock extends Tenure, AsyncDisposable {
  /**
   * release releases the mutex. It rejects with a LostError if the mutex was lost before, and with an
   * UnavailableError if the server does not reply in time. Then the release goes on in the background
   * until the lease is over. A second call returns the result of the first.
   */
  release(): Promise<void>;
}

const asyncDispose: typeof Symbol.asyncDispose = Symbol.asyncDispose ?? Symbol.for("asyncDispose");

/**
 * A Lease is one tenure of this process, and its lease. It ends no later than the lease at the
 * server: the lease counts from before its request was sent, and is given up 1 % before its end.
 *
 *     lasting ──► lost: expired, or the server says so
 *        └──────► released
 */
export class Lease implements Lock {
  readonly mutex: string;
  readonly id: string;
  readonly began = now();
  private state: "lasting" | "lost" | "released" = "lasting";
  private controller: AbortController | undefined;
  private aborted: { reason: unknown } | undefined;
  private from = 0; // when the request for the present lease was sent
  private length = 0;
  private due = 0; // when to renew
  private noticed = -Infinity; // when verify was called last
  private pause = retryPause;
  private timer: NodeJS.Timeout | undefined;
  private unsubscribe: (() => void) | undefined;
  private giving: Promise<unknown> | undefined;

  /** If auto is set, the release does not wait for work when the mutex is lost or the Client closed. */
  constructor(
    private readonly client: Client,
    private readonly contender: Contender,
    private readonly auto: boolean,
    reply: Reply,
    sent: number,
  ) {
    this.mutex = contender.mutex;
    this.id = contender.id;
    this.token = reply.token;
    this.renewed(reply, sent);
  }

  readonly token: number;

  private renewed(reply: Reply, sent: number): void {
    this.from = sent;
    this.length = Math.min(leaseOf(this.contender), reply.transition);
    this.due = sent + Math.min(this.contender.ttl, this.length) / 3;
  }

  get signal(): AbortSignal {
    this.controller ??= new AbortController();
    if (this.aborted) this.controller.abort(this.aborted.reason);
    return this.controller.signal;
  }

  /** abort makes the signal fire. The tenure may last. */
  readonly abort = (reason: unknown): void => {
    this.aborted ??= { reason };
    this.controller?.abort(this.aborted.reason);
  };

  check(): boolean {
    if (this.state === "lasting" && this.left() <= 0) this.lose();
    return this.state === "lasting";
  }

  /** left is the time until the owner gives the lease up. */
  left(): number {
    return this.from + this.length - Math.min(this.length / 100, 250) - now();
  }

  /** act does what is due, and sets the timer for what is due next. The first call starts that. */
  readonly act = (): void => {
    clearTimeout(this.timer);
    if (!this.check()) return;
    const { client, due } = this;
    const left = this.left();
    const time = now();
    const age = time - this.began;
    if (age >= subscribeAfter) this.unsubscribe ??= client.subscriptions.add(`simba:{${this.mutex}}`, this.notified);
    if (time >= due) {
      // A third of what is left, so that there is time to try again by another connection.
      const patience = Math.max(1, Math.min(client.timeout, left / 3));
      this.due = time + patience;
      void this.renew(left, patience);
    }
    const subscribe = this.unsubscribe ? Infinity : subscribeAfter - age;
    this.timer = setTimeout(this.act, Math.ceil(Math.min(left, this.due - time, subscribe))).unref();
  };

  private async renew(left: number, patience: number): Promise<void> {
    const sent = now();
    try {
      const reply = await this.client.wire.guard(this.contender, this.token, left, patience);
      this.client.answered(this.contender);
      if (reply.status === "lost") return this.lose(reply.owner);
      this.pause = retryPause;
      if (sent >= this.from) this.renewed(reply, sent);
      if (sent < this.noticed) this.due = now(); // a notice has come since
    } catch (err) {
      if (sent < this.from || this.state !== "lasting") return; // a later renewal has succeeded
      this.client.failed(this.contender, err);
      this.due = now() + Math.max(1, Math.min(this.pause, this.left() / 8));
      this.pause = Math.min(2 * this.pause, 2000);
    }
    this.act();
  }

  /** notified asks the server if a notice says that the tenure may be over. */
  private readonly notified = (notice: Notice): void => {
    const ours = notice === `acquired@@${this.id}` || notice === null;
    const another = notice?.startsWith("released@@") && notice !== `released@@${this.id}`;
    if (!ours && !another) this.verify();
  };

  /** verify makes the owner ask the server at once. */
  verify(): void {
    this.noticed = this.due = now();
    this.act();
  }

  private lose(owner = ""): void {
    if (this.state !== "lasting") return;
    this.end("lost");
    const { mutex, id, token } = this;
    this.client.logger.warn("mutex lost", { mutex, contender: id, token, owner });
    this.abort(this.lost());
    if (this.auto) void this.gone();
  }

  private lost(): LostError {
    return new LostError(`mutex ${this.mutex} lost: another contender may own it`);
  }

  private end(state: "lost" | "released"): void {
    this.state = state;
    clearTimeout(this.timer);
    this.unsubscribe?.();
  }

  /** close ends the tenure because the Client is closed. A function releases it when it returns. */
  close(): void {
    if (!this.auto) return;
    this.abort(new ClosedError());
    this.release().catch(() => undefined);
  }

  async release(): Promise<void> {
    if (this.check()) this.end("released");
    const gone = this.gone();
    const failure = this.state === "lost" ? this.lost() : await this.client.within(gone);
    if (failure) throw failure;
  }

  /** free releases the mutex, and logs it if that is not confirmed. It rejects only with a LostError. */
  async free(): Promise<void> {
    await this.release().catch((err: unknown) => {
      if (err instanceof LostError) throw err;
      const details = { mutex: this.mutex, contender: this.id, err };
      this.client.logger.warn("release failed: the mutex is free when its lease ends", details);
    });
  }

  [asyncDispose](): Promise<void> {
    return this.free();
  }

  /**
   * gone releases the mutex, in the background if the server does not reply. It resolves when the server
   * keeps nothing for the tenure, at the latest when the lease is over, with the error if there is one.
   */
  gone(): Promise<unknown> {
    return (this.giving ??= this.giveBack());
  }

  private async giveBack(): Promise<unknown> {
    const { client, contender } = this;
    let first = true;
    const failure = await giveBack(client, contender, async () => {
      const released = await client.wire.release(this.mutex, this.id, this.token).catch((err: unknown) => {
        first = false; // it may have released the mutex
        throw err;
      });
      return released || !first ? undefined : this.lost();
    });
    return failure;
  }
}

/** giveBack repeats a release until the server replies, or the lease would be over. It never rejects. */
export async function giveBack(client: Client, c: Contender, release: () => Promise<unknown>): Promise<unknown> {
  c.leaving = true;
  const end = now() + leaseOf(c);
  let failure: unknown;
  for (let pause = retryPause; ; pause = Math.min(2 * pause, 1000)) {
    try {
      failure = await release();
      break;
    } catch (err) {
      failure = err;
      if (isFinal(err) || now() > end) break;
    }
    await rest(pause);
  }
  client.contenders.remove(c, failure instanceof LostError ? undefined : failure);
  return failure;
}
