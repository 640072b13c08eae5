import type { Client } from "./client.js";
import { ClosedError, SimbaError, UnavailableError } from "./errors.js";
import { now, within } from "./time.js";

/** A RedisClient is a Redis of ioredis 5 or 6, or what createClient of redis (node-redis) 5 or 6 returns. */
export interface RedisClient {
  duplicate(options?: object): unknown;
}

/** A Redis is a client, or a function that returns one for each new connection. */
export type Redis = RedisClient | (() => RedisClient | Promise<RedisClient>);

/** A Raw is a client of ioredis or node-redis. They have different methods to send and to close. */
interface Raw extends RedisClient {
  readonly options?: { readonly socket?: object };
  call?(...args: string[]): Promise<unknown>;
  sendCommand(args: readonly string[]): Promise<unknown>;
  connect(): Promise<unknown>;
  subscribe(channel: string, ...listener: ((message: string, channel: string) => void)[]): Promise<unknown>;
  unsubscribe(channel: string): Promise<unknown>;
  on(event: string, listener: (...args: never[]) => void): void;
  disconnect(): void;
  destroy(): void;
  readonly isOpen?: boolean;
}

// A connection never connects again, so it resends nothing. Each client ignores the options of the other.
const once = {
  // ioredis
  lazyConnect: true, retryStrategy: null, reconnectOnError: null, enableOfflineQueue: false,
  enableReadyCheck: false, stringNumbers: false, keyPrefix: "", commandTimeout: undefined,
  // node-redis
  disableOfflineQueue: true, maintNotifications: "disabled", commandOptions: undefined,
};

/** known returns the client of a single server, or throws a TypeError if it does not know it. */
export function known(redis: RedisClient): Raw {
  const usable = typeof redis?.duplicate === "function" && ("call" in redis || "isOpen" in redis);
  if (usable && !("slots" in redis) && !("isCluster" in redis && redis.isCluster)) return redis as Raw;
  throw new TypeError("redis is neither a Redis of ioredis nor what createClient of redis returns");
}

export const unavailable = (): Error => new UnavailableError("the server does not reply in time");

/** isFinal reports whether it is useless to try again after err: the server has refused the request. */
export function isFinal(err: unknown): boolean {
  if (err instanceof SimbaError) return err instanceof ClosedError;
  if (!(err instanceof Error) || "code" in err) return false; // a fault of the network has a code
  const transient = /^(TRYAGAIN|OOM|BUSY|UNBLOCKED|ERR max number of (blocked )?clients reached)/;
  return /^[A-Z]+ /.test(err.message) && !transient.test(err.message);
}

/** requestError returns a refusal as it is, and any other fault as an UnavailableError. */
export function requestError(cause: unknown): Error {
  if (isFinal(cause) || cause instanceof UnavailableError) return cause as Error;
  const { message, code } = cause as NodeJS.ErrnoException;
  return new UnavailableError(`the server is unavailable: ${message || code}`, { cause });
}

/**
 * A Connection is one connection to the server. It never connects again and sends no command twice,
 * so whoever uses it knows which requests may have been lost.
 */
export class Connection {
  /** It is of no use for new requests. It is closed a little later. */
  ended = false;
  readonly opened = now();
  private closed = false;
  private raw: Raw | undefined;
  private readonly ready: Promise<Raw>;
  private channels = new Set<string>(); // that it has asked for

  /** It opens at once. */
  constructor(private readonly client: Client) {
    this.ready = within(client.settings.timeout, this.connect(), [], unavailable);
    this.ready.catch(() => this.close());
  }

  private async connect(): Promise<Raw> {
    const { redis, settings } = this.client;
    const given = known(typeof redis === "function" ? await redis() : redis);
    if (this.closed) throw unavailable();
    const limits = { connectTimeout: settings.timeout, socketTimeout: undefined };
    const socket = { ...given.options?.socket, ...limits, reconnectStrategy: false };
    const raw = (this.raw = given.duplicate({ ...once, ...limits, socket }) as Raw);
    let failure: unknown; // after a refused AUTH or SELECT, connect of ioredis resolves
    raw.on("error", (err: unknown) => {
      failure ??= err;
      if (!raw.isOpen) this.end(); // the last event of a connection of node-redis that breaks
    });
    raw.on("end", () => this.end());
    raw.on("message", (channel: string) => this.client.noticed(channel));
    await raw.connect().catch((err: unknown) => (failure ??= err));
    if (failure) throw failure;
    return raw;
  }

  /**
   * send sends a request and returns its reply. Without one it rejects with an UnavailableError. Without
   * one after patience milliseconds, the connection counts as ended, but the reply may still come.
   */
  async send(args: string[], patience = Infinity, timeout = this.client.settings.timeout): Promise<unknown> {
    const timer = patience < timeout ? setTimeout(() => this.end(), patience).unref() : undefined;
    try {
      const sent = this.ready.then((raw) => (raw.call ? raw.call(...args) : raw.sendCommand(args)));
      return await within(timeout, sent, [], unavailable);
    } catch (err) {
      if (err instanceof UnavailableError) this.end();
      throw requestError(err);
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * listen subscribes to these channels and to no others. A message is only a hint, because it can be
   * lost: whoever gets it asks the server.
   */
  async listen(want: Set<string>): Promise<void> {
    const raw = await this.ready;
    const changed = [...want, ...this.channels].filter((name) => want.has(name) !== this.channels.has(name));
    this.channels = want;
    const notify = raw.call ? [] : [(_: string, channel: string) => this.client.noticed(channel)];
    const apply = (name: string) => (want.has(name) ? raw.subscribe(name, ...notify) : raw.unsubscribe(name));
    await Promise.all(changed.map(apply));
  }

  private end(): void {
    if (!this.ended) setTimeout(() => this.close(), this.client.settings.timeout).unref();
    this.ended = true;
  }

  close(): void {
    this.closed = this.ended = true;
    const hangUp = (raw?: Raw): unknown => (raw?.call ? raw.disconnect() : raw?.isOpen && raw.destroy());
    // A client that still connects may ignore it.
    this.ready.catch(() => this.raw).then(hangUp).catch(() => undefined);
  }
}
