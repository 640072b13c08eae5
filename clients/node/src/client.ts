import { randomBytes } from "node:crypto";
import { setMaxListeners } from "node:events";
import os from "node:os";
import { Connection, isFinal, known, type Redis } from "./connections.js";
import { ClosedError, InUseError, UnavailableError } from "./errors.js";
import { fieldsOf, Lock, ownerOf, type Kind, type Owner, type Reply } from "./lock.js";
import { now, onAbort, sleep, within } from "./time.js";
import { verify } from "./verify.js";
import { Waits } from "./waits.js";
import { follow, type State } from "./watch.js";

/** Options of a call that contends. */
export interface ContendOptions {
  /** The owner renews before this window ends, in milliseconds. Default: that of the Client, 10,000. */
  ttl?: number | undefined;
  /**
   * After the TTL the owner still owns the mutex for so many milliseconds, and may renew. Default: that of
   * the Client, 2,000, or 0 if only its ttl is set. The server calls it TRANSITION.
   */
  grace?: number | undefined;
  /** The contender's id, instead of a new one. No other contender of the mutex may have it. */
  id?: string | undefined;
  /** Ends the call, which then rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** Options of lock. */
export interface LockOptions extends ContendOptions {
  /**
   * How long to wait for the mutex at most, in milliseconds; default, and from 2 ** 31 - 1 on: without
   * limit. 0 asks once, like tryLock, which can take as long as the server takes to reply. The time in
   * which the machine is suspended does not count.
   */
  wait?: number | undefined;
}

/** Options of a Client. Default windows are shortened if the server refuses them as too long. */
export interface ClientOptions extends Pick<ContendOptions, "ttl" | "grace"> {
  /**
   * The longest time for a request, and for a release that is awaited, in ms; default 3,000. It is below
   * 2 ** 31 - 1.
   */
  timeout?: number | undefined;
  /**
   * What contender ids begin with. The default is the name of the user and a colon, as the server
   * demands, and empty for the user `default`.
   */
  idPrefix?: string | undefined;
  /** Gets outages, refusals, lost mutexes, and errors of leaders. Default: console. */
  logger?: Logger | undefined;
}

/** What the Client needs of a logger. */
export type Logger = Pick<Console, "warn" | "error">;

/** A function that lead or every runs while this process owns the mutex. */
export type Work = (tenure: Lock) => unknown;

/** final returns what the work of lead or every returns to end that call, which then returns value. */
export const final = (value?: unknown): unknown => new Final(value);
class Final { constructor(readonly value: unknown) {} }

const quickTenure = 1000; // after a shorter tenure, lead pauses
const tickEvery = 200; // timers stand still in a suspension, so the Client looks at the clock so often
const watchEvery = 2000; // how often watch asks without a notice
const noteEvery = 10_000;
const redialAfter = 1000; // between connections for notices
const host = os.hostname().replace(/[^\w.-]/g, "").slice(0, 28);
// The random part tells containers with the same host and pid apart.
const place = `${process.pid}@${host}~${randomBytes(8).toString("hex")}`;
let lastId = 0;

/** keyOf returns the key of a contender. A mutex has no white space. */
const keyOf = ({ mutex, id }: Pick<Lock, "mutex" | "id">): string => `${mutex} ${id}`;

/**
 * A Client contends for mutexes. A process needs one, and closes it at its end.
 */
export class Client {
  /** @internal The options, with the default of each that is not given. */ readonly settings;
  /** @internal */ readonly waits = new Waits(this);
  private requests: Connection | undefined;
  private notices: Connection | undefined;
  private closed = false;
  private readonly stop = new AbortController(); // aborted when the Client is closed
  private readonly all = new Map<string, Lock>(); // until the server keeps no tenure or queue entry
  private readonly watchers = new Set<{ readonly mutex: string; wake: () => void }>();
  private timer: NodeJS.Timeout | undefined;
  private tickAt = Infinity;
  private noted = -Infinity;

  /**
   * The Client makes its own connections with the options of redis, and never closes redis. It opens
   * the first one when it needs it.
   */
  constructor(/** @internal */ readonly redis: Redis, /** @internal */ readonly options: ClientOptions = {}) {
    if (typeof redis !== "function") known(redis);
    const grace = options.ttl === undefined ? 2000 : 0;
    this.settings = { ttl: 10_000, grace, timeout: 3000, logger: console as Logger, ...verify({}, options) };
    setMaxListeners(0, this.stop.signal);
  }

  /**
   * lock waits until it owns the mutex, first come, first served, and renews its lease. The caller must
   * release the Lock. Locks are not reentrant.
   *
   * When the option wait has passed, it rejects with a NotAcquiredError, or with an UnavailableError if
   * the last request got no reply. It rejects with the reason of an aborted signal, and with the server's
   * error reply if that refuses the request. While the server does not answer, lock tries again.
   */
  lock(mutex: string, options: LockOptions = {}): Promise<Lock> {
    return this.contend(mutex, options, options.wait === 0 ? "once" : "lock");
  }

