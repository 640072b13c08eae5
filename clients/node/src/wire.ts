import { rest, within } from "./clock.js";
import type { Connection, Dial } from "./connections.js";
import { ClosedError, requestError, UnavailableError } from "./errors.js";
import type { Contender } from "./contenders.js";

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

/** A Via names a request whose outcome SIMBA.NEXT returns. */
export interface Via {
  readonly waiter: string;
  readonly n: number;
}

/** A Reply is the reply to ACQUIRE and GUARD, or an outcome of NEXT. */
export interface Reply {
  /** The number of the request, if NEXT will return its outcome. */
  readonly request?: number | null;
  readonly status: "acquired" | "renewed" | "queued" | "busy" | "lost" | "timeout";
  /** The owner's id; "" if there is none. */
  readonly owner: string;
  readonly token: number;
  readonly ttl: number;
  readonly transition: number;
}

/** fieldsOf returns a record, which is a map in RESP3, and a list of names and values in RESP2. */
export function fieldsOf(reply: unknown): Record<string, unknown> {
  if (!Array.isArray(reply)) return reply as Record<string, unknown>;
  const fields: Record<string, unknown> = {};
  for (let i = 0; i + 1 < reply.length; i += 2) fields[String(reply[i])] = reply[i + 1];
  return fields;
}

export function ownerOf({ owner, token, ttl, transition }: Reply): Owner | undefined {
  return owner ? { id: owner, token, ttl, transition } : undefined;
}

/**
 * A Wire sends the requests of a Client on one connection, in a pipeline. When a request gets no reply,
 * the later ones take a new connection, and the old one is closed a little later.
 */
export class Wire {
  closed = false;
  private opening: Promise<Connection> | undefined;

  constructor(
    private readonly dial: Dial,
    private readonly timeout: number,
  ) {}

  ask(...args: string[]): Promise<unknown> {
    return this.send(args);
  }

  /**
   * send sends a request and returns its reply. Without a reply after patience milliseconds, later
   * requests take a new connection. After limit it rejects with an UnavailableError.
   */
  private async send(args: string[], limit = this.timeout, patience = limit): Promise<unknown> {
    if (this.closed) throw new ClosedError();
    const opening = (this.opening ??= this.open());
    const timer = patience < limit ? setTimeout(() => this.retire(opening), patience).unref() : undefined;
    let over = false; // a request that was given up must not be sent later
    const sent = opening.then((connection) => (over ? undefined : connection.send(args)));
    try {
      return await within(limit, sent);
    } catch (err) {
      if (err instanceof UnavailableError) this.retire(opening);
      throw requestError(err);
    } finally {
      over = true;
      clearTimeout(timer);
    }
  }

  private open(): Promise<Connection> {
    const retire = (): void => this.retire(opening);
    const opening = this.dial(retire);
    opening.catch(retire);
    return opening;
  }

  private retire(opening: Promise<Connection>): void {
    if (this.opening !== opening) return;
    this.opening = undefined;
    const end = async (): Promise<void> => (await opening).close();
    void rest(this.timeout).then(end, end).catch(() => undefined);
  }

  /** close closes the connection. */
  close(): void {
    this.closed = true;
    this.opening?.then((connection) => connection.close()).catch(() => undefined);
  }

  /** acquire asks for a mutex. With via, NEXT brings the outcome of the wait. */
  async acquire(c: Contender, noQueue: boolean, via: Via | undefined): Promise<Reply> {
    const args = ["SIMBA.ACQUIRE", c.mutex, c.id, `${c.ttl}`, "TRANSITION", `${c.grace}`];
    if (noQueue) args.push("NOQUEUE");
    else if (via) args.push("WAIT", "0", "VIA", via.waiter, "REQUEST", `${via.n}`);
    return fieldsOf(await this.send(args)) as unknown as Reply;
  }

  /** guard renews the lease of the tenure with this token. */
  async guard(c: Contender, token: number, limit?: number, patience?: number): Promise<Reply> {
    const args = ["SIMBA.GUARD", c.mutex, c.id, `${c.ttl}`, "TRANSITION", `${c.grace}`, "TOKEN", `${token}`];
    return fieldsOf(await this.send(args, limit, patience)) as unknown as Reply;
  }

  /**
   * release ends the tenure with this token, or what the request of a via has brought. With neither it
   * ends any tenure of the contender and removes its queue entry.
   */
  async release(mutex: string, id: string, what?: number | Via): Promise<boolean> {
    const args = ["SIMBA.RELEASE", mutex, id];
    if (typeof what === "number") args.push("TOKEN", `${what}`);
    else if (what) args.push("VIA", what.waiter, "REQUEST", `${what.n}`);
    return (await this.send(args)) === 1;
  }

  async owner(mutex: string): Promise<Owner | undefined> {
    const reply = await this.send(["SIMBA.OWNER", mutex]);
    return reply === null ? undefined : ownerOf(fieldsOf(reply) as unknown as Reply);
  }
}
