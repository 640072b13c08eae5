// The states of a worker that works while it holds a lock.
//
//	        START                done               done
//	  idle ───────► acquiring ─────────► starting ─────────► working ◄──────┐
//	   ▲             ▲     │ error                error │     │ it is due   │ done
//	   │             │     ▼                            ▼     ▼             │
//	   │             └── waiting ◄──────────────── pausing ◄── renewing ────┘
//	   │                                                  error
//	releasing ◄── cleanup ◄── STOP, in any state
//
// Each state calls a service: an async function that gets an AbortSignal. Only one service runs at a
// time. STOP aborts the signal and waits until the running service ends. So no service runs after
// the release of the lock.
import { EventEmitter } from "node:events";

export const states = {
  acquiring: { invoke: "acquireLock", done: "starting", error: "waiting" },
  starting: { invoke: "startWork", done: "working", error: "pausing" }, // once in each tenure
  working: { invoke: "renewalIsDue", done: "renewing", error: "renewing" },
  renewing: { invoke: "renewLock", done: "working", error: "pausing" },
  pausing: { invoke: "stopWork", done: "waiting", error: "waiting" },
  waiting: { invoke: "waitForTurn", done: "acquiring", error: "acquiring" },
  cleanup: { invoke: "stopWork", done: "releasing", error: "releasing" },
  releasing: { invoke: "releaseLock", done: "idle", error: "idle" },
};

// LockMachine emits the events "state" (to, from) and "failed" (state, error).
export class LockMachine extends EventEmitter {
  state = "idle";
  #services;
  #running = Promise.resolve();
  #stop = new AbortController();

  constructor(services) {
    super();
    this.#services = services;
  }

  // start begins to try for the lock. The machine can be started again after each stop.
  start() {
    if (this.state !== "idle") throw new Error(`it is ${this.state}, not idle`);
    this.#stop = new AbortController();
    this.#enter("acquiring");
    this.#running = this.#run(this.#stop.signal);
  }

  // stop stops the work and releases the lock, and resolves when that is done.
  async stop() {
    this.#stop.abort();
    await this.#running;
  }

  async #run(stop) {
    while (this.state !== "idle") {
      const { invoke, done, error } = states[this.state];
      let next = done;
      try {
        await this.#services[invoke](stop);
      } catch (err) {
        this.emit("failed", this.state, err);
        next = error;
      }
      const cleaning = this.state === "cleanup" || this.state === "releasing";
      this.#enter(stop.aborted && !cleaning ? "cleanup" : next);
    }
  }

  #enter(state) {
    const from = this.state;
    this.state = state;
    this.emit("state", state, from);
  }
}
