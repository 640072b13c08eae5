import type { Client } from "./client.js";
import { Connection } from "./connections.js";
import { now } from "./time.js";

const redialAfter = 1000;

/**
 * Notices has the connection for the channels of a Client. A message is only a hint, because it can be
 * lost: whoever gets it asks the server.
 */
export class Notices {
  private connection: Connection | undefined;
  private channels = new Set<string>(); // that the connection has asked for
  private dialed = -Infinity;

  constructor(private readonly client: Client) {}

  /** listen subscribes to these channels and to no others. Without channels it closes the connection. */
  async listen(want: Set<string>): Promise<void> {
    if (want.size === 0) return this.close();
    if (!this.connection) {
      if (now() - this.dialed < redialAfter) return;
      this.dialed = now();
      const ended = (): void => void (this.connection === connection && this.close());
      const connection: Connection = new Connection(this.client, ended);
      this.connection = connection;
    }
    const { connection, channels } = this;
    this.channels = want;
    const changed = [...want, ...channels].filter((channel) => want.has(channel) !== channels.has(channel));
    await Promise.all(changed.map((channel) => connection.listen(channel, want.has(channel))));
  }

  close(): void {
    this.connection?.close();
    this.connection = undefined;
    this.channels = new Set();
  }
}
