import type { Client } from "./client.js";
import { isFinal, isRefusal } from "./errors.js";
import type { Stop } from "./stop.js";
import { fieldsOf } from "./wire.js";

/** A State is what watch has seen of a mutex: its present state, or one change. */
export interface State {
  /** The owner after the change; undefined if the mutex is free. */
  readonly owner: { readonly id: string; readonly token: number } | undefined;
  /** The change. "present" is no change: the first state, or the one after a gap. */
  readonly event: "present" | "acquired" | "released" | "expired" | "broken";
  /** Why, see the server's reference of notices; often "". */
  readonly reason: string;
  /** When the change was made, by the server's clock; undefined for a present state. */
  readonly at: Date | undefined;
  /** The number of the change. A server gives later changes larger numbers. */
  readonly seq: number;
  /** Changes before this present state may be missing. */
  readonly gap: boolean;
}

const watchEvery = 15_000; // how often watch asks without a notice
const watchMost = 10_000; // how many changes the server returns at most

interface Change {
  seq: number;
  at: number;
  event: "acquired" | "released" | "expired" | "broken";
  owner: string;
  token: number;
  reason: string;
}

interface View {
  runId: string;
  changes: Change[];
  owner: State["owner"]; // after the changes, or later
}

/**
 * A Watcher reads the changes of one mutex. Notices only wake it: the server's history has what it
 * yields, so no notice can be lost.
 */
export class Watcher {
  private readonly log: { mutex: string; id: string; refused: boolean };
  private runId = ""; // of the server's run that counts seq; "" = not known yet
  private seq = 0; // of the last change
  private owner: State["owner"]; // after it
  private newest = 0; // the largest token so far
  private differs = false; // the server has reported another owner in the last read
  private gap = false; // changes are missing: only the present state can follow
  private pause = 0; // before the next read
  private unsubscribe: (() => void) | undefined;

  constructor(
    private readonly client: Client,
    private readonly mutex: string,
    private readonly stop: Stop,
  ) {
    this.log = { mutex, id: "", refused: false };
  }

  end(): void {
    this.unsubscribe?.();
  }

  /** read waits, and returns what is new. */
  async read(): Promise<State[]> {
    await this.stop.sleep(this.pause);
    try {
      const states = await this.stop.wait(this.news());
      this.client.answered(this.log);
      // Not before a read: if the user may not read the mutex, nobody needs its events.
      const channel = `simba-events:{${this.mutex}}`;
      this.unsubscribe ??= this.client.subscriptions.add(channel, () => this.stop.wake());
      this.pause = this.differs || this.client.subscriptions.denied ? 1000 : watchEvery;
      return states;
    } catch (err) {
      if (this.stop.stopped) throw this.stop.reason;
      if (isFinal(err) && this.runId === "") throw err;
      this.client.failed(this.log, err);
      this.pause = Math.min(2 * this.pause, 2000) || 100;
      return [];
    }
  }

  /** news returns the changes since the last read, or the present state. */
  private async news(): Promise<State[]> {
    if (this.runId !== "" && !this.gap) {
      const states = this.follow(await this.ask("SINCE", this.seq));
      if (states) return states;
      this.gap = true;
    }
    const { runId, changes, owner } = await this.ask("COUNT", 1);
    const { gap } = this;
    this.seq = changes.at(-1)?.seq ?? 0;
    this.newest = Math.max(owner?.token ?? 0, ...changes.map(({ token }) => token));
    Object.assign(this, { runId, owner, differs: false, gap: false });
    return [{ owner, event: "present", reason: "", at: undefined, seq: this.seq, gap }];
  }

  /** follow returns the changes in a view, or undefined if changes are missing. */
  private follow({ runId, changes, owner: present }: View): State[] | undefined {
    if (runId !== this.runId || changes.length >= watchMost) return undefined;
    const states: State[] = [];
    for (const { seq, event, owner, token, reason, at } of changes) {
      this.seq = seq;
      const begins = event === "acquired";
      if (begins && token > this.newest && !this.owner) this.owner = { id: owner, token };
      else if (!begins && token !== 0 && token === this.owner?.token) this.owner = undefined;
      else if (token > this.newest) return undefined; // the change before this one is not kept any more
      else continue; // of the queue, or older than the present state that was read
      this.newest = token;
      states.push({ owner: this.owner, event, reason, at: new Date(at), seq, gap: false });
    }
    // The owner may be newer than the changes. But then the next read has a change.
    const before = this.differs;
    this.differs = present?.token !== this.owner?.token;
    return before && this.differs && states.length === 0 ? undefined : states;
  }

  /** ask asks for the owner last, so that it is not older than the history. */
  private async ask(option: string, value: number): Promise<View> {
    const { wire } = this.client;
    const info = await wire.ask("INFO", "server").catch((err: unknown) => {
      if (isRefusal(err)) return ""; // then only another owner shows a restart of the server
      throw err;
    });
    const changes = (await wire.ask("SIMBA.HISTORY", this.mutex, option, `${value}`)) as unknown[];
    const owner = await wire.owner(this.mutex);
    return {
      runId: /run_id:(\S+)/.exec(String(info))?.[1] ?? "unknown",
      changes: changes.map(fieldsOf) as unknown as Change[],
      owner: owner && { id: owner.id, token: owner.token },
    };
  }
}
