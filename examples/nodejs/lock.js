// A mutex of simba-resp over ioredis, for one contender.
import { EventEmitter, once } from "node:events";
import os from "node:os";

// Milliseconds on a clock that nobody sets and that goes on while the machine sleeps.
const now = () => os.uptime() * 1000;

// How long a request may take, and the pause after one that failed.
const TIMEOUT = 3000;
const PAUSE = 500;

export class NotOwner extends Error {}

export class Lock extends EventEmitter {
  token = 0; // fencing token of the present tenure; 0 = not the owner
  #redis;
  #subscriber;
  #args; // mutex, contender, ttl, TRANSITION, transition
  #ttl;
  #lease; // ttl + transition
  #until = 0; // when we give the lease up, on our clock
  #renewAt = 0;
  #askAt = 0; // when to ask again, as long as nobody calls us
  #called = false; // since the last request

  // The redis client is made with enableOfflineQueue and autoResendUnfulfilledCommands false: a
  // request that was given up must not be sent later. ttl and transition are milliseconds.
  constructor(redis, { mutex, contender, ttl, transition }) {
    super();
    this.#redis = redis;
    this.#args = [mutex, contender, ttl, "TRANSITION", transition];
    this.#ttl = ttl;
    this.#lease = ttl + transition;

    // The server calls a waiter on its own channel when it is its turn, and on the mutex' channel
    // when it is nobody's. There an owner hears of another, should an administrator have broken its tenure.
    const ours = `simba:{${mutex}}:${contender}`;
    const everybodys = `simba:{${mutex}}`;
    this.#subscriber = redis.duplicate({ enableOfflineQueue: true });
    this.#subscriber.on("message", (channel, payload) => {
      const news = this.token !== 0 ? payload !== `acquired@@${contender}` : payload.startsWith("released@@");
      if (channel === ours || news) this.#call();
    });
    this.#subscriber.on("ready", () => this.#call()); // we may have missed something
    this.#subscriber.on("error", () => {}); // of this the other connection tells
    this.#subscriber.subscribe(ours, everybodys).catch(() => {}); // it is repeated with each new connection
  }

  // held tells whether we own the mutex at this moment. It reads the clock: a process that was
  // frozen knows at once when it wakes.
  held() {
    return this.token !== 0 && now() < this.#until;
  }

  // acquire asks once. It rejects with NotOwner when another has the mutex.
  async acquire() {
    this.#askAt = now() + PAUSE * (1 + Math.random());
    const { reply, sent } = await this.#ask(TIMEOUT, "SIMBA.ACQUIRE", ...this.#args);
    if (reply.status !== "acquired" && reply.status !== "renewed") {
      // At the end of the owner's lease, but not all at the same moment.
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

  // renew renews the lease, and tries to until it is over. It rejects when the lock is lost.
  async renew(signal) {
    while (this.held() && !signal.aborted) {
      try {
        const { reply, sent } = await this.#ask(this.#until - now(), "SIMBA.GUARD", ...this.#args, "TOKEN", this.token);
        if (reply.status === "renewed") return this.#hold(sent);
        this.#until = 0; // another may have it
      } catch {
        await this.#sleep(Math.min(now() + 100, this.#until), signal); // and try again
      }
    }
    if (!this.held()) {
      this.token = 0;
      this.#askAt = now() + PAUSE * (1 + Math.random());
      throw new NotOwner("the lease could not be renewed");
    }
  }

  // release gives up the mutex, or the place in its queue. It resolves with true if we owned it.
  async release() {
    this.token = 0;
    const [mutex, contender] = this.#args;
    const { reply } = await this.#ask(TIMEOUT, "SIMBA.RELEASE", mutex, contender);
    return reply === 1;
  }

  close() {
    this.#subscriber.disconnect();
  }

  // hold begins the windows anew: from before the request was sent, so that we never believe to own
  // the mutex for longer than the server does. The margin is for clocks that do not run alike.
  #hold(sent) {
    this.#until = sent + this.#lease * 0.99 - 20;
    this.#renewAt = sent + Math.min(this.#ttl, (this.#lease * 2) / 3);
  }

  // ask makes a request and gives it up after limit. A record comes as names and values in turn.
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

  // sleep resolves at that time, when we are called, or when the signal says so.
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
