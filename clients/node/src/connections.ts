import type { Client } from "./client.js";
import { ClosedError, SimbaError, UnavailableError } from "./errors.js";

/** A RedisClient is a Redis of ioredis 5 or 6, or what createClient of redis (node-redis) 5 or 6 returns. */
export interface RedisClient {
  duplicate(options?: object): unknown;
}

/** A Redis is a client, or a function that returns one for each new connection. */
export type Redis = RedisClient | (() => RedisClient | Promise<RedisClient>);

/** A Raw is a client of ioredis or node-redis. They have different methods to send and to close. */
interface Raw extends RedisClient {
  call?(...args: string[]): Promise<unknown>;
  sendCommand(args: readonly string[]): Promise<unknown>;
  connect(): Promise<unknown>;
  subscribe(channel: string, ...listener: (() => void)[]): Promise<unknown>;
  unsubscribe(channel: string): Promise<unknown>;
  on(event: string, listener: (...args: never[]) => void): void;
  disconnect(): void;
  destroy(): void;
  readonly isOpen: boolean;
}

// A connection never connects again, so it resends nothing.
const ioredisOptions = {
  lazyConnect: true,
  retryStrategy: null,
  reconnectOnError: null,
  enableOfflineQueue: false,
  enableReadyCheck: false,
  stringNumbers: false,
  keyPrefix: "",
  commandTimeout: undefined,
  socketTimeout: undefined,
};
const nodeRedisOptions = {
  disableOfflineQueue: true,
  maintNotifications: "disabled",
  commandOptions: undefined,
};

/** isIoRedis tells the clients apart, and throws a TypeError if it knows neither. */
export function isIoRedis(redis: RedisClient): boolean {
  const usable = typeof redis?.duplicate === "function" && !("slots" in redis);
  if (usable && "call" in redis && !("isCluster" in redis && redis.isCluster)) return true;
  if (usable && "isOpen" in redis) return false;
  throw new TypeError("redis is neither a Redis of ioredis nor what createClient of redis returns");
}

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
  private readonly ready: Promise<Raw>;

  /** It opens at once. It calls ended when it ends or cannot open. */
  constructor(private readonly client: Client, private readonly ended: () => void) {
    this.ready = this.dial(client);
    this.ready.catch(ended);
  }

  private async dial({ redis, timeout }: Client): Promise<Raw> {
    const given =
      typeof redis === "function" ? await this.client.within(timeout, (async () => redis())()) : redis;
    const io = isIoRedis(given);
    const { socket } = (given as { options?: { socket?: object } }).options ?? {};
    const once = { reconnectStrategy: false, connectTimeout: timeout, socketTimeout: undefined };
    const ioOptions = { ...ioredisOptions, connectTimeout: timeout };
    const nodeOptions = { ...nodeRedisOptions, socket: { ...socket, ...once } };
    const raw = given.duplicate(io ? ioOptions : nodeOptions) as Raw;
    let failure: unknown; // after a refused AUTH or SELECT, connect of ioredis resolves
    raw.on("error", (err: unknown) => {
      failure ??= err;
      if (!io && !raw.isOpen) this.ended(); // the last event of a connection of node-redis that breaks
    });
    raw.on("end", this.ended);
    raw.on("message", (channel: string) => this.client.noticed(channel));
    try {
      await this.client.within(timeout, raw.connect());
      if (io && failure) throw failure;
      return raw;
    } catch (err) {
      this.hangUp(raw);
      throw (io && failure) || err;
    }
  }

  /**
   * send sends a request and returns its reply. Without one it rejects with an UnavailableError. Without
   * one after patience milliseconds, the connection counts as ended, but the reply may still come.
   */
  async send(args: string[], timeout: number, patience = timeout): Promise<unknown> {
    let over = false; // a request that was given up must not be sent later
    if (patience < timeout) setTimeout(() => over || this.ended(), patience).unref();
    try {
      const sent = this.ready.then((raw) => over || (raw.call ? raw.call(...args) : raw.sendCommand(args)));
      return await this.client.within(timeout, sent);
    } catch (err) {
      if (err instanceof UnavailableError) this.ended();
      throw requestError(err);
    } finally {
      over = true;
    }
  }

  /** listen subscribes to a channel, or unsubscribes from it. */
  async listen(channel: string, on: boolean): Promise<void> {
    const raw = await this.ready;
    const listener = raw.call ? [] : [() => this.client.noticed(channel)];
    await (on ? raw.subscribe(channel, ...listener) : raw.unsubscribe(channel));
  }

  close(): void {
    this.ready.then(this.hangUp).catch(() => undefined);
  }

  private hangUp(raw: Raw): void {
    if (raw.call) raw.disconnect();
    else if (raw.isOpen) raw.destroy();
  }
}

/**
 * A Wire sends the requests of a Client on one connection, in a pipeline. When a request gets no reply,
 * the later ones take a new connection, and the old one is closed a little later.
 */
export class Wire {
  private closed = false;
  private connection: Connection | undefined;

  constructor(private readonly client: Client) {}

  /** send is that of Connection. */
  send(args: string[], patience?: number): Promise<unknown> {
    const { client } = this;
    if (this.closed) return Promise.reject(new ClosedError("the Client is closed"));
    const retire = (): void => {
      if (this.connection !== connection) return;
      this.connection = undefined;
      setTimeout(() => connection.close(), client.timeout).unref();
    };
    const connection: Connection = (this.connection ??= new Connection(client, retire));
    return connection.send(args, client.timeout, patience);
  }

  close(): void {
    this.closed = true;
    this.connection?.close();
  }
}
