import { ClosedError, requestError, UnavailableError } from "./errors.js";
import { within } from "./time.js";

/** An IoRedis is a client of ioredis 5 or 6 for one server, or with sentinels. */
export interface IoRedis {
  readonly isCluster: boolean;
  duplicate(override?: object): unknown;
  call(command: string, ...args: string[]): Promise<unknown>;
}

/** A NodeRedis is a client that createClient of redis (node-redis) has made. */
export interface NodeRedis {
  readonly isOpen: boolean;
  duplicate(overrides?: object): unknown;
  sendCommand(args: readonly string[]): Promise<unknown>;
}

/** A Redis is a client, or a function that returns one for each new connection. */
export type Redis = IoRedis | NodeRedis | (() => IoRedis | NodeRedis | Promise<IoRedis | NodeRedis>);

/** A Raw is a client of ioredis or node-redis. They have different methods to send and to close. */
interface Raw extends IoRedis, NodeRedis {
  connect(): Promise<unknown>;
  disconnect(): void;
  destroy(): void;
  subscribe(channel: string, listener?: (payload: string, channel: string) => void): Promise<unknown>;
  unsubscribe(channel: string): Promise<unknown>;
  on(event: string, listener: (...args: never[]) => void): void;
}

/**
 * A Connection is one connection to the server. It never connects again and sends no command twice,
 * so whoever uses it knows which requests may have been lost.
 */
export type Connection = Awaited<ReturnType<typeof dial>>;

const ioredisOptions = {
  ...{ lazyConnect: true, retryStrategy: null, reconnectOnError: null, failoverDetector: false },
  ...{ autoResendUnfulfilledCommands: false, enableOfflineQueue: false, enableAutoPipelining: false },
  ...{ enableReadyCheck: false, monitor: false, stringNumbers: false, keyPrefix: "" },
  ...{ commandTimeout: undefined, socketTimeout: undefined, blockingTimeout: undefined },
  disconnectTimeout: 100,
};
const nodeRedisOptions = {
  ...{ disableOfflineQueue: true, maintNotifications: "disabled", pingInterval: undefined },
  ...{ clientSideCache: undefined, emitInvalidate: false },
  ...{ commandOptions: undefined, commandsQueueMaxLength: undefined },
};

/** isIoRedis tells the clients apart, and throws a TypeError if it knows neither. */
export function isIoRedis(redis: IoRedis | NodeRedis): redis is IoRedis {
  const usable = typeof redis?.duplicate === "function" && !("slots" in redis);
  if (usable && "call" in redis && !redis.isCluster) return true;
  if (usable && "isOpen" in redis) return false;
  throw new TypeError("redis is neither a Redis of ioredis nor what createClient of redis returns");
}

/**
 * dial opens a connection. It calls ended when that ends, and message with the channel of each message.
 */
export async function dial(redis: Redis, limit: number, ended = (): void => {}, message = (_channel: string): void => {}) {
  const given = typeof redis === "function" ? await within(limit, (async () => redis())()) : redis;
  const io = isIoRedis(given);
  const { socket } = (given as { options?: { socket?: object } }).options ?? {};
  const once = { reconnectStrategy: false, connectTimeout: limit, socketTimeout: undefined };
  const options = io ? { ...ioredisOptions, connectTimeout: limit } : { ...nodeRedisOptions, socket: { ...socket, ...once } };
  const raw = given.duplicate(options) as Raw;
  const close = (): void => void (io ? raw.disconnect() : raw.isOpen && raw.destroy());
  let failure: unknown; // after a refused AUTH or SELECT, connect of ioredis resolves
  raw.on("error", (err: unknown) => {
    failure ??= err;
    if (!io && !raw.isOpen) ended(); // the last event of a connection of node-redis that breaks
  });
  raw.on("end", ended);
  raw.on("message", message);
  try {
    await within(limit, raw.connect());
    if (io && failure) throw failure;
  } catch (err) {
    close();
    throw requestError((io && failure) || err);
  }
  return {
    send: (args: readonly string[]): Promise<unknown> => (io ? raw.call(args[0]!, ...args.slice(1)) : raw.sendCommand(args)),
    subscribe: (channel: string): Promise<unknown> => (io ? raw.subscribe(channel) : raw.subscribe(channel, () => message(channel))),
    unsubscribe: (channel: string): Promise<unknown> => raw.unsubscribe(channel),
    close,
  };
}

/**
 * A Wire sends the requests of a Client on one connection, in a pipeline. When a request gets no reply,
 * the later ones take a new connection, and the old one is closed a little later.
 */
export class Wire {
  private closed = false;
  private opening: Promise<Connection> | undefined;

  constructor(private readonly redis: Redis, private readonly timeout: number) {}

  /**
   * send sends a request and returns its reply. Without one it rejects with an UnavailableError. Without
   * one after patience milliseconds, later requests take a new connection.
   */
  async send(args: string[], patience = this.timeout): Promise<unknown> {
    if (this.closed) throw new ClosedError();
    const opening: Promise<Connection> = (this.opening ??= dial(this.redis, this.timeout, () => this.retire(opening)));
    opening.catch(() => this.retire(opening));
    const timer = patience < this.timeout ? setTimeout(() => this.retire(opening), patience).unref() : undefined;
    let over = false; // a request that was given up must not be sent later
    try {
      return await within(this.timeout, opening.then((connection) => (over ? undefined : connection.send(args))));
    } catch (err) {
      if (err instanceof UnavailableError) this.retire(opening);
      throw requestError(err);
    } finally {
      over = true;
      clearTimeout(timer);
    }
  }

  private retire(opening: Promise<Connection>): void {
    if (this.opening !== opening) return;
    this.opening = undefined;
    setTimeout(() => end(opening), this.timeout).unref();
  }

  close(): void {
    this.closed = true;
    end(this.opening);
  }
}

/** end closes a connection, when it is open. */
export function end(opening: Promise<Connection> | undefined): void {
  opening?.then((connection) => connection.close()).catch(() => undefined);
}
