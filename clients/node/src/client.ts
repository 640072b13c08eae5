import { randomBytes } from "node:crypto";
import os from "node:os";
import { Attempt } from "./attempt.js";
import { now, within } from "./clock.js";
import { dialer, type Dial, type Redis } from "./connections.js";
import { Contenders, leaseOf, type Contender } from "./contenders.js";
import { ClosedError, InUseError, isFinal, UnavailableError } from "./errors.js";
import type { Lease, Lock, Tenure } from "./lease.js";
import { Stop } from "./stop.js";
import { Subscriptions } from "./subscriptions.js";
import { Waits } from "./waits.js";
import { Watcher, type State } from "./watch.js";
import { Wire, type Owner, type Reply } from "./wire.js";

/** A Logger gets outages, refusals, lost mutexes, and errors of leaders. console is one. */
export interface Logger {
  warn(message: string, details: object): void;
  error(message: string, details: object): void;
}

/** Windows are the two windows of a lease, in milliseconds. */
export interface Windows {
  /** The owner renews before this window ends. 1 to 86,400,000; default 10,000. */
  ttl?: number | undefined;
  /**
   * In this window the owner still owns the mutex, and may renew. 0 to 86,400,000; default 2,000, or
   * none if only ttl is set. The server calls it TRANSITION.
   */
  grace?: number | undefined;
}

/** Options of a Client. Default windows are shortened if the server refuses them as too long. */
export interface ClientOptions extends Windows {
  /** The longest time for a request, and for a release that is awaited, in ms; default 3,000. */
  timeout?: number | undefined;
  /**
   * What contender ids begin with. The default is the name of the user and a colon, as the server
   * demands, and empty for the user `default`.
   */
  idPrefix?: string | undefined;
  /** Default: console. */
  logger?: Logger | undefined;
}

/** Options of a call that contends. */
export interface ContendOptions extends Windows {
  /** The contender's id, instead of a new one. No other contender of the mutex may have it. */
  id?: string | undefined;
  /** Ends the call, which then rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** Options of lock. */
export interface LockOptions extends ContendOptions {
  /** How long to wait at most, in milliseconds; default: without limit. */
  wait?: number | undefined;
}

/** Options of every. */
export interface EveryOptions extends ContendOptions {
  /** How long a new leader waits before its first run, in milliseconds; default 0. */
  initialDelay?: number | undefined;
}

/** A function that runs while this process owns the mutex. */
export type Work<T, L = Tenure> = (tenure: L) => T | Promise<T>;

/** final returns what f of lead or every returns to end lead or every, which then return the value. */
export const final = <T>(value: T): unknown => new Final(value);
class Final {
  constructor(readonly value: unknown) {}
}

const quickTenure = 1000; // after a shorter tenure, lead pauses
const maxWindow = 24 * 3600 * 1000;
const longestTimer = 2 ** 31 - 1;
const processTag = randomBytes(8).toString("hex"); // tells containers with the same host and pid apart
const host = /^[\w.-]+$/.test(os.hostname()) ? os.hostname() : "localhost";
let lastId = 0;

/** A Client locks mutexes, leads and watches. A process needs one. */
export class Client {
  /** @internal */ readonly timeout: number;
  /** @internal */ readonly logger: Logger;
  /** @internal */ readonly dial: Dial;
  /** @internal */ readonly wire: Wire;
  /** @internal */ readonly waits = new Waits(this);
  /** @internal */ readonly subscriptions = new Subscriptions(this);
  /** @internal */ readonly contenders = new Contenders();
  private readonly windows: Windows;
  private readonly calls = new Set<Stop>();
  private readonly username: string | undefined;
  private prefix: string | undefined;
  private longest = Infinity; // the longest lease that the server allows
  private outage = false;
  private closing: Promise<void> | undefined;

  /**
   * The Client makes its own connections with the options of redis, and never closes redis. It opens
   * the first one when it needs it.
   */
  constructor(redis: Redis, options: ClientOptions = {}) {
    this.timeout = options.timeout ?? 3000;
    this.logger = options.logger ?? console;
    this.prefix = options.idPrefix;
    this.windows = options;
    this.username = (redis as { options?: { username?: string } }).options?.username;
    if (!(this.timeout >= 1)) throw new RangeError(`timeout is ${this.timeout}, not 1 or more`);
    if (Buffer.byteLength(this.prefix ?? "") > 64) throw new RangeError("idPrefix has more than 64 bytes");
    this.contender("m", {}); // throws if the windows are not valid
    this.dial = dialer(redis, this.timeout);
    this.wire = new Wire(this.dial, this.timeout);
  }

