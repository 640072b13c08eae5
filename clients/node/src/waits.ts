import { randomBytes } from "node:crypto";
import { now, within } from "./clock.js";
import type { Client } from "./client.js";
import type { Connection } from "./connections.js";
import { isRefusal, requestError } from "./errors.js";
import { fieldsOf, type Reply, type Via } from "./wire.js";

const nextWait = 2000; // how long SIMBA.NEXT waits for an outcome
const nextTimeout = 3000; // without a reply after that time, the connection is broken
const idleAfter = 30_000; // how long a connection is kept that nobody uses
const refusedPause = 60_000; // how long a Client polls after the server has refused SIMBA.NEXT

/** A Wait is one request that may wait at the server. Without an outcome the connection has ended. */
export interface Wait extends Via {
  readonly outcome: Promise<Reply | Error | undefined>;
  readonly settle: (outcome?: Reply | Error) => void;
}

/**
 * Waits has the connection on which SIMBA.NEXT returns the outcomes of all waits of a Client. It
 * opens when a contender has to wait, and closes when nobody has waited for idleAfter. When it ends,
 * its waits end without an outcome, and their contenders ask again.
 */
export class Waits {
  private opening: Promise<void> | undefined;
  private waiter = ""; // "" = the connection is not open
  private connection: Connection | undefined;
  private last = 0;
  private readonly all = new Map<number, Wait>();
  private used = 0;
  private refusedAt = -Infinity;

  constructor(private readonly client: Client) {}

  get isOpen(): boolean {
    return this.waiter !== "";
  }

  /** add returns a wait for a request that is about to be sent, if the connection is open. */
  add(): Wait | undefined {
    if (!this.isOpen) return undefined;
    let settle!: Wait["settle"];
    const outcome = new Promise<Reply | Error | undefined>((resolve) => (settle = resolve));
    const wait = { waiter: this.waiter, n: ++this.last, outcome, settle };
    this.all.set(wait.n, wait);
    return wait;
  }

  remove(wait: Wait): void {
    this.all.delete(wait.n);
    this.used = now();
  }

  /** open resolves when the connection is open or has failed. */
  async open(): Promise<void> {
    if (now() - this.refusedAt > refusedPause) await (this.opening ??= this.connect());
  }

  private async connect(): Promise<void> {
    const waiter = randomBytes(16).toString("hex");
    try {
      this.connection = await this.client.dial(() => undefined);
      await this.next(waiter, 0);
      this.waiter = waiter;
      void this.collect(waiter);
    } catch (err) {
      if (isRefusal(err)) {
        const text = "the server refuses SIMBA.NEXT; waiters poll instead";
        if (this.refusedAt === -Infinity) this.client.logger.error(text, { err });
        this.refusedAt = now();
      }
      this.end();
    }
  }

  private async collect(waiter: string): Promise<void> {
    this.used = now();
    try {
      while (!this.client.closed && (this.all.size > 0 || now() - this.used < idleAfter)) {
        for (const reply of await this.next(waiter, nextWait)) this.deliver(fieldsOf(reply));
      }
    } catch {
      // The connection has ended, and the waits with it.
    }
    this.end();
  }

  private async next(waiter: string, ms: number): Promise<unknown[]> {
    const reply = this.connection!.send(["SIMBA.NEXT", waiter, `${ms}`]);
    return (await within(nextTimeout, reply)) as unknown[];
  }

  private deliver(fields: Record<string, unknown>): void {
    const reply = fields as unknown as Reply & { request: number; mutex: string; error?: string };
    const wait = this.all.get(reply.request);
    if (wait) this.remove(wait);
    if (wait) wait.settle(reply.error ? requestError(new Error(reply.error)) : reply);
    else if (reply.status === "acquired") this.client.giveBack(reply.mutex, reply);
  }

  /** end closes the connection, so that the server hands on what this connection did not receive. */
  private end(): void {
    this.close();
    this.connection = this.opening = undefined;
    this.waiter = "";
    for (const wait of this.all.values()) wait.settle();
    this.all.clear();
  }

  close(): void {
    this.connection?.close();
  }
}
