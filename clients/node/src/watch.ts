import type { Client } from "./client.js";
import { isFinal } from "./connections.js";
import { fieldsOf, type Owner } from "./lock.js";

/** A State is the owner of a mutex at some time. */
export interface State {
  /** undefined: the mutex was free. */
  readonly owner: Owner | undefined;
  /** The change: acquired, released, expired or broken. "": the present state, at first or after a gap. */
  readonly event: string;
  /** Why; often "". */
  readonly reason: string;
}

type Change = Pick<State, "event" | "reason"> & { owner: string; token: number };

/**
 * follow returns a function that reads the owners of a mutex since its last call. It reads the server's
 * history, so it depends on no notice.
 */
export function follow(client: Client, mutex: string): () => Promise<State[]> {
  let owner: Owner | undefined;
  let newest = -1; // the largest token so far; -1 = nothing is known
  return async () => {
    const first = newest < 0;
    try {
      const present = await client.owner(mutex); // first, so that the history is not older
      const states: State[] = [];
      for (const record of (await client.send(["SIMBA.HISTORY", mutex, "COUNT", "100"])) as unknown[]) {
        const { event, reason, owner: id, token } = fieldsOf<Change>(record);
        const begins = event === "acquired";
        if (begins ? token <= newest : token !== owner?.token) continue;
        newest = Math.max(newest, token);
        owner = begins ? { id, token } : undefined;
        states.push({ owner, event, reason: reason ?? "" });
      }
      if (!first && (states.length > 0 || present?.token === owner?.token)) return states;
      newest = Math.max(newest, present?.token ?? 0);
      owner = present;
      return [{ owner, event: "", reason: "" }]; // the first owner, or one before whom changes are missing
    } catch (err) {
      if (first && isFinal(err)) throw err;
      client.note(mutex, err);
      return [];
    }
  };
}
