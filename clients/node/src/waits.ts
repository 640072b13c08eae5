import { randomBytes } from "node:crypto";
import type { Client } from "./client.js";
import { dial, type Connection } from "./connections.js";
import { isRefusal, requestError } from "./errors.js";
import { fieldsOf, type Reply } from "./lock.js";
import { now, within } from "./time.js";

const nextWait = 2000; // how long SIMBA.NEXT waits for an outcome
const nextTimeout = 3000; // without a reply after that time, the connection is broken
const idleAfter = 30_000; // how long a connection is kept that nobody uses
const refusedPause = 60_000; // how long a Client polls after the server has refused SIMBA.NEXT
const newName = (): string => randomBytes(16).toString("hex");

/** A Wait is one request that may wait at the server. Without an outcome the connection has ended. */
export type Wait = ReturnType<Waits["add"]>;

/**
 * Waits has the connection on which SIMBA.NEXT returns the outcomes of all waits of a Client. It
 * opens when a contender has to wait, and closes when nobody has waited for idleAfter. When it ends,
 * its waits end without an outcome, the waiter gets a new name, and the contenders ask again.
 */
export class Waits {
  /** The waiter's name, if the server knows it. */
  bound = "";
  private name = newName();
  private opening: Promise<void> | undefined;
  private connection: Connection | undefined;
  private last = 0;
  private readonly all = new Map<number, Wait>();
  private used = 0;
  private refusedAt = -Infinity;

  constructor(private readonly client: Client) {}

  /** add returns a wait for a request that is about to be sent. */
  add() {
    let settle!: (outcome?: Reply | Error) => void;
    const outcome = new Promise<Reply | Error | undefined>((resolve) => (settle = resolve));
    const wait = { waiter: this.name, n: ++this.last, outcome, settle };
    this.all.set(wait.n, wait);
    return wait;
  }

  remove(wait: Wait | undefined): void {
    if (wait && this.all.delete(wait.n)) this.used = now();
  }

  /** open resolves when the server knows the waiter, or the connection has failed. */
  async open(): Promise<void> {
    if (now() - this.refusedAt > refusedPause) await (this.opening ??= new Promise<void>((resolve) => void this.run(resolve)));
  }

  private async run(opened: () => void): Promise<void> {
    const { client, name } = this;
    this.used = now();
    try {
      const connection = (this.connection = await dial(client.redis, client.timeout));
      for (let ms = 0; !client.closed && (this.all.size > 0 || now() - this.used < idleAfter); ms = nextWait) {
        const replies = await within(nextTimeout, connection.send(["SIMBA.NEXT", name, `${ms}`]));
        this.bound = name;
        opened();
        for (const reply of replies as unknown[]) this.deliver(fieldsOf(reply));
      }
    } catch (err) {
      if (isRefusal(err)) this.refusedAt = now();
      client.note("waiters poll: SIMBA.NEXT", err);
    }
    this.close(); // so that the server hands on what this connection did not receive
    this.name = newName();
    this.bound = "";
    this.opening = this.connection = undefined;
    for (const wait of this.all.values()) wait.settle();
    this.all.clear();
    opened();
  }

  private deliver(fields: Record<string, unknown>): void {
    const reply = fields as unknown as Reply & { request: number; mutex: string; error?: string };
    const wait = this.all.get(reply.request);
    this.remove(wait);
    if (wait) wait.settle(reply.error ? requestError(new Error(reply.error)) : reply);
    else if (reply.status === "acquired") this.client.giveBack(reply.mutex, reply);
  }

  close(): void {
    this.connection?.close();
  }
}
