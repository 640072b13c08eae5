import type { Client } from "./client.js";
import { isFinal } from "./connections.js";
import { fieldsOf, type Owner } from "./lock.js";

type Change = { event: string; owner: string; token: number };

/** A State is the owner of a mutex at some time. */
export interface State {
  /** undefined: the mutex was free. */
  readonly owner: Owner | undefined;
}

/** A Watcher follows the owners of one mutex by the server's history, so it depends on no notice. */
export class Watcher {
  /** wake makes the watcher read now. */
  wake = (): void => undefined;
  private owner: Owner | undefined;
  private newest = -1; // the largest token so far; -1 = nothing is known

  constructor(private readonly client: Client, readonly mutex: string) {}

  /** read returns the states since the last call. */
  async read(): Promise<State[]> {
    const { client, mutex } = this;
    try {
      const present = await client.owner(mutex); // first, so that the history is not older
      const history = (await client.wire.send(["SIMBA.HISTORY", mutex, "COUNT", "100"])) as unknown[];
      const first = this.newest < 0;
      const states = history.flatMap((record) => this.follow(fieldsOf(record)));
      if (!first && (states.length > 0 || present?.token === this.owner?.token)) return states;
      this.newest = Math.max(this.newest, present?.token ?? 0);
      this.owner = present;
      return [{ owner: present }]; // the first owner, or one before whom changes are missing
    } catch (err) {
      if (this.newest < 0 && isFinal(err)) throw err;
      client.note(mutex, err);
      return [];
    }
  }

  /** follow returns the owner after a change that is new. */
  private follow({ event, owner: id, token }: Change): State[] {
    const begins = event === "acquired";
    if (begins ? token <= this.newest : token !== this.owner?.token) return [];
    this.newest = Math.max(this.newest, token);
    this.owner = begins ? { id, token } : undefined;
    return [{ owner: this.owner }];
  }
}