  /**
   * lock waits until it owns the mutex, first come, first served, and renews its lease. With a
   * function it runs the function, releases the mutex, and returns the result. It rejects with a
   * LostError if the mutex was lost meanwhile, even if the function succeeds. Without one it returns a
   * Lock, which the caller must release.
   *
   * It rejects with a NotAcquiredError or an UnavailableError when the option wait has passed, with
   * the reason of an aborted signal, and with the server's error reply if that refuses the request.
   * While the server does not answer, lock tries again. Locks are not reentrant.
   */
  lock(mutex: string, options?: LockOptions): Promise<Lock>;
  lock<T>(mutex: string, work: Work<T>, options?: LockOptions): Promise<T>;
  lock<T>(mutex: string, work?: Work<T> | LockOptions, options?: LockOptions): Promise<Lock | T> {
    return this.lockOnce(mutex, false, work, options);
  }

  /**
   * tryLock is like lock, but asks once. It rejects with a NotAcquiredError if another contender owns
   * the mutex or is next, and with an UnavailableError if the server does not answer.
   */
  tryLock(mutex: string, options?: ContendOptions): Promise<Lock>;
  tryLock<T>(mutex: string, work: Work<T>, options?: ContendOptions): Promise<T>;
  tryLock<T>(mutex: string, work?: Work<T> | ContendOptions, options?: ContendOptions): Promise<Lock | T> {
    return this.lockOnce(mutex, true, work, options);
  }

  /**
   * lead contends for the mutex until the signal fires or the Client is closed, and runs work once for
   * each tenure. When the tenure is lost or the signal fires, `tenure.signal` fires, and work should
   * return. When work returns, lead releases the mutex and contends again at the end of the queue. If
   * work ends within a second, lead first pauses, each time longer, up to the TTL. It logs what work
   * throws. If work returns `final(value)`, lead resolves with the value.
   *
   * It rejects with the signal's reason, and with the server's error reply if that refuses the first
   * tenure. Later refusals are logged, and lead tries again.
   */
  lead(mutex: string, work: Work<unknown>, options: ContendOptions = {}): Promise<unknown> {
    return this.contend(mutex, options, work);
  }

  /**
   * every runs work again and again in one of many processes, with a period in milliseconds that
   * counts from the start of the tenure. This process holds the mutex from run to run. A run that
   * takes longer than a period delays the next one, and missed start times count once. If a new
   * process takes over, its first run comes at once, or after the option initialDelay.
   *
   * every logs what work throws, and goes on. In all else it is like lead.
   */
  async every(mutex: string, period: number, work: Work<unknown>, options: EveryOptions = {}): Promise<unknown> {
    if (!(period > 0)) throw new RangeError(`period is ${period}, not more than 0`);
    return this.contend(mutex, options, (lease) => this.follow(lease, period, work, options.initialDelay ?? 0));
  }

  /**
   * watch yields the present owner of a mutex, and then each change in order. It does not contend. A
   * slow loop misses none, as long as the server keeps them in its history. If changes are missing,
   * watch yields the present owner, with gap set.
   *
   * It throws the signal's reason, a ClosedError, and the server's error reply if that refuses the
   * first read. It logs any other error, and goes on.
   */
  async *watch(mutex: string, { signal }: { signal?: AbortSignal | undefined } = {}): AsyncGenerator<State, never, undefined> {
    const stop = this.begin(signal);
    const watcher = new Watcher(this, mutex, stop);
    try {
      for (;;) yield* await watcher.read();
    } finally {
      watcher.end();
      this.end(stop);
    }
  }

  /** owner returns the owner of a mutex, or undefined if the mutex is free. */
  owner(mutex: string): Promise<Owner | undefined> {
    return this.wire.owner(mutex);
  }

  /**
   * check asks the server whether the tenure with this token lasts. A resource calls it before it acts
   * for a client that claims to be the owner. If it rejects, the resource must refuse.
   */
  async check(mutex: string, token: number): Promise<boolean> {
    if (!Number.isSafeInteger(token) || token <= 0) return false; // no tenure has such a token
    return (await this.wire.ask("SIMBA.CHECK", mutex, String(token))) === 1;
  }

  /**
   * close ends all calls with a ClosedError, releases all mutexes when their work has ended, and
   * closes the connections. If that takes longer than the option timeout, it rejects with an
   * UnavailableError: the server may keep a mutex until its lease ends.
   */
  close(): Promise<void> {
    return (this.closing ??= this.shutDown());
  }