  /**
   * tryLock is like lock, but asks once. It rejects with a NotAcquiredError if another contender owns
   * the mutex or is next, and with an UnavailableError if the server does not answer.
   */
  tryLock(mutex: string, options: ContendOptions = {}): Promise<Lock> {
    return this.contend(mutex, options, "once");
  }

  private async contend(mutex: string, options: LockOptions, kind: Kind): Promise<Lock> {
    return new Lock(this, mutex, verify({ mutex }, options), kind).acquire(this.stop.signal, options.signal);
  }

  /**
   * lead contends for the mutex until the signal fires or the Client is closed, and runs work once for
   * each tenure. When the tenure is lost or the signal fires, `tenure.signal` fires, `tenure.check()`
   * returns false, and work should return. When work returns, lead releases the mutex and contends again
   * at the end of the queue. If work ends within a second, lead first pauses, each time longer, up to
   * the TTL. It logs what work throws. If work returns `final(value)`, lead resolves with the value.
   *
   * It rejects with the signal's reason, and with the server's error reply if that refuses the first
   * tenure. Later refusals are logged, and lead tries again.
   */
  async lead(mutex: string, work: Work, options: ContendOptions = {}): Promise<unknown> {
    verify({ mutex, work }, options);
    const signals = [this.stop.signal, options.signal];
    for (let pause = 0, kind: Kind = "work"; ; kind = "patient") {
      const lock = await this.contend(mutex, options, kind);
      const unlink = onAbort(signals, (reason) => lock.end(reason));
      const result = await within(Infinity, this.logged(lock, work)); // which keeps the process alive
      unlink();
      await lock[Symbol.asyncDispose]().catch(() => undefined); // the loss was logged
      if (result instanceof Final) return result.value;
      pause = now() - lock.began < quickTenure ? Math.min(Math.max(100, 2 * pause), this.settings.ttl) : 0;
      await sleep(pause, signals);
    }
  }

  /**
   * every runs work again and again in one of many processes, with a period in milliseconds that
   * counts from the start of the tenure. This process holds the mutex from run to run. A run that
   * takes longer than a period delays the next one, and missed start times count once. If a new
   * process takes over, its first run comes at once.
   *
   * every logs what work throws, and goes on. In all else it is like lead.
   */
  async every(mutex: string, period: number, work: Work, options: ContendOptions = {}): Promise<unknown> {
    verify({ mutex, period, work });
    const follow = async (lock: Lock): Promise<unknown> => {
      for (let next = now(); ;) {
        while (now() < next) await sleep(Math.min(next - now(), tickEvery), [lock.signal]);
        if (!lock.check()) return undefined;
        const result = await this.logged(lock, work);
        if (result instanceof Final) return result;
        next += period * Math.max(1, Math.floor((now() - next) / period)); // the last missed start
      }
    };
    return this.lead(mutex, follow, options);
  }

  /** logged runs work. It logs its error, unless that only says that the tenure has ended. */
  private async logged(lock: Lock, work: Work): Promise<unknown> {
    try {
      return await work(lock);
    } catch (err) {
      const { aborted, reason } = lock.signal;
      const ended = aborted && (err === reason || (err instanceof Error && err.name === "AbortError"));
      if (!ended) this.log("error", "the work failed", { mutex: lock.mutex, contender: lock.id, err });
    }
  }

  /**
   * watch yields the present state of a mutex, and then each change of its owner, in order. It does not
   * contend. A slow loop misses no owner, as long as the server keeps the changes in its history, and
   * they are less than 100.
   *
   * It throws the signal's reason, a ClosedError, and the server's error reply if that refuses the
   * first read. It logs any other error, and goes on.
   */
  async *watch(mutex: string, options: Pick<ContendOptions, "signal"> = {}): AsyncGenerator<State, never> {
    verify({ mutex }, options);
    const signals = [this.stop.signal, options.signal];
    const watcher = { mutex, wake: (): void => undefined };
    const read = follow(this, mutex);
    try {
      for (;;) {
        const noticed = new Promise<void>((wake) => (watcher.wake = wake)); // also by notices during the read
        yield* await within(Infinity, read(), signals);
        this.watchers.add(watcher);
        this.wakeAt(now());
        await within(watchEvery, noticed, signals);
      }
    } finally {
      this.watchers.delete(watcher);
    }
  }

  /** owner returns the owner of a mutex, or undefined if the mutex is free. */
  async owner(mutex: string): Promise<Owner | undefined> {
    verify({ mutex });
    return ownerOf(fieldsOf<Reply>((await this.send(["SIMBA.OWNER", mutex])) ?? {}));
  }

