import type { Client, LockOptions } from "./client.js";
import { isFinal, unavailable } from "./connections.js";
import { LostError, NotAcquiredError, UnavailableError } from "./errors.js";
import { now, sleep, type Signals, within } from "./time.js";

/** An Owner is the owner of a mutex, as the server has reported it. */
export interface Owner {
  /** The contender's id. */
  readonly id: string;
  /** The fencing token of its tenure. */
  readonly token: number;
}

/** A Reply is the reply to ACQUIRE and GUARD, or an outcome of NEXT. */
export interface Reply {
  /** The number of the request, if NEXT will return its outcome. */
  readonly request?: number | null;
  readonly status: "acquired" | "renewed" | "queued" | "busy" | "lost" | "timeout";
  /** The owner's id; "" if there is none. */
  readonly owner: string;
  readonly token: number;
  /** How long both windows together lasted when the server replied, in milliseconds. */
  readonly transition: number;
}

/** fieldsOf returns a record, which is a map in RESP3, and a list of names and values in RESP2. */
export function fieldsOf<T>(reply: unknown): T {
  if (!Array.isArray(reply)) return reply as T;
  const fields: Record<string, unknown> = {};
  for (let i = 0; i + 1 < reply.length; i += 2) fields[String(reply[i])] = reply[i + 1];
  return fields as T;
}

export const ownerOf = ({ owner: id, token }: Reply): Owner | undefined => (id ? { id, token } : undefined);

/**
 * A Kind says how a contender contends: "once" asks once, "patient" goes on after refusals. The tenure of
 * "work" and "patient" is released when the function of a call ends, and not earlier.
 */
export type Kind = "lock" | "once" | "work" | "patient";

const lostError = (mutex: string): Error => new LostError(`mutex ${mutex} lost: another may own it`);
const retryPause = 100; // doubles with each request that fails, up to the TTL or retryPauseMax
const retryPauseMax = 2000;
const givePause = 1000; // at most, between the requests of a release
const pollPause = 300; // a free mutex stays reserved for a second for a waiter that polls
const askAgain = 60_000; // how long a contender waits for an outcome before it asks again
// A tenure subscribes to notices when it has lasted so long. It needs them only to learn at once that
// an administrator has broken it, which is not worth a subscription in a short tenure.
const subscribeAfter = 600;

