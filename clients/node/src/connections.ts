import { within } from "./clock.js";

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

/**
 * A Connection is one connection to the server. It never connects again and sends no command twice,
 * so whoever uses it knows which requests may have been lost.
 */
export interface Connection {
  send(args: readonly string[]): Promise<unknown>;
  subscribe(channel: string): Promise<unknown>;
  unsubscribe(channel: string): Promise<unknown>;
  close(): void;
}

/** A Dial opens a connection. It calls ended when that ends, and message for each message. */
export type Dial = (ended: () => void, message?: Message) => Promise<Connection>;
type Message = (channel: string, payload: string) => void;

/** A Raw is a client of ioredis or node-redis. They have different methods to send and to close. */
interface Raw extends IoRedis, NodeRedis {
  connect(): Promise<unknown>;
  disconnect(): void;
  destroy(): void;
  subscribe(channel: string, listener: (payload: string, channel: string) => void): Promise<unknown>;
  subscribe(channel: string): Promise<unknown>;
  unsubscribe(channel: string): Promise<unknown>;
  on(event: string, listener: (...args: never[]) => void): void;
}

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

/** dialer returns a Dial that takes at most limit milliseconds. */
export function dialer(redis: Redis, limit: number): Dial {
  if (typeof redis !== "function") isIoRedis(redis);
  return async (ended, message = () => undefined) => {
    const given = typeof redis === "function" ? await within(limit, (async () => redis())()) : redis;
    return isIoRedis(given) ? openIoRedis(given, limit, ended, message) : openNodeRedis(given, limit, ended, message);
  };
}

function isIoRedis(redis: IoRedis | NodeRedis): redis is IoRedis {
  const usable = typeof redis?.duplicate === "function" && !("slots" in redis);
  if (usable && "call" in redis && !redis.isCluster) return true;
  if (usable && "isOpen" in redis) return false;
  throw new TypeError("redis is neither a Redis of ioredis nor what createClient of redis returns");
}

async function openIoRedis(redis: IoRedis, limit: number, ended: () => void, message: Message): Promise<Connection> {
  const raw = redis.duplicate({ ...ioredisOptions, connectTimeout: limit }) as Raw;
  let failure: unknown; // after a refused AUTH or SELECT, connect resolves
  raw.on("error", (err: unknown) => (failure ??= err));
  raw.on("end", ended);
  raw.on("message", message);
  try {
    await within(limit, raw.connect());
    if (failure) throw failure;
  } catch (err) {
    raw.disconnect();
    throw failure ?? err;
  }
  return {
    send: ([command, ...args]) => raw.call(command!, ...args),
    subscribe: (channel) => raw.subscribe(channel),
    unsubscribe: (channel) => raw.unsubscribe(channel),
    close: () => raw.disconnect(),
  };
}

async function openNodeRedis(redis: NodeRedis, limit: number, ended: () => void, message: Message): Promise<Connection> {
  const { options } = redis as { options?: { socket?: object } };
  const once = { reconnectStrategy: false, connectTimeout: limit, socketTimeout: undefined };
  const raw = redis.duplicate({ ...nodeRedisOptions, socket: { ...options?.socket, ...once } }) as Raw;
  const listener = (payload: string, channel: string): void => message(channel, payload);
  const close = (): void => void (raw.isOpen && raw.destroy());
  raw.on("error", () => raw.isOpen || ended()); // the last event of a connection that breaks
  await within(limit, raw.connect()).catch((err: unknown) => {
    close();
    throw err;
  });
  return {
    send: (args) => raw.sendCommand(args),
    subscribe: (channel) => raw.subscribe(channel, listener),
    unsubscribe: (channel) => raw.unsubscribe(channel),
    close,
  };
}
