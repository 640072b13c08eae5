import type { Client, ContendOptions } from "./client.js";
import { ClosedError, isFinal, isRefusal, LostError, NotAcquiredError, UnavailableError } from "./errors.js";
import { now, sleep, within } from "./time.js";
import type { Wait } from "./waits.js";

/** An Owner is the owner of a mutex, as the server has reported it. */
export interface Owner {
  /** The contender's id. */
  readonly id: string;
  /** The fencing token of its tenure. */
  readonly token: number;
  /** How long the TTL window lasted when the server replied, in milliseconds. */
  readonly ttl: number;
  /** How long both windows together lasted when the server replied, in milliseconds. */
  readonly transition: number;
}

/** A Reply is the reply to ACQUIRE and GUARD, or an outcome of NEXT. */
export interface Reply extends Omit<Owner, "id"> {
  /** The number of the request, if NEXT will return its outcome. */
  readonly request?: number | null;
  readonly status: "acquired" | "renewed" | "queued" | "busy" | "lost" | "timeout";
  /** The owner's id; "" if there is none. */
  readonly owner: string;
}

/** fieldsOf returns a record, which is a map in RESP3, and a list of names and values in RESP2. */
export function fieldsOf(reply: unknown): Record<string, unknown> {
  if (!Array.isArray(reply)) return reply as Record<string, unknown>;
  const fields: Record<string, unknown> = {};
  for (let i = 0; i + 1 < reply.length; i += 2) fields[String(reply[i])] = reply[i + 1];
  return fields;
}

export const ownerOf = ({ owner, token, ttl, transition }: Reply): Owner | undefined =>
  owner ? { id: owner, token, ttl, transition } : undefined;

const asyncDispose: typeof Symbol.asyncDispose = Symbol.asyncDispose ?? Symbol.for("asyncDispose");
const retryPause = 100; // doubles with each request that brings nothing, up to the TTL or retryPauseMax
const retryPauseMax = 2000;
const askAgain = 60_000; // how long a contender waits for an outcome before it asks again
// A tenure subscribes to notices when it has lasted so long. It needs them only to learn at once that
// an administrator has broken it, which is not worth a subscription in a short tenure.
const subscribeAfter = 800;

/**
 * A Lock is one unbroken ownership of a mutex by this process. A caller of lock without a function must
 * release it.
 *
 *     asking ──acquired──► held ──► lost: expired, or the server says so
 *      ▲ │ queued            └────► released
 *      │ ▼
 *     waiting: for the outcome by SIMBA.NEXT, or, if there is none, for the next request
 *
 * The lease ends here no later than at the server: it counts from before its request was sent, and is
 * given up 1 % before its end.
 */
export class Lock implements AsyncDisposable {
  /** The contender's id. */
  readonly id: string;
  /** The fencing token. It is larger than that of every earlier tenure of the mutex. */
  readonly token: number = 0;
  /** @internal When the tenure began. */ readonly began: number = 0;
  /** @internal When to renew. */ due = 0;
  /** @internal Its release has begun. */ leaving = false;
  /** @internal It is released when the function of a call ends, and not earlier. */ works = false;
  /** @internal why returns the error of a contender that has not acquired the mutex. */
  why: () => unknown = () => new UnavailableError("the server has not replied");
  private pause = retryPause; // before the next request
  private controller: AbortController | undefined; // made when it is needed, since it is slow to make
  private aborted: { reason: unknown } | undefined;
  private state: "asking" | "held" | "lost" | "released" = "asking";
  private loss: LostError | undefined;
  private sent = 0; // when the request for the present lease was sent
  private until = 0; // when the owner gives the lease up
  private keeps: "nothing" | "wait" | "unknown" = "nothing"; // what the server has for the contender
  private wait: Wait | undefined; // of the last request, if its outcome comes
  private flying: Promise<unknown> = Promise.resolve(); // settles with the last request
  private giving: Promise<Error | undefined> | undefined;

  /** @internal */
  constructor(private readonly client: Client, readonly mutex: string, private readonly options: ContendOptions) {
    this.id = options.id ?? "";
  }

  /**
   * A signal that fires when the mutex is lost, with a LostError as its reason, or the Client is
   * closed. That of a function fires, too, when the signal of the call fires. It can fire only while
   * the event loop runs.
   */
  get signal(): AbortSignal {
    this.controller ??= new AbortController();
    if (this.aborted) this.controller.abort(this.aborted.reason);
    return this.controller.signal;
  }

  /**
   * check reports whether this process still owns the mutex. It asks no server but reads a clock, so
   * it is right at once after a freeze of the process or work that has blocked the event loop.
   */
  check(): boolean {
    if (this.state === "held" && this.until <= now()) this.lose();
    return this.state === "held";
  }

