import { dial, end, type Connection, type Redis } from "./connections.js";
import { now } from "./time.js";

const redialAfter = 1000;

/**
 * Notices has the connection for the channels of a Client. A message is only a hint, because it can be
 * lost: whoever gets it asks the server.
 */
export class Notices {
  private connection: Promise<Connection> | undefined;
  private channels = new Set<string>(); // that the connection has asked for
  private dialed = -Infinity;

  constructor(private readonly redis: Redis, private readonly timeout: number, private readonly message: (channel: string) => void) {}

  /** listen subscribes to these channels and to no others. Without channels it closes the connection. */
  async listen(want: Set<string>): Promise<void> {
    if (want.size === 0) return this.close();
    if (!this.connection && now() - this.dialed < redialAfter) return;
    if (!this.connection) this.dialed = now();
    const ended = (): void => void (this.connection === opening && this.close());
    const opening: Promise<Connection> = (this.connection ??= dial(this.redis, this.timeout, ended, this.message));
    opening.catch(ended);
    const connection = await opening;
    if (this.connection !== opening) return;
    const added = [...want].filter((channel) => !this.channels.has(channel));
    const gone = [...this.channels].filter((channel) => !want.has(channel));
    this.channels = want;
    await Promise.all([...added.map((name) => connection.subscribe(name)), ...gone.map((name) => connection.unsubscribe(name))]);
  }

  close(): void {
    end(this.connection);
    this.connection = undefined;
    this.channels = new Set();
  }
}
