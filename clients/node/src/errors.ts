import type { Owner } from "./lock.js";

/**
 * A NotAcquiredError is the error of tryLock when another contender owns the mutex or is next, and of
 * lock when the time of its option wait has passed. Owner is the one in the last reply; undefined
 * means that another waiter is next.
 */
export class NotAcquiredError extends Error {
  override readonly name = "NotAcquiredError";
  constructor(readonly mutex: string, readonly owner: Owner | undefined) {
    super(`mutex ${mutex} not acquired: ${owner ? `${owner.id} owns it` : "another waiter is next"}`);
  }
}

/**
 * A LostError says that the lease was not renewed in time, or that SIMBA.BREAK ended it. Another
 * contender may have changed what the mutex protects.
 */
export class LostError extends Error { override readonly name = "LostError"; }

/** An UnavailableError says that the server or its store did not answer. A later try may succeed. */
export class UnavailableError extends Error { override readonly name = "UnavailableError"; }

/** An InUseError says that another contender of the Client has the same mutex and id. */
export class InUseError extends Error { override readonly name = "InUseError"; }

/** A ClosedError says that the Client is closed. */
export class ClosedError extends Error {
  override readonly name = "ClosedError";
  constructor() {
    super("the Client is closed");
  }
}

/** isRefusal reports whether err is an error reply after which it is useless to ask again. */
export function isRefusal(err: unknown): err is Error {
  if (!(err instanceof Error) || "code" in err) return false; // a fault of the network has a code
  const transient = /^(TRYAGAIN|OOM|BUSY|UNBLOCKED|ERR max number of (blocked )?clients reached)/;
  return /^[A-Z]+ /.test(err.message) && !transient.test(err.message);
}

/** isFinal reports whether it is useless to try again after err. */
export const isFinal = (err: unknown): boolean => err instanceof ClosedError || isRefusal(err);

/** requestError returns a refusal as it is, and any other fault as an UnavailableError. */
export function requestError(cause: unknown): Error {
  if (isFinal(cause) || cause instanceof UnavailableError) return cause as Error;
  const { message, code } = cause as NodeJS.ErrnoException;
  return new UnavailableError(`the server is unavailable: ${message || code}`, { cause });
}