  private windows(): [ttl: number, grace: number] {
    return [this.options.ttl ?? this.client.ttl, this.options.grace ?? this.client.grace];
  }

  /** @internal acquire asks until it owns the mutex. If it is patient, a refusal does not end that. */
  async acquire(stop: AbortSignal, once: boolean, patient: boolean): Promise<this> {
    try {
      for (this.pause = retryPause; ; this.pause = Math.min(2 * this.pause || retryPause, this.windows()[0], retryPauseMax)) {
        try {
          if (await this.round(stop, once)) return this;
        } catch (err) {
          if (stop.aborted || once || err instanceof ClosedError || !(patient || err instanceof UnavailableError)) throw err;
          this.why = () => err;
          this.client.note(this.mutex, err);
        }
        await sleep(this.pause * (0.5 + Math.random()), stop);
      }
    } catch (err) {
      this.giveUp();
      throw err;
    } finally {
      this.client.waits.remove(this.wait);
    }
  }

  /** round sends one request, and waits for its outcome. It reports whether the tenure has begun. */
  private async round(stop: AbortSignal, once: boolean): Promise<boolean> {
    const { client } = this;
    const { waits, timeout } = client;
    stop.throwIfAborted();
    if (!this.id) Object.assign(this, { id: await within(timeout, client.newId(), stop) });
    client.enter(this);
    const unbound = !waits.bound;
    let sent = now();
    let reply = await this.request(stop, once);
    if (reply.status === "busy") throw this.why();
    if (reply.status === "queued" && !reply.request) {
      await within(2 * timeout, waits.open(), stop);
      if (unbound && waits.bound) this.pause = 0;
      return false;
    }
    this.pause = retryPause;
    if (reply.status === "queued") {
      const outcome = await sleep(askAgain, stop, this.wait!.outcome);
      if (outcome instanceof Error) throw outcome;
      if (outcome?.status !== "acquired") return false;
      reply = outcome;
      if (now() - sent > reply.transition / 3) {
        sent = now(); // the lease counts from the ACQUIRE, and may be over
        reply = await within(timeout, this.ask("GUARD", ["TOKEN", `${reply.token}`]), stop);
      }
    }
    stop.throwIfAborted();
    return (reply.status === "acquired" || reply.status === "renewed") && this.begin(reply, sent);
  }

  /** request sends an ACQUIRE. Even if the server does not know the waiter, the contender gets its place. */
  private async request(stop: AbortSignal, once: boolean): Promise<Reply> {
    const { waits, timeout } = this.client;
    waits.remove(this.wait);
    const wait = (this.wait = once ? undefined : waits.add());
    const before = this.keeps;
    this.keeps = "unknown";
    const answered = (reply: Reply): Reply => {
      this.keeps = reply.status === "busy" ? "nothing" : reply.request ? "wait" : "unknown";
      return reply;
    };
    const failed = (err: unknown): never => {
      if (isRefusal(err)) this.keeps = before;
      throw err;
    };
    const how = wait ? ["WAIT", "0", "VIA", wait.waiter, "REQUEST", `${wait.n}`] : ["NOQUEUE"];
    const asking = this.ask("ACQUIRE", how).then(answered, failed);
    this.flying = asking.catch(() => undefined);
    const reply = await within(timeout, asking, stop);
    if (!reply.request) waits.remove(wait);
    this.why = () => new NotAcquiredError(this.mutex, ownerOf(reply));
    return reply;
  }

  private begin(reply: Reply, sent: number): boolean {
    this.renewed(reply, sent);
    if (this.until <= now()) throw new UnavailableError("the reply took longer than the lease");
    this.state = "held";
    Object.assign(this, { token: reply.token, began: now() });
    this.client.wakeAt(Math.min(this.due, now() + subscribeAfter));
    return true;
  }

  /** ask sends a request with both windows. If the server refuses default windows, they get shorter. */
  private async ask(verb: string, more: string[], patience = this.client.timeout): Promise<Reply> {
    const { client, options } = this;
    const [ttl, grace] = this.windows();
    try {
      const args = [`SIMBA.${verb}`, this.mutex, this.id, `${ttl}`, "TRANSITION", `${grace}`, ...more];
      return fieldsOf(await client.wire.send(args, patience)) as unknown as Reply;
    } catch (err) {
      const longest = Number(/^TOOLONG (\d+) /.exec((err as Error).message)?.[1]);
      if (options.ttl !== undefined || options.grace !== undefined || !client.shorten(longest, ttl + grace)) throw err;
      return this.ask(verb, more, patience);
    }
  }

  private renewed(reply: Reply, sent: number): void {
    const [ttl, grace] = this.windows();
    const length = Math.min(ttl + grace, reply.transition);
    this.sent = sent;
    this.due = sent + Math.min(ttl, length) / 3;
    this.until = sent + length - Math.min(length / 100, 250);
  }