  private async shutDown(): Promise<void> {
    const empty = this.contenders.close();
    for (const stop of this.calls) stop.stop(new ClosedError());
    try {
      await this.within(empty);
      if (this.contenders.failure) throw this.contenders.failure;
    } catch (cause) {
      throw new UnavailableError("the server may keep a mutex until its lease ends", { cause });
    } finally {
      for (const connection of [this.wire, this.waits, this.subscriptions]) connection.close();
    }
  }

  /** @internal */
  get closed(): boolean {
    return this.contenders.closed;
  }

  private begin(signal: AbortSignal | undefined): Stop {
    const stop = new Stop(signal);
    this.calls.add(stop);
    if (this.closed) stop.stop(new ClosedError());
    return stop;
  }

  private end(stop: Stop): void {
    stop.end();
    this.calls.delete(stop);
  }

  private async lockOnce<T>(mutex: string, once: boolean, work?: Work<T> | LockOptions, last?: LockOptions): Promise<Lock | T> {
    const options = (typeof work === "function" ? last : work) ?? {};
    const stop = this.begin(options.signal);
    let attempt: Attempt | undefined;
    const noReply = (): Error => new UnavailableError("the server has not replied");
    const tooLate = (): void => stop.stop(attempt?.why() ?? stop.failure ?? noReply());
    const timer = options.wait === undefined ? undefined : setTimeout(tooLate, Math.min(options.wait, longestTimer));
    try {
      const contender = this.contender(mutex, options);
      await this.enter(contender, stop, once, false);
      attempt = new Attempt(this, contender, stop, { once, auto: typeof work !== "function", last: 0 });
      const lease = await attempt.run();
      attempt = undefined;
      clearTimeout(timer);
      return typeof work === "function" ? await this.runWork(lease, stop, work) : lease;
    } finally {
      void attempt?.giveUp();
      clearTimeout(timer);
      this.end(stop);
    }
  }

  private async runWork<T>(lease: Lease, stop: Stop, work: Work<T>): Promise<T> {
    const ended = stop.listen(lease.abort);
    try {
      const result = await work(lease);
      await lease.free();
      return result;
    } catch (cause) {
      const lost = await lease.free().catch((err: Error) => err);
      throw lost && cause !== lost ? Object.assign(lost, { cause }) : cause;
    } finally {
      ended();
    }
  }

  /** contend contends, runs work for each tenure, and releases the mutex after that. */
  private async contend(mutex: string, options: ContendOptions, work: Work<unknown, Lease>): Promise<unknown> {
    const stop = this.begin(options.signal);
    try {
      const contender = this.contender(mutex, options);
      for (let pause = 0, last = 0; ; ) {
        await this.enter(contender, stop, false, last > 0);
        const attempt = new Attempt(this, contender, stop, { once: false, auto: false, last });
        const lease = await attempt.run().catch(async (err: unknown) => {
          await this.within(attempt.giveUp()).catch(() => undefined);
          throw err;
        });
        const result = await this.tenure(lease, stop, work);
        if (result instanceof Final) return result.value;
        await stop.wait(lease.gone());
        last = lease.token;
        pause = now() - lease.began < quickTenure ? Math.min(Math.max(100, 2 * pause), contender.ttl) : 0;
        await stop.sleep(pause);
      }
    } finally {
      this.end(stop);
    }
  }

  /** tenure runs the work of one tenure and releases the mutex. It logs all errors. */
  private async tenure(lease: Lease, stop: Stop, work: Work<unknown, Lease>): Promise<unknown> {
    const ended = stop.listen(lease.abort);
    const result = await this.runLogged(lease, work);
    ended();
    await lease.free().catch(() => undefined); // the loss was logged
    return result;
  }

  /** runLogged logs an error of work, unless it only says that the tenure has ended. */
  private async runLogged<L extends Lease>(lease: L, work: Work<unknown, L>): Promise<unknown> {
    try {
      return await work(lease);
    } catch (err) {
      const { aborted, reason } = lease.signal;
      const ended = aborted && (err === reason || (err instanceof Error && err.name === "AbortError"));
      if (!ended) this.logger.error("the leader's work failed", { mutex: lease.mutex, contender: lease.id, err });
      return undefined;
    }
  }

  /** follow runs work with a period until the tenure ends. */
  private async follow(lease: Lease, period: number, work: Work<unknown>, delay: number): Promise<unknown> {
    const stop = new Stop(lease.signal);
    for (let next = now() + delay; ; ) {
      do await stop.sleep(Math.min(next - now(), 60_000)); // timers stand still in a suspension
      while (next > now());
      if (!lease.check()) return undefined;
      const result = await this.runLogged(lease, work);
      if (result instanceof Final) return result;
      next += period * Math.max(1, Math.floor((now() - next) / period)); // the last missed start
    }
  }

