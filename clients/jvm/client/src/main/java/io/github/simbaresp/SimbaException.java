package io.github.simbaresp;

import io.lettuce.core.RedisCommandExecutionException;
import java.util.Optional;
import java.util.regex.Pattern;

/**
 * The errors of the client. If the server refuses a request for which a retry is useless, the
 * methods throw Lettuce's own {@link RedisCommandExecutionException} with the text of the error
 * reply.
 */
public class SimbaException extends RuntimeException {
    SimbaException(String message, Throwable cause) {
        super(message, cause);
    }

    /** Is thrown when another contender owns the mutex or is next, at once or until the limit of a wait. */
    public static final class NotAcquired extends SimbaException {
        private final transient Owner owner;

        NotAcquired(String mutex, Owner owner) {
            super("lock " + mutex + ": not acquired, "
                + (owner != null ? owner.id() + " owns it" : "another waiter is next"), null);
            this.owner = owner;
        }

        /** Returns the owner in the server's last reply. It is empty if another waiter is next. */
        public Optional<Owner> owner() {
            return Optional.ofNullable(owner);
        }
    }

    /**
     * Is thrown by {@link Lock#close} if the lease was not renewed in time, or if somebody sent
     * {@code SIMBA.BREAK}. Another owner may have changed what the mutex protects.
     */
    public static final class Lost extends SimbaException {
        Lost(String mutex) {
            super("mutex " + mutex + " lost: another owner may have changed what it protects", null);
        }
    }

    /**
     * Is thrown when the server cannot be reached, does not reply in time, or cannot reach its
     * store. A later attempt may succeed.
     */
    public static final class Unavailable extends SimbaException {
        Unavailable(String reason, Throwable cause) {
            super(reason, cause);
        }
    }

    /** Is thrown if another contender of the client has the same mutex and id. */
    public static final class InUse extends SimbaException {
        InUse(String contender) {
            super(contender + " contends already", null);
        }
    }

    /** Is thrown when the client is closed. */
    public static final class Closed extends SimbaException {
        Closed() {
            super("the client is closed", null);
        }
    }

    /** The beginnings of error replies after which a retry may succeed. */
    private static final Pattern TRANSIENT =
        Pattern.compile("TRYAGAIN|OOM|BUSY|UNBLOCKED|ERR max number of (blocked )?clients reached");

    /** Translates an error of Lettuce or of a future to one that the client throws. */
    static RuntimeException of(Throwable failure) {
        if (failure instanceof SimbaException known) {
            return known;
        }
        if (failure instanceof RedisCommandExecutionException reply) {
            return !TRANSIENT.matcher(reply.getMessage()).lookingAt() ? reply
                : new Unavailable("server unavailable: " + reply.getMessage(), reply);
        }
        return failure.getCause() != null ? of(failure.getCause())
            : new Unavailable("server unavailable: " + failure, failure);
    }
}
