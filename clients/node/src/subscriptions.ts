import { now, rest, within } from "./clock.js";
import type { Client } from "./client.js";
import type { Connection } from "./connections.js";
import { isRefusal } from "./errors.js";

const pingEvery = 3000; // without a reply to a PING, the connection is replaced

/**
 * A Notice is the payload of a message. It is undefined when the server has confirmed a subscription,
 * before which messages may have been missed, and null when it has refused one.
 */
export type Notice = string | undefined | null;
type Listener = (notice: Notice) => void;

/**
 * Subscriptions are the channels of a Client, with their listeners. They share one connection. The
 * first listener opens it, and it is opened again when it breaks.
 */
export class Subscriptions {
  /** The server has refused a SUBSCRIBE since the last PING. */
  denied = false;
  private logged = false;
  private runs = false;
  private connection: Connection | undefined;
  private readonly channels = new Map<string, Set<Listener>>();

  constructor(private readonly client: Client) {}

  /** add adds a listener of a channel. The result removes it. */
  add(channel: string, listener: Listener): () => void {
    const listeners = this.channels.get(channel) ?? new Set();
    if (listeners.size > 0) queueMicrotask(() => listener(undefined));
    else void this.subscribe(channel);
    this.channels.set(channel, listeners.add(listener));
    if (!this.runs) void this.run();
    return () => {
      if (!listeners.delete(listener) || listeners.size > 0) return;
      this.channels.delete(channel);
      this.connection?.unsubscribe(channel).catch(() => undefined);
    };
  }

  private async subscribe(channel: string): Promise<void> {
    try {
      if (this.connection) await this.connection.subscribe(channel).then(() => this.deliver(channel, undefined));
    } catch (err) {
      if (!isRefusal(err) || this.denied) return; // or the connection has ended
      this.denied = true;
      const text = "the server refuses SUBSCRIBE: waiters poll, and an owner learns of a BREAK when it renews";
      if (!this.logged) this.client.logger.error(text, { err });
      this.logged = true;
      for (const name of this.channels.keys()) this.deliver(name, null);
    }
  }

  private deliver(channel: string, notice: Notice): void {
    for (const listener of this.channels.get(channel) ?? []) listener(notice);
  }

  /** run keeps a connection as long as there are listeners. */
  private async run(): Promise<void> {
    this.runs = true;
    for (let pause = 50; !this.client.closed && this.channels.size > 0; pause = Math.min(2 * pause, 2000)) {
      const began = now();
      await this.use().catch(() => undefined);
      this.close();
      if (now() - began > pingEvery) pause = 50;
      await rest(pause);
    }
    this.runs = false;
  }

  private async use(): Promise<void> {
    let broken!: () => void;
    const end = new Promise<void>((resolve) => (broken = resolve));
    this.connection = await this.client.dial(broken, (channel, payload) => this.deliver(channel, payload));
    for (let all = true; !this.client.closed && this.channels.size > 0; all = this.denied) {
      this.denied = false; // try once more
      if (all) for (const channel of this.channels.keys()) void this.subscribe(channel);
      await Promise.race([end, rest(pingEvery)]);
      await within(pingEvery, this.connection.send(["PING"])).catch((err: unknown) => {
        if (!isRefusal(err)) throw err;
      });
    }
  }

  close(): void {
    this.connection?.close();
    this.connection = undefined;
  }
}