/**
 * A Lock is one unbroken ownership of a mutex by this process. A caller of lock or tryLock must release
 * it.
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
  id: string;
  /** The fencing token. It is larger than that of every earlier tenure of the mutex. */
  token = 0;
  /** @internal When the tenure began. */ began = 0;
  /** @internal When to renew. */ due = 0;
  /** @internal Its release. */ giving: Promise<Error | undefined> | undefined;
  /** @internal The number of the last request. */ request = 0;
  /** @internal The outcome of that request. */ outcome: Reply | Error | undefined;
  /** @internal wake ends a pause. */ wake = (): void => undefined;
  private held = false;
  private quit = false; // the call has ended, so the contender must
  private why: () => unknown = () => new UnavailableError("the server has not replied");
  private via: string[] | undefined; // names that request, if it waits; [] if the contender polls
  private keeps = false; // the server may have a tenure or a queue entry for the contender
  private readonly settings; // the options, with those of the Client for what is not given
  private until = 0; // when the owner gives the lease up
  private sent = 0; // when the request was sent from which the lease counts
  private loss: Error | undefined;
  private controller: AbortController | undefined; // made when it is needed, since it is slow to make

  /** @internal */
  constructor(
    private readonly client: Client,
    readonly mutex: string,
    private readonly options: LockOptions,
    private readonly kind: Kind,
  ) {
    this.id = options.id ?? "";
    this.settings = { ...client.settings, ...options };
  }

  /**
   * A signal that fires when the mutex is lost, with a LostError as its reason, or the Client is
   * closed. That of lead and every fires, too, when the signal of the call fires. It can fire only while
   * the event loop runs.
   */
  get signal(): AbortSignal {
    return (this.controller ??= new AbortController()).signal;
  }

  /**
   * check reports whether this process still owns the mutex and may work: it returns false, too, as soon
   * as the signal has fired. It asks no server but reads a clock, so it is right at once after a freeze of
   * the process or work that has blocked the event loop.
   */
  check(): boolean {
    return this.owns() && !this.controller?.signal.aborted;
  }

  /** owns reports whether the lease lasts. It does until the work has returned, also after the signal. */
  private owns(): boolean {
    if (this.held && this.until <= now()) this.lose();
    return this.held;
  }

  /** @internal acquire contends. If it rejects, the contender takes back what it has asked for. */
  async acquire(...signals: Signals): Promise<this> {
    signals.forEach((signal) => signal?.throwIfAborted());
    const contending = this.contend().finally(() => {
      this.client.waits.all.delete(this.request);
      if (!this.keeps) this.client.leave(this);
      else if (!this.held) this.giving ??= this.giveBack();
    });
    const { wait = Infinity } = this.kind === "lock" ? this.options : {}; // "once" ends by the timeout
    try {
      return await within(wait, contending, signals, () => this.why());
    } catch (err) {
      this.quit = true;
      this.wake();
      if (this.held) this.release().catch(() => undefined); // the call ended at the moment of the grant
      throw err;
    }
  }

  /** contend asks until it owns the mutex, or until it is useless to ask again. */
  private async contend(): Promise<this> {
    for (let pause = retryPause; ; pause = Math.min(2 * pause, this.settings.ttl, retryPauseMax)) {
      try {
        while (!(await this.round())) pause = retryPause;
        return this;
      } catch (err) {
        if (this.fit(err)) continue;
        const refused = this.kind !== "patient" && !(err instanceof UnavailableError);
        if (refused || this.kind === "once" || this.quit) throw err;
        this.why = () => err;
        this.client.note(this.mutex, err);
      }
      await this.rest(pause);
    }
  }

  /** round sends one ACQUIRE and waits for its outcome. It reports whether the tenure has begun. */
  private async round(): Promise<boolean> {
    const { client } = this;
    this.id ||= await client.newId();
    if (this.quit) throw this.why();
    client.enter(this);
    client.waits.add(this);
    const via = ["VIA", client.waits.name, "REQUEST", `${this.request}`];
    let sent = now();
    const asked = this.send("ACQUIRE", this.kind === "once" ? ["NOQUEUE"] : ["WAIT", "0", ...via]);
    let reply = await asked.catch((err: unknown) => {
      this.keeps ||= !isFinal(err); // a request without a reply may have been granted
      throw err;
    });
    // Without a number, the waiter is not known yet, and the contender polls.
    this.via = reply.request ? via : reply.status === "queued" ? [] : undefined;
    this.why = () => new NotAcquiredError(this.mutex, ownerOf(reply));
    this.keeps = reply.status !== "busy";
    if (!this.keeps) throw this.why();
    if (reply.status === "queued") {
      client.waits.open();
      if (!this.outcome) await this.rest(reply.request ? askAgain : pollPause);
      if (!this.outcome) return false;
      if (this.outcome instanceof Error) throw this.outcome;
      reply = this.outcome;
      if (reply.status === "acquired" && now() - sent > reply.transition / 3) {
        sent = now(); // the lease counts from the ACQUIRE, and may be over
        reply = await this.send("GUARD", ["TOKEN", `${reply.token}`]);
      }
    }
    if (this.quit) throw this.why();
    const granted = reply.status === "acquired" || reply.status === "renewed";
    if (!granted) throw new UnavailableError(`the wait has ended: ${reply.status}`);
    this.renewed(reply, sent);
    if (this.until <= now()) throw new UnavailableError("the reply took longer than the lease");
    this.token = reply.token;
    this.began = now();
    this.held = true;
    client.wakeAt(this.due);
    return true;
  }

  /** rest waits for about so many milliseconds, or until something has happened. */
  private async rest(ms: number): Promise<void> {
    if (!this.quit) await within(ms * (0.5 + Math.random()), new Promise<void>((wake) => (this.wake = wake)));
  }

  /** @internal deliver hands over the outcome of the last request. */
  deliver(outcome: Reply | Error): void {
    this.outcome = outcome;
    this.wake();
  }

  /** fit makes default windows shorter that the server has refused as too long. */
  private fit(err: unknown): boolean {
    const longest = Number(/^TOOLONG (\d+) /.exec((err as Error).message)?.[1]);
    const given = [this.options, this.client.options].some(({ ttl, grace }) => (ttl ?? grace) !== undefined);
    if (given || !(longest >= 2 && longest < this.settings.ttl + this.settings.grace)) return false;
    const windows = { ttl: Math.floor((longest * 5) / 6), grace: Math.ceil(longest / 6) };
    for (const settings of [this.settings, this.client.settings]) Object.assign(settings, windows);
    return true;
  }

  private async send(verb: string, args: string[], patience?: number): Promise<Reply> {
    const { ttl, grace } = this.settings;
    const request = [`SIMBA.${verb}`, this.mutex, this.id, `${ttl}`, "TRANSITION", `${grace}`, ...args];
    return fieldsOf(await this.client.send(request, patience));
  }

  private renewed(reply: Reply, sent: number): void {
    if (sent < this.sent) return; // the reply to a later request came first
    this.sent = sent;
    const { ttl, grace } = this.settings;
    const length = Math.min(ttl + grace, reply.transition);
    this.due = sent + Math.min(ttl, length) / 3;
    this.until = sent + length - Math.min(length / 100, 250);
  }

  /** @internal act does what is due, adds the wanted channel, and makes the next tick come in time. */
  act(time: number, want: Set<string>): void {
    if (!this.owns()) return;
    if (time - this.began >= subscribeAfter) want.add(`simba:{${this.mutex}}`);
    if (time >= this.due) {
      // A third of what is left, so that there is time to try again by another connection.
      const patience = Math.max(1, Math.min(this.settings.timeout, (this.until - time) / 3));
      this.due = time + patience;
      void this.renew(patience);
    }
    this.client.wakeAt(Math.min(this.due, this.until));
  }

  private async renew(patience: number): Promise<void> {
    const sent = now();
    try {
      const reply = await this.send("GUARD", ["TOKEN", `${this.token}`], patience);
      if (reply.status === "lost") this.lose(reply.owner);
      else this.renewed(reply, sent);
    } catch (err) {
      this.client.note(this.mutex, err);
      this.due = Math.min(this.due, now() + Math.max(10, (this.until - now()) / 8));
    }
    this.client.wakeAt(this.due);
  }

  private lose(owner = ""): void {
    if (!this.held) return;
    this.held = false;
    const { mutex, id: contender, token } = this;
    this.end((this.loss = lostError(mutex)));
    this.client.log("warn", "mutex lost", { mutex, contender, token, owner });
  }

  /** @internal end makes the signal fire. If a function works, it ends by itself before the release. */
  end(reason: unknown): void {
    (this.controller ??= new AbortController()).abort(reason);
    if (this.kind === "lock" || this.kind === "once") this.release().catch(() => undefined);
  }

  /**
   * release releases the mutex. It rejects with a LostError if the mutex was lost before, and with an
   * UnavailableError if the server does not reply in time. Then the release goes on in the background
   * until the lease is over. A second call returns the result of the first.
   */
  async release(): Promise<void> {
    if (this.owns()) this.held = false;
    this.giving ??= this.giveBack();
    const failure = this.loss ?? (await within(this.settings.timeout, this.giving, [], unavailable));
    if (failure) throw failure;
  }

  /** For `await using`: release, but it logs an UnavailableError. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.release().catch((err: Error) => {
      if (err instanceof LostError) throw err;
      this.client.note(`${this.mutex} is free when its lease ends: RELEASE`, err);
    });
  }

  /** giveBack repeats a release until the server replies, or the lease would be over. */
  private async giveBack(): Promise<Error | undefined> {
    const { client, settings } = this;
    let failure: Error | undefined;
    for (const over = now() + settings.ttl + settings.grace; ; await sleep(givePause * Math.random())) {
      try {
        const what = this.token ? ["TOKEN", `${this.token}`] : await this.kept();
        const released = what && (await client.send(["SIMBA.RELEASE", this.mutex, this.id, ...what]));
        // After a request without a reply, 0 can mean that it has released the mutex.
        failure = released === 0 && !failure ? lostError(this.mutex) : undefined;
        break;
      } catch (err) {
        failure = err as Error;
        if (isFinal(err) || now() > over) break;
      }
    }
    client.leave(this);
    return failure;
  }

  /**
   * kept returns what the RELEASE of a contender without a tenure names. Nobody else has an id that the
   * Client has made. An id of the caller may have a later tenure, which a late RELEASE must not end.
   */
  private async kept(): Promise<string[] | undefined> {
    if (this.options.id === undefined) return [];
    const { via } = this;
    if (via?.[1] === this.client.waits.name) return via;
    this.via = undefined;
    if (via?.length === 0) return via; // a queue entry has no token; sent once, so that it cannot be late
    const owner = await this.client.owner(this.mutex);
    return owner?.id === this.id ? ["TOKEN", `${owner.token}`] : undefined;
  }
}
