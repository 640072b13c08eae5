import { randomUUID } from "node:crypto";
import type { Client } from "./client.js";
import { Connection, isFinal, requestError } from "./connections.js";
import { UnavailableError } from "./errors.js";
import { fieldsOf, type Lock, type Reply } from "./lock.js";
import { now } from "./time.js";

const nextWait = 2000; // how long SIMBA.NEXT waits for an outcome
const nextTimeout = 3000; // without a reply after that time, the connection is broken
const idleRounds = 15; // a connection on which nobody waits is kept for so many SIMBA.NEXT
const refusedPause = 60_000; // how long a Client polls after the server has refused SIMBA.NEXT

/**
 * Waits has the connection on which SIMBA.NEXT returns the outcomes of all waits of a Client. It
 * opens when a contender has to wait, and closes when nobody has waited for 30 s. When it ends,
 * the waiter gets a new name, and the contenders ask again.
 */
export class Waits {
  /** The waiter's name. */
  name: string = randomUUID();
  /** The connection, if there is one. */
  connection: Connection | undefined;
  private last = 0;
  /** The contenders by the numbers of their last requests. */
  readonly all = new Map<number, Lock>();
  private refusedAt = -Infinity;

  constructor(private readonly client: Client) {}

  /** add gives a contender the number of the request that it is about to send. */
  add(lock: Lock): void {
    this.all.delete(lock.request);
    lock.request = ++this.last;
    lock.outcome = undefined;
    this.all.set(lock.request, lock);
  }

  /** open opens the connection, if there is none. */
  open(): void {
    if (this.connection || now() - this.refusedAt < refusedPause) return;
    this.connection = new Connection(this.client);
    void this.run(this.connection);
  }

  private async run(connection: Connection): Promise<void> {
    try {
      for (let ms = 0, idle = 0; idle < idleRounds; ms = nextWait) {
        const next = ["SIMBA.NEXT", this.name, `${ms}`];
        const replies = (await connection.send(next, Infinity, nextTimeout)) as unknown[];
        if (ms === 0) this.all.forEach((lock) => lock.wake()); // those that poll ask again
        idle = replies.length + this.all.size > 0 ? 0 : idle + 1;
        for (const reply of replies) this.deliver(fieldsOf(reply));
      }
    } catch (err) {
      if (isFinal(err)) this.refusedAt = now();
      this.client.note("waiters poll: SIMBA.NEXT", err);
    }
    connection.close(); // so that the server hands on what this connection did not receive
    this.connection = undefined;
    this.name = randomUUID();
    this.all.forEach((lock) => lock.deliver(new UnavailableError("the wait's connection has ended")));
    this.all.clear();
  }

  private deliver(reply: Reply & { request: number; mutex: string; error?: string }): void {
    const lock = this.all.get(reply.request);
    this.all.delete(reply.request);
    if (lock) lock.deliver(reply.error ? requestError(new Error(reply.error)) : reply);
    else if (reply.status === "acquired") this.client.giveBack(reply.mutex, reply);
  }
}
