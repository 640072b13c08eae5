import { randomBytes } from "node:crypto";
import { setMaxListeners } from "node:events";
import os from "node:os";
import { isIoRedis, Wire, type Redis } from "./connections.js";
import { ClosedError, InUseError, UnavailableError } from "./errors.js";
import { fieldsOf, Lock, ownerOf, type Owner, type Reply } from "./lock.js";
import { Notices } from "./notices.js";
import { now, sleep, within } from "./time.js";
import { Waits } from "./waits.js";
import { Watcher, type State } from "./watch.js";

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
export type Work<T> = (lock: Lock) => T | Promise<T>;

/** final returns what f of lead or every returns to end lead or every, which then return the value. */
export const final = <T>(value: T): unknown => new Final(value);
class Final { constructor(readonly value: unknown) {} }

const quickTenure = 1000; // after a shorter tenure, lead pauses
const tickEvery = 200; // timers stand still in a suspension, so the Client looks at the clock so often
const watchEvery = 2000; // how often watch asks without a notice
const noteEvery = 10_000;
const maxWindow = 24 * 3600 * 1000;
const processTag = randomBytes(8).toString("hex"); // tells containers with the same host and pid apart
const host = /^[\w.-]+$/.test(os.hostname()) ? os.hostname() : "localhost";
let lastId = 0;

const keyOf = (mutex: string, id: string): string => `${mutex} ${id}`; // a mutex has no white space

function checked(name: string, value: number, least: number): number {
  if (Number.isInteger(value) && value >= least && value <= maxWindow) return value;
  throw new RangeError(`${name} is ${value}, not a whole number of milliseconds from ${least} to ${maxWindow}`);
}

/** link calls f with the reason when the signal fires, or has fired. The result ends that. */
function link(signal: AbortSignal | undefined, f: (reason: unknown) => void): () => void {
  const abort = (): void => f(signal?.reason);
  signal?.addEventListener("abort", abort);
  if (signal?.aborted) abort();
  return () => signal?.removeEventListener("abort", abort);
}

/** A Client locks mutexes, leads and watches. A process needs one. */
export class Client {
  /** @internal */ readonly timeout: number;
  /** @internal */ readonly logger: Logger;
  /** @internal */ readonly wire: Wire;
  /** @internal */ readonly waits = new Waits(this);
  /** @internal The windows of contenders that set none. */ ttl: number;
  /** @internal */ grace: number;
  private readonly fits: boolean; // default windows may be shortened
  private readonly notices: Notices;
  private prefix: string | undefined;
  private readonly stop = new AbortController(); // fires when the Client is closed
  private readonly all = new Map<string, Lock>(); // each until the server has nothing for it
  private readonly watchers = new Map<() => void, string>();
  private timer: NodeJS.Timeout | undefined;
  private tickAt = Infinity;
  private noted = -Infinity;
  private emptied = (): void => undefined;
  private closing: Promise<void> | undefined;

