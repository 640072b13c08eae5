import { now } from "./clock.js";
import type { Client } from "./client.js";
import { leaseOf, type Contender } from "./contenders.js";
import { isFinal, NotAcquiredError, UnavailableError } from "./errors.js";
import { giveBack, Lease } from "./lease.js";
import type { Stop } from "./stop.js";
import type { Notice } from "./subscriptions.js";
import type { Wait } from "./waits.js";
import { ownerOf, type Owner, type Reply } from "./wire.js";

const retryPause = 100; // doubles with each failed request, up to the TTL or retryPauseMax
const retryPauseMax = 2000;
const pollMax = 1000; // the longest pause of a waiter that gets neither outcomes nor notices

/** A Step is a reply, when its request was sent, and after which time the contender asks again. */
interface Step {
  reply: Reply;
  sent: number;
  again: number;
}

/**
 * An Attempt is the effort of one contender to own a mutex.
 *
 *     asking ──acquired──► Lease
 *      ▲ │ queued
 *      │ ▼
 *     waiting: for the outcome by SIMBA.NEXT, or, if there is none, for a notice or the lease's end
 *
 * Whatever ends the wait, the contender asks again, unless the outcome is a fresh grant.
 */
export class Attempt {
  private owner: Owner | undefined; // in the last reply
  private answered = false;
  private wait: Wait | undefined; // of the last request
  private flying: Promise<unknown> = Promise.resolve(); // settles with the last request
  private uncertain = false; // a request got no reply
  private present = false; // the server has said that it keeps something for the contender
  private polls = false; // the connection for outcomes could not be opened
  private listening: (() => void)[] = [];

  /** An attempt that asks once takes no queue entry. A contender with a last tenure goes on if refused. */
  constructor(
    private readonly client: Client,
    private readonly contender: Contender,
    private readonly stop: Stop,
    private readonly kind: { once: boolean; auto: boolean; last: number },
  ) {}

  /** why returns the error of an attempt that takes too long. */
  why(): unknown {
    if (this.stop.failure === undefined && this.answered) return new NotAcquiredError(this.contender.mutex, this.owner);
    return this.stop.failure ?? new UnavailableError("the server has not replied");
  }

  /** run asks until the contender owns the mutex. After an error the caller must call giveUp. */
  async run(): Promise<Lease> {
    const { client, contender, stop, kind } = this;
    for (let pause = retryPause; ; ) {
      let again: number;
      try {
        let step = await this.ask();
        const { status } = step.reply;
        if (status === "queued" || (status === "busy" && !kind.once)) step = await this.await(step);
        const lease = await this.own(step);
        if (lease) return lease;
        if (kind.once) throw this.why();
        pause = retryPause;
        again = step.again;
      } catch (err) {
        if (stop.stopped) throw stop.reason;
        again = 0;
        if (!client.shorten(contender, err)) {
          stop.failure = err;
          if (kind.once || (isFinal(err) && kind.last === 0)) throw err;
          client.failed(contender, err);
          again = pause * (0.5 + Math.random());
          pause = Math.min(2 * pause, contender.ttl, retryPauseMax);
        }
      }
      await stop.sleep(again);
    }
  }

  /**
   * ask sends an ACQUIRE. If the connection for outcomes is open, the request waits there. If not, it
   * takes no queue entry, unless the contender polls.
   */
  private async ask(): Promise<Step> {
    const { client, kind } = this;
    this.forget();
    if (this.stop.stopped) throw this.stop.reason;
    this.wait = kind.once ? undefined : client.waits.add();
    const sent = now();
    const asking = client.wire.acquire(this.contender, kind.once || (!this.wait && !this.polls), this.wait);
    this.flying = asking.catch(() => undefined);
    const reply = await this.stop.wait(asking).catch((err: unknown) => {
      this.uncertain = true;
      throw err;
    });
    client.answered(this.contender);
    this.answered = true;
    this.stop.failure = undefined;
    this.owner = ownerOf(reply);
    this.present ||= reply.status !== "busy";
    return { reply, sent, again: retryPause };
  }

  /** await opens the connection for outcomes, waits there, or, without it, polls. */
  private async await(step: Step): Promise<Step> {
    const { waits, wire } = this.client;
    if (step.reply.status === "busy") {
      await this.stop.wait(waits.open());
      this.polls = !waits.isOpen;
      return { ...step, again: 0 };
    }
    if (!step.reply.request || !this.wait) {
      this.polls = false; // try again to open the connection
      this.subscribe();
      return { ...step, again: this.contendIn(step.reply) };
    }
    const outcome = await this.stop.wait(this.wait.outcome);
    if (outcome instanceof Error) throw outcome;
    // Without an outcome the connection has ended: not all waiters of a server ask at once.
    if (!outcome) return { ...step, again: Math.random() * retryPause };
    if (outcome.status !== "acquired" || now() - step.sent < leaseOf(this.contender) / 3) {
      return { ...step, reply: outcome };
    }
    const sent = now(); // the lease counts from the ACQUIRE, and may be over
    return { reply: await wire.guard(this.contender, outcome.token), sent, again: 0 };
  }

  /** own begins the tenure of a grant. Without one the contender asks again. */
  private async own({ reply, sent }: Step): Promise<Lease | undefined> {
    const { client, contender, kind, stop } = this;
    if (stop.stopped) throw stop.reason;
    if (reply.status !== "acquired" && reply.status !== "renewed") return undefined;
    if (reply.token === kind.last) {
      // The tenure has ended in this process. End it there, too, so that each tenure begins once.
      await stop.wait(client.wire.release(contender.mutex, contender.id, reply.token));
      return undefined;
    }
    const lease = new Lease(client, contender, kind.auto, reply, sent);
    if (lease.left() <= 0) throw new UnavailableError("the reply took longer than the lease");
    contender.lease = lease;
    this.end();
    lease.act();
    return lease;
  }

  /**
   * contendIn returns when a waiter that gets no notice asks again: about the end of the owner's lease.
   * A random part keeps the waiters from asking at the same moment.
   */
  private contendIn({ ttl, transition }: Reply): number {
    const late = transition === ttl ? Math.random() * 1000 : Math.random() * 1200 - 200;
    return Math.min(transition + late, this.client.subscriptions.denied ? pollMax : 60_000);
  }

  private subscribe(): void {
    if (this.listening.length > 0) return;
    const { mutex, id } = this.contender;
    const changed = (notice: Notice): void => void (notice?.startsWith("acquired@@") || this.stop.wake());
    const channels = [`simba:{${mutex}}:${id}`, `simba:{${mutex}}`];
    this.listening = channels.map((channel) => this.client.subscriptions.add(channel, changed));
  }

  /** forget ends the interest in the last request. */
  private forget(): void {
    if (this.wait) this.client.waits.remove(this.wait);
    this.wait = undefined;
  }

  private end(): void {
    this.forget();
    for (const remove of this.listening) remove();
  }

  /**
   * giveUp ends an attempt that has brought no tenure. It releases what the server may keep, and never
   * rejects. A named contender says what that is, since its id may have a later tenure.
   */
  async giveUp(): Promise<void> {
    const { client, contender, wait } = this;
    const { mutex, id, named } = contender;
    this.end();
    if (!this.present && !this.uncertain) return client.contenders.remove(contender);
    contender.leaving = true;
    await this.flying; // a RELEASE must not overtake it
    const via = named && !this.uncertain && client.waits.isOpen ? wait : undefined;
    await giveBack(client, contender, async () => void (await client.wire.release(mutex, id, via)));
  }
}
