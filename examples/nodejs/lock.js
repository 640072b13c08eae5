// A mutex of simba-resp over ioredis, for one contender.
import { EventEmitter, once } from "node:events";
import os from "node:os";

// now returns milliseconds on a clock that nobody can set, and that also runs while the machine is
// suspended.
const now = () => os.uptime() * 1000;

const TIMEOUT = 3000; // milliseconds that a request may take
const PAUSE = 500; // milliseconds between a failed request and the next one

export class NotOwner extends Error {}

export class Lock extends EventEmitter {
  token = 0; // fencing token of the present tenure; 0 = not the owner
  #redis;
  #subscriber;
  #args; // mutex, contender, ttl, TRANSITION, transition
  #ttl;
  #lease; // ttl + transition
  #until = 0; // when this process gives up the lease, by its clock
  #renewAt = 0;
  #askAt = 0; // when to ask again if no notice comes
  #called = false; // whether a notice has come since the last request

  // redis must have the options enableOfflineQueue and autoResendUnfulfilledCommands set to false.
  // Otherwise it could send a request after #ask has given the request up. ttl and transition are
  // in milliseconds.
  constructor(redis, { mutex, contender, ttl, transition }) {
    super();
    this.#redis = redis;
    this.#args = [mutex, contender, ttl, "TRANSITION", transition];
    this.#ttl = ttl;
    this.#lease = ttl + transition;

    // The server sends a notice on a waiter's own channel when the waiter is next. On the channel of
    // the mutex it announces a free mutex and each new owner. From this an owner learns that an
    // administrator has broken its tenure.
    const ours = `simba:{${mutex}}:${contender}`;
    const everybodys = `simba:{${mutex}}`;
    this.#subscriber = redis.duplicate({ enableOfflineQueue: true });
    this.#subscriber.on("message", (channel, payload) => {
      const news = this.token !== 0 ? payload !== `acquired@@${contender}` : payload.startsWith("released@@");
      if (channel === ours || news) this.#call();
    });
    this.#subscriber.on("ready", () => this.#call()); // notices may have been lost
    this.#subscriber.on("error", () => {}); // this.#redis reports errors
    this.#subscriber.subscribe(ours, everybodys).catch(() => {}); // ioredis retries on each new connection
  }

  // held returns whether this process owns the mutex now. It reads the clock, so the result is right
  // even after a freeze of the process.
  held() {
    return this.token !== 0 && now() < this.#until;
  }

  // acquire sends one request. It rejects with NotOwner when another contender owns the mutex.
  async acquire() {
    this.#askAt = now() + PAUSE * (1 + Math.random());
    const { reply, sent } = await this.#ask(TIMEOUT, "SIMBA.ACQUIRE", ...this.#args);
    if (reply.status !== "acquired" && reply.status !== "renewed") {
      // Ask at the end of the owner's lease. The random part spreads the requests of the waiters.
      const early = reply.transition > reply.ttl ? 200 : 0;
      this.#askAt = now() + reply.transition - early + Math.random() * (1000 + early);
      throw new NotOwner(`${reply.owner || "nobody yet"} has it`);
    }
    this.token = reply.token;
    this.#hold(sent);
    if (!this.held()) throw new Error("the answer took longer than the lease");
  }

  // turn resolves when it is time to ask again.
  turn(signal) {
    return this.#sleep(this.#askAt, signal);
  }

  // due resolves when it is time to renew.
  due(signal) {
    return this.#sleep(this.#renewAt, signal);
  }

  // renew renews the lease, and retries until the lease ends. It rejects when the lock is lost.
  async renew(signal) {
    while (this.held() && !signal.aborted) {
      try {
        const { reply, sent } = await this.#ask(this.#until - now(), "SIMBA.GUARD", ...this.#args, "TOKEN", this.token);
        if (reply.status === "renewed") return this.#hold(sent);
        this.#until = 0; // another contender may own the mutex
      } catch {
        await this.#sleep(Math.min(now() + 100, this.#until), signal); // then try again
      }
    }
    if (!this.held()) {
      this.token = 0;
      this.#askAt = now() + PAUSE * (1 + Math.random());
      throw new NotOwner("the lease could not be renewed");
    }
  }

  // release releases the mutex or the queue entry. It resolves with true if this process was the owner.
  async release() {
    this.token = 0;
    const [mutex, contender] = this.#args;
    const { reply } = await this.#ask(TIMEOUT, "SIMBA.RELEASE", mutex, contender);
    return reply === 1;
  }

  close() {
    this.#subscriber.disconnect();
  }

  // hold begins a new lease. The lease counts from the time before the request was sent, so it ends
  // here before it ends at the server. The margin is for clocks that run at different speeds.
  #hold(sent) {
    this.#until = sent + this.#lease * 0.99 - 20;
    this.#renewAt = sent + Math.min(this.#ttl, (this.#lease * 2) / 3);
  }

  // ask sends a request and gives it up after limit. If the reply is a record, ask returns an object.
  async #ask(limit, command, ...args) {
    this.#called = false;
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error("no answer in time")), limit);
    });
    try {
      if (this.#redis.status !== "ready") await Promise.race([once(this.#redis, "ready"), late]);
      const sent = now();
      const reply = await Promise.race([this.#redis.call(command, ...args), late]);
      return { reply: Array.isArray(reply) ? fields(reply) : reply, sent };
    } finally {
      clearTimeout(timer);
    }
  }

  #call() {
    this.#called = true;
    this.emit("called");
  }

  // sleep resolves at the given time, when a notice comes, or when the signal aborts.
  #sleep(at, signal) {
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        this.off("called", wake);
        signal.removeEventListener("abort", wake);
        resolve();
      };
      const timer = setTimeout(wake, Math.max(0, at - now()));
      this.on("called", wake);
      signal.addEventListener("abort", wake);
      if (this.#called || signal.aborted) wake();
    });
  }
}

function fields(reply) {
  const record = {};
  for (let i = 0; i + 1 < reply.length; i += 2) record[reply[i]] = reply[i + 1];
  return record;
}
