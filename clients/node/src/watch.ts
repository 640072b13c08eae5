import type { Client } from "./client.js";
import { UnavailableError } from "./errors.js";
import { fieldsOf } from "./lock.js";

/** A State is what watch has seen of a mutex: its present state, or one change. */
export interface State {
  /** The owner after the change; undefined if the mutex is free. */
  readonly owner: { readonly id: string; readonly token: number } | undefined;
  /** The change. "present" is the first state, or one before which changes are missing. */
  readonly event: "present" | "acquired" | "released" | "expired" | "broken";
  /** Why, see the server's reference of notices; often "". */
  readonly reason: string;
  /** When the change was made, by the server's clock; undefined for a present state. */
  readonly at: Date | undefined;
}

type Change = { at: number; event: State["event"] | "queued" | "left"; owner: string; token: number; reason: string };

/** A Watcher follows the changes of one mutex by the server's history, so it depends on no notice. */
export class Watcher {
  private owner: State["owner"];
  private newest = -1; // the largest token so far; -1 = nothing is known

  constructor(private readonly client: Client, private readonly mutex: string) {}

  /** read returns what is new. After a refusal of the first read it rejects. */
  async read(): Promise<State[]> {
    const { client, mutex } = this;
    try {
      const present = await client.owner(mutex); // first, so that the history is not older
      const reply = (await client.wire.send(["SIMBA.HISTORY", mutex, "COUNT", "100"])) as unknown[];
      const changes = reply.map(fieldsOf) as unknown as Change[];
      const states = this.newest < 0 ? [] : this.follow(changes);
      if (this.newest >= 0 && (states.length > 0 || present?.token === this.owner?.token)) return states;
      this.newest = Math.max(present?.token ?? 0, ...changes.map(({ token }) => token));
      this.owner = present && { id: present.id, token: present.token };
      return [{ owner: this.owner, event: "present", reason: "", at: undefined }];
    } catch (err) {
      if (this.newest < 0 && !(err instanceof UnavailableError)) throw err;
      client.note(mutex, err);
      return [];
    }
  }

  private follow(changes: Change[]): State[] {
    const states: State[] = [];
    for (const { event, owner, token, reason, at } of changes) {
      if (event === "queued" || event === "left") continue;
      const begins = event === "acquired" && token > this.newest;
      if (!begins && (event === "acquired" || token !== this.owner?.token)) continue; // it is known
      this.owner = begins ? { id: owner, token } : undefined;
      this.newest = Math.max(this.newest, token);
      states.push({ owner: this.owner, event, reason, at: new Date(at) });
    }
    return states;
  }
}