  /** contender returns a new contender. A RangeError names the option that is not valid. */
  private contender(mutex: string, options: ContendOptions): Contender {
    const { ttl, grace } = this.windows;
    const id = options.id ?? "";
    const c: Contender = {
      mutex,
      id,
      named: id !== "",
      leaving: false,
      refused: false,
      lease: undefined,
      ttl: options.ttl ?? ttl ?? 10_000,
      grace: options.grace ?? grace ?? (ttl === undefined ? 2000 : 0),
      fits: (options.ttl ?? options.grace ?? ttl ?? grace) === undefined,
    };
    for (const name of ["ttl", "grace"] as const) {
      if (Number.isInteger(c[name]) && c[name] >= (name === "ttl" ? 1 : 0) && c[name] <= maxWindow) continue;
      throw new RangeError(`${name} is ${c[name]}, not a whole number of milliseconds up to ${maxWindow}`);
    }
    this.fit(c);
    return c;
  }

  /** fit shortens default windows to the longest lease of the server. */
  private fit(c: Contender): boolean {
    const lease = leaseOf(c);
    if (!c.fits || lease <= this.longest) return false;
    c.ttl = Math.max(1, Math.floor((this.longest * c.ttl) / lease));
    c.grace = this.longest - c.ttl;
    return true;
  }

  /** @internal shorten shortens default windows if err says that the server refuses them as too long. */
  shorten(c: Contender, err: unknown): boolean {
    const found = err instanceof Error && /^TOOLONG (\d+) /.exec(err.message);
    if (!found) return false;
    this.longest = Number(found[1]);
    return this.fit(c);
  }

  /** enter makes an id and adds the contender. It waits for another one with the id that leaves. */
  private async enter(c: Contender, stop: Stop, once: boolean, patient: boolean): Promise<void> {
    for (;;) {
      if (stop.stopped) throw stop.reason;
      try {
        this.prefix ??= await stop.wait(this.askPrefix());
        c.id ||= this.newId(this.prefix);
        return this.contenders.add(c);
      } catch (err) {
        const leaving = err instanceof InUseError && (patient || this.contenders.get(c.mutex, c.id)?.leaving);
        if (stop.stopped || once || !(leaving || err instanceof UnavailableError)) throw err;
        this.failed(c, err);
        stop.failure = err instanceof InUseError ? undefined : err;
        await stop.sleep(err instanceof InUseError ? 100 : 1000);
      }
    }
  }

  /** newId returns prefix, counter:pid@host~random. */
  private newId(prefix: string): string {
    const begin = `${prefix}${++lastId}:${process.pid}@`;
    return `${begin}${host.slice(0, Math.max(0, 111 - Buffer.byteLength(begin)))}~${processTag}`;
  }

  /** askPrefix asks for the name of the user. A user without the right to ask has set it. */
  private async askPrefix(): Promise<string> {
    const name = await this.wire.ask("ACL", "WHOAMI").catch((err: Error) => {
      if (err.message.startsWith("NOPERM")) return this.username;
      throw err;
    });
    return name && name !== "default" ? `${String(name)}:` : "";
  }

  /** @internal within waits for a promise at most for the option timeout. */
  within<T>(promise: Promise<T>): Promise<T> {
    return within(this.timeout, promise);
  }

  /** @internal giveBack releases a tenure that nobody waits for any more. */
  giveBack(mutex: string, { owner, token }: Reply): void {
    const c = this.contenders.get(mutex, owner);
    // A contender that still asks learns of the tenure by its next request.
    if (c && (c.lease ? c.lease.token === token : !c.leaving)) return;
    this.wire.release(mutex, owner, token).catch(() => undefined); // the lease will end
  }

  /** @internal failed logs the begin of an outage, or of the refusals for a contender. */
  failed(c: Pick<Contender, "mutex" | "id" | "refused">, err: unknown): void {
    const details = { mutex: c.mutex, contender: c.id, err };
    if (isFinal(err)) {
      if (!c.refused) this.logger.error("the server refuses the contender's requests", details);
      c.refused = true;
    } else if (err instanceof UnavailableError && !this.outage) {
      this.outage = true;
      this.logger.warn("the server does not answer; logged once for all contenders", details);
    }
  }

  /** @internal answered notes that the server has accepted a request. */
  answered(c: Pick<Contender, "refused">): void {
    if (this.outage) this.logger.warn("the server answers again", {});
    this.outage = false;
    if (c.refused) c.refused = false;
  }
}
