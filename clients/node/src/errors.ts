import type { Owner } from "./lock.js";

/** A SimbaError is an error of this package. A refusal by the server is an error of the Redis client. */
export class SimbaError extends Error {
  override readonly name: string = this.constructor.name;
}

/**
 * A NotAcquiredError is the error of tryLock when another contender owns the mutex or is next, and of
 * lock when the time of its option wait has passed. Owner is the one in the last reply; undefined
 * means that another waiter is next.
 */
export class NotAcquiredError extends SimbaError {
  /** @internal */
  constructor(mutex: string, readonly owner: Owner | undefined) {
    super(`mutex ${mutex} not acquired: ${owner ? `${owner.id} owns it` : "another waiter is next"}`);
  }
}

/**
 * A LostError says that the lease was not renewed in time, or that SIMBA.BREAK ended it. Another
 * contender may have changed what the mutex protects.
 */
export class LostError extends SimbaError {}

/** An UnavailableError says that the server or its store did not answer. A later try may succeed. */
export class UnavailableError extends SimbaError {}

/** An InUseError says that another contender of the Client has the same mutex and id. */
export class InUseError extends SimbaError {}

/** A ClosedError says that the Client is closed. */
export class ClosedError extends SimbaError {}