  /** @internal act does what is due, adds the channel that it needs, and returns when the next thing is due. */
  act(time: number, want: Set<string>): number {
    if (!this.check()) return Infinity;
    const old = time - this.began >= subscribeAfter;
    if (old) want.add(`simba:{${this.mutex}}`);
    if (time >= this.due) {
      // A third of what is left, so that there is time to try again by another connection.
      const patience = Math.max(1, Math.min(this.client.timeout, (this.until - time) / 3));
      this.due = time + patience;
      void this.renew(patience);
    }
    return Math.min(this.due, this.until, old ? Infinity : this.began + subscribeAfter);
  }

  private async renew(patience: number): Promise<void> {
    const sent = now();
    try {
      const reply = await this.ask("GUARD", ["TOKEN", `${this.token}`], patience);
      if (reply.status === "lost") this.lose(reply.owner);
      else if (sent >= this.sent) this.renewed(reply, sent);
    } catch (err) {
      if (sent < this.sent || this.state !== "held") return; // a later renewal has succeeded
      this.client.note(this.mutex, err);
      this.due = Math.min(this.due, now() + Math.max(10, (this.until - now()) / 8));
    }
    this.client.wakeAt(this.due);
  }

  private lose(owner = ""): void {
    if (this.state !== "held") return;
    this.state = "lost";
    this.loss = this.lost();
    this.client.logger.warn("mutex lost", { mutex: this.mutex, contender: this.id, token: this.token, owner });
    this.abort(this.loss);
    if (!this.works) void this.gone();
  }

  private readonly lost = (): LostError => new LostError(`mutex ${this.mutex} lost: another contender may own it`);

  /** @internal abort makes the signal fire. The tenure may last. */
  readonly abort = (reason: unknown): void => {
    this.aborted ??= { reason };
    this.controller?.abort(reason);
  };

  /** @internal close ends the tenure because the Client is closed. A function releases it when it ends. */
  close(): void {
    if (this.works || this.state !== "held") return;
    this.abort(new ClosedError());
    this.release().catch(() => undefined);
  }

  /**
   * release releases the mutex. It rejects with a LostError if the mutex was lost before, and with an
   * UnavailableError if the server does not reply in time. Then the release goes on in the background
   * until the lease is over. A second call returns the result of the first.
   */
  async release(): Promise<void> {
    if (this.check()) this.state = "released";
    const gone = this.gone();
    const failure = this.loss ?? (await within(this.client.timeout, gone));
    if (failure) throw failure;
  }

  /** @internal free releases the mutex, and logs what fails. It rejects only with a LostError. */
  async free(): Promise<void> {
    await this.release().catch((err: unknown) => {
      if (err instanceof LostError) throw err;
      this.client.note(`${this.mutex} is free when its lease ends: RELEASE`, err);
    });
  }

  readonly [asyncDispose] = (): Promise<void> => this.free();

  /** gone releases the tenure once. It resolves when the server has nothing for it, or has refused. */
  private gone(): Promise<Error | undefined> {
    return (this.giving ??= this.giveBack(async () => ["TOKEN", `${this.token}`]));
  }

  /** giveUp releases what the server may keep for a contender without a tenure. It never rejects. */
  private giveUp(): void {
    if (this.keeps === "nothing") this.client.leave(this);
    else void this.giveBack(() => this.kept());
  }

  /**
   * kept returns what the RELEASE of a contender without a tenure names. Nobody else has an id that the
   * Client has made. An id of the caller may have a later tenure, which a late RELEASE must not end.
   */
  private async kept(): Promise<string[] | undefined> {
    const { client, wait } = this;
    await this.flying; // a RELEASE must not overtake it
    if (this.options.id === undefined) return [];
    if (this.keeps === "wait" && wait?.waiter === client.waits.bound) return ["VIA", wait.waiter, "REQUEST", `${wait.n}`];
    const owner = await client.owner(this.mutex);
    return owner?.id === this.id ? ["TOKEN", `${owner.token}`] : undefined;
  }

  /** giveBack repeats a release until the server replies, or the lease would be over. */
  private async giveBack(what: () => Promise<string[] | undefined>): Promise<Error | undefined> {
    this.leaving = true;
    const [ttl, grace] = this.windows();
    let failure: Error | undefined;
    for (const over = now() + ttl + grace; ; await sleep(retryPause * (1 + 9 * Math.random()))) {
      try {
        const args = await what();
        const released = args && (await this.client.wire.send(["SIMBA.RELEASE", this.mutex, this.id, ...args]));
        // After a request without a reply, 0 can mean that it has released the mutex.
        failure = released === 0 && !failure && this.token ? this.lost() : undefined;
        break;
      } catch (err) {
        failure = err as Error;
        if (isFinal(err) || now() > over) break;
      }
    }
    this.client.leave(this);
    return failure;
  }
}