  /**
   * check asks the server whether the tenure with this token lasts. A resource calls it before it acts
   * for a client that claims to be the owner. If it rejects, the resource must refuse.
   */
  async check(mutex: string, token: number): Promise<boolean> {
    verify({ mutex });
    if (!Number.isSafeInteger(token) || token <= 0) return false; // no tenure has such a token
    return (await this.send(["SIMBA.CHECK", mutex, String(token)])) === 1;
  }

  /**
   * close ends all calls with a ClosedError, releases all mutexes when their work has ended, and
   * closes the connections. If that takes longer than the option timeout, it rejects with an
   * UnavailableError: the server may keep a mutex until its lease ends.
   */
  async close(): Promise<void> {
    this.stop.abort(new ClosedError("the Client is closed"));
    for (const lock of this.all.values()) if (lock.check()) lock.end(this.stop.signal.reason);
    for (const end = now() + this.settings.timeout; this.all.size > 0 && now() < end;) await sleep(5);
    this.closed = true;
    for (const connection of [this.requests, this.waits.connection, this.notices]) connection?.close();
    if (this.all.size > 0) throw new UnavailableError("the server may keep a mutex until its lease ends");
  }

  /**
   * @internal send is that of Connection. All requests share a connection, in a pipeline. When one gets no
   * reply, the later ones take a new connection.
   */
  send(args: string[], patience?: number): Promise<unknown> {
    if (this.closed) return Promise.reject(new ClosedError("the Client is closed"));
    if (!this.requests || this.requests.ended) this.requests = new Connection(this);
    return this.requests.send(args, patience);
  }

  /** @internal enter refuses a second contender with the same mutex and id: the server takes them for one. */
  enter(lock: Lock): void {
    const other = this.all.get(keyOf(lock)) ?? lock;
    if (other.giving) throw new UnavailableError(`the last tenure of ${lock.id} is not released yet`);
    if (other !== lock) throw new InUseError(`${lock.id} contends for ${lock.mutex} already`);
    this.all.set(keyOf(lock), lock);
  }

  /** @internal leave removes a contender: the server keeps no tenure or queue entry for it. */
  leave(lock: Lock): void {
    if (this.all.get(keyOf(lock)) === lock) this.all.delete(keyOf(lock));
  }

  /** @internal giveBack releases a tenure that nobody waits for any more. */
  giveBack(mutex: string, { owner, token }: Reply): void {
    const lock = this.all.get(keyOf({ mutex, id: owner }));
    // A contender that still asks learns of the tenure by its next request.
    if (lock && (lock.token ? lock.token === token : !lock.giving)) return;
    this.send(["SIMBA.RELEASE", mutex, owner, "TOKEN", `${token}`]).catch(() => undefined); // it expires
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
    this.tickAt = Infinity;
    const time = now();
    const want = new Set([...this.watchers].map(({ mutex }) => `simba-events:{${mutex}}`));
    for (const lock of this.all.values()) lock.act(time, want);
    this.listen(want);
    if (this.all.size + want.size > 0) this.wakeAt(time + tickEvery);
  };

  /** listen subscribes to these channels and to no others. Without channels it closes the connection. */
  private listen(want: Set<string>): void {
    const { ended, opened } = this.notices ?? { ended: true, opened: -Infinity };
    if (want.size === 0 || this.closed) return ended ? undefined : this.notices?.close();
    if (ended && now() - opened > redialAfter) this.notices = new Connection(this);
    this.notices?.listen(want).catch((err: unknown) => this.note("SUBSCRIBE", err));
  }

  /** @internal noticed makes those who want a channel ask the server at once. */
  noticed(channel: string): void {
    for (const lock of this.all.values()) if (channel === `simba:{${lock.mutex}}`) lock.due = 0;
    for (const watcher of this.watchers) if (channel === `simba-events:{${watcher.mutex}}`) watcher.wake();
    this.wakeAt(now());
  }

  /** @internal newId returns prefix, counter:pid@host~random. */
  async newId(): Promise<string> {
    if (this.settings.idPrefix === undefined) {
      const asked = this.send(["ACL", "WHOAMI"]); // a user without the right to ask sets idPrefix
      const name = await asked.catch((err) => (isFinal(err) ? "" : Promise.reject(err)));
      this.settings.idPrefix = name && name !== "default" ? `${String(name)}:` : "";
    }
    return `${this.settings.idPrefix}${++lastId}:${place}`;
  }

  /** @internal note logs that something has failed and will be tried again, not more often than noteEvery. */
  note(what: string, err: unknown): void {
    if (this.stop.signal.aborted || now() - this.noted < noteEvery) return;
    this.noted = now();
    this.log("warn", `${what}: failed, the Client will try again`, { err: String(err) });
  }

  /** @internal log drops what the logger throws, so that a fault of it stops nothing else. */
  log(level: keyof Logger, message: string, details: object): void {
    (async () => this.settings.logger[level](message, details))().catch(() => undefined);
  }
}