  /**
   * The Client makes its own connections with the options of redis, and never closes redis. It opens
   * the first one when it needs it.
   */
  constructor(/** @internal */ readonly redis: Redis, options: ClientOptions = {}) {
    this.timeout = checked("timeout", options.timeout ?? 3000, 1);
    this.ttl = checked("ttl", options.ttl ?? 10_000, 1);
    this.grace = checked("grace", options.grace ?? (options.ttl === undefined ? 2000 : 0), 0);
    this.fits = options.ttl === undefined && options.grace === undefined;
    this.logger = options.logger ?? console;
    this.prefix = options.idPrefix;
    if (Buffer.byteLength(this.prefix ?? "") > 64) throw new RangeError("idPrefix has more than 64 bytes");
    if (typeof redis !== "function") isIoRedis(redis);
    setMaxListeners(0, this.stop.signal);
    this.wire = new Wire(redis, this.timeout);
    this.notices = new Notices(redis, this.timeout, this.noticed);
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

  private async lockOnce<T>(mutex: string, once: boolean, work?: Work<T> | LockOptions, last?: LockOptions): Promise<Lock | T> {
    const options = (typeof work === "function" ? last : work) ?? {};
    const { stop, end } = this.begin(options.signal, options.wait);
    try {
      const lock = this.contender(mutex, options, typeof work === "function");
      const late = (): void => stop.abort(lock.why());
      const timer = options.wait === undefined ? undefined : setTimeout(late, Math.min(options.wait, 2 ** 31 - 1));
      await lock.acquire(stop.signal, once, false).finally(() => clearTimeout(timer));
      return typeof work === "function" ? await this.run(lock, stop.signal, work) : lock;
    } finally {
      end();
    }
  }

  /** run runs work, and releases the mutex. If that was lost, its error has that of work as its cause. */
  private async run<T>(lock: Lock, stop: AbortSignal, work: Work<T>): Promise<T> {
    const unlink = link(stop, lock.abort);
    const result = (async () => work(lock))();
    const cause = await result.then(() => undefined, (err: unknown) => err);
    unlink();
    await lock.free().catch((lost: Error) => {
      throw cause === undefined || cause === lost ? lost : Object.assign(lost, { cause });
    });
    return result;
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
  async lead(mutex: string, work: Work<unknown>, options: ContendOptions = {}): Promise<unknown> {
    const { stop, end } = this.begin(options.signal);
    try {
      for (let pause = 0, again = false; ; again = true) {
        const lock = await this.contender(mutex, options, true).acquire(stop.signal, false, again);
        let result: unknown;
        const once = async (): Promise<void> => void (result = await this.logged(lock, work));
        await this.run(lock, stop.signal, once).catch(() => undefined); // the loss was logged
        if (result instanceof Final) return result.value;
        pause = now() - lock.began < quickTenure ? Math.min(Math.max(100, 2 * pause), this.ttl) : 0;
        await sleep(pause, stop.signal);
      }
    } finally {
      end();
    }
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
    const follow = async (lock: Lock): Promise<unknown> => {
      for (let next = now() + (options.initialDelay ?? 0); ; ) {
        do await sleep(Math.min(next - now(), 60_000), lock.signal); // timers stand still in a suspension
        while (next > now());
        if (!lock.check()) return undefined;
        const result = await this.logged(lock, work);
        if (result instanceof Final) return result;
        next += period * Math.max(1, Math.floor((now() - next) / period)); // the last missed start
      }
    };
    return this.lead(mutex, follow, options);
  }

  /** logged logs an error of work, unless it only says that the tenure has ended. */
  private logged(lock: Lock, work: Work<unknown>): Promise<unknown> {
    return (async () => work(lock))().catch((err: unknown) => {
      const { aborted, reason } = lock.signal;
      const ended = aborted && (err === reason || (err instanceof Error && err.name === "AbortError"));
      if (!ended) this.logger.error("the leader's work failed", { mutex: lock.mutex, contender: lock.id, err });
    });
  }

  /**
   * watch yields the present owner of a mutex, and then each change in order. It does not contend. A
   * slow loop misses none, as long as the server keeps them in its history, and they are less than
   * 100. If changes are missing, watch yields the present owner.
   *
   * It throws the signal's reason, a ClosedError, and the server's error reply if that refuses the
   * first read. It logs any other error, and goes on.
   */
  async *watch(mutex: string, { signal }: { signal?: AbortSignal | undefined } = {}): AsyncGenerator<State, never, undefined> {
    const { stop, end } = this.begin(signal);
    const watcher = new Watcher(this, mutex);
    let woken = (): void => undefined;
    const wake = (): void => woken();
    try {
      for (;;) {
        const notice = new Promise<void>((resolve) => (woken = resolve));
        stop.signal.throwIfAborted();
        yield* await within(3 * this.timeout, watcher.read(), stop.signal);
        this.watchers.set(wake, `simba-events:{${mutex}}`);
        this.wakeAt(now());
        await sleep(watchEvery, stop.signal, notice);
      }
    } finally {
      this.watchers.delete(wake);
      end();
    }
  }

  /** owner returns the owner of a mutex, or undefined if the mutex is free. */
  async owner(mutex: string): Promise<Owner | undefined> {
    const reply = await this.wire.send(["SIMBA.OWNER", mutex]);
    return reply === null ? undefined : ownerOf(fieldsOf(reply) as unknown as Reply);
  }

  /**
   * check asks the server whether the tenure with this token lasts. A resource calls it before it acts
   * for a client that claims to be the owner. If it rejects, the resource must refuse.
   */
  async check(mutex: string, token: number): Promise<boolean> {
    if (!Number.isSafeInteger(token) || token <= 0) return false; // no tenure has such a token
    return (await this.wire.send(["SIMBA.CHECK", mutex, String(token)])) === 1;
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
    const empty = new Promise<void>((resolve) => (this.emptied = resolve));
    this.stop.abort(new ClosedError());
    for (const lock of this.all.values()) lock.close();
    if (this.all.size === 0) this.emptied();
    const late = await within(this.timeout, empty).catch((err: unknown) => err);
    for (const connection of [this.wire, this.waits, this.notices]) connection.close();
    if (late) throw new UnavailableError("the server may keep a mutex until its lease ends", { cause: late });
  }

  /** @internal */
  get closed(): boolean { return this.stop.signal.aborted; }

  /** begin returns what stops a call: the caller's signal, and the end of the Client. */
  private begin(signal?: AbortSignal, wait?: number): { stop: AbortController; end: () => void } {
    if (!signal && wait === undefined) return { stop: this.stop, end: () => undefined };
    const stop = new AbortController();
    const links = [this.stop.signal, signal].map((one) => link(one, (reason) => stop.abort(reason)));
    return { stop, end: () => links.forEach((unlink) => unlink()) };
  }

  private contender(mutex: string, options: ContendOptions, works: boolean): Lock {
    checked("ttl", options.ttl ?? this.ttl, 1);
    checked("grace", options.grace ?? this.grace, 0);
    return Object.assign(new Lock(this, mutex, options), { works });
  }

  /** @internal enter refuses a second contender with the same mutex and id: the server takes them for one. */
  enter(lock: Lock): void {
    const key = keyOf(lock.mutex, lock.id);
    const other = this.all.get(key) ?? lock;
    if (other.leaving) throw new UnavailableError(`the last tenure of ${lock.id} is not released yet`);
    if (other !== lock) throw new InUseError(`${lock.id} contends for ${lock.mutex} already`);
    this.all.set(key, lock);
  }

  /** @internal leave removes a contender for which the server has nothing. */
  leave(lock: Lock): void {
    const key = keyOf(lock.mutex, lock.id);
    if (this.all.get(key) === lock) this.all.delete(key);
    if (this.all.size === 0) this.emptied();
  }

  /** @internal giveBack releases a tenure that nobody waits for any more. */
  giveBack(mutex: string, { owner, token }: Reply): void {
    const lock = this.all.get(keyOf(mutex, owner));
    // A contender that still asks learns of the tenure by its next request.
    if (lock && (lock.token ? lock.token === token : !lock.leaving)) return;
    this.wire.send(["SIMBA.RELEASE", mutex, owner, "TOKEN", `${token}`]).catch(() => undefined); // the lease will end
  }

  /** @internal wakeAt makes the next tick come at that time or earlier. */
  wakeAt(time: number): void {
    if (time >= this.tickAt) return;
    clearTimeout(this.timer);
    this.tickAt = Math.min(time, now() + tickEvery);
    this.timer = setTimeout(this.tick, Math.ceil(this.tickAt - now())).unref();
  }

  /** tick does what is due for all tenures, and subscribes to what they and the watchers want. */
  private readonly tick = (): void => {
    const time = now();
    const want = new Set(this.watchers.values());
    let next = this.all.size > 0 || want.size > 0 ? time + tickEvery : Infinity;
    for (const lock of this.all.values()) next = Math.min(next, lock.act(time, want));
    if (!this.closed) this.notices.listen(want).catch((err: unknown) => this.note("SUBSCRIBE", err));
    this.tickAt = Infinity;
    if (next < Infinity) this.wakeAt(next);
  };

  /** noticed makes those who want a channel ask the server at once. */
  private readonly noticed = (channel: string): void => {
    for (const lock of this.all.values()) if (channel === `simba:{${lock.mutex}}`) lock.due = 0;
    for (const [wake, name] of this.watchers) if (name === channel) wake();
    this.wakeAt(now());
  };

  /** @internal shorten shortens the default windows to the longest lease of the server. */
  shorten(longest: number, asked: number): boolean {
    if (!this.fits || !(longest >= 2 && longest < asked)) return false;
    this.ttl = Math.floor((longest * 5) / 6);
    this.grace = longest - this.ttl;
    return true;
  }

  /** @internal newId returns prefix, counter:pid@host~random. */
  async newId(): Promise<string> {
    this.prefix ??= await this.askPrefix();
    const begin = `${this.prefix}${++lastId}:${process.pid}@`;
    return `${begin}${host.slice(0, Math.max(0, 111 - Buffer.byteLength(begin)))}~${processTag}`;
  }

  /** askPrefix asks for the name of the user. A user without the right to ask has set it. */
  private async askPrefix(): Promise<string> {
    const { username } = (this.redis as { options?: { username?: string } }).options ?? {};
    const name = await this.wire.send(["ACL", "WHOAMI"]).catch((err: Error) => {
      if (!err.message.startsWith("NOPERM")) throw err;
      return username;
    });
    return name && name !== "default" ? `${String(name)}:` : "";
  }

  /** @internal note logs that something has failed and will be tried again, not more often than noteEvery. */
  note(what: string, err: unknown): void {
    if (this.closed || now() - this.noted < noteEvery) return;
    this.noted = now();
    this.logger.warn(`${what}: failed, the Client will try again`, { err });
  }
}
