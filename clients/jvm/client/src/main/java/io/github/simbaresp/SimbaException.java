package io.github.simbaresp;

import io.lettuce.core.RedisCommandExecutionException;
import java.util.List;
import java.util.Optional;

/**
 * The errors of the client. If the server refuses a request for which a retry is useless, the
 * methods throw Lettuce's own {@link RedisCommandExecutionException} with the text of the error
 * reply.
 */
public class SimbaException extends RuntimeException {
    SimbaException(String message, Throwable cause) {
        super(message, cause);
    }

    /** Is thrown when another contender owns the mutex, or the limit of a wait has passed. */
    public static final class NotAcquired extends SimbaException {
        private final transient Owner owner;

        NotAcquired(String mutex, Owner owner, Throwable cause) {
            super("lock " + mutex + ": not acquired" + (owner != null ? ", " + owner.id() + " owns it"
                : cause != null ? ": " + cause.getMessage() : ", another waiter is next"), cause);
            this.owner = owner;
        }

        /**
         * Returns the owner in the server's last reply. It is empty if another waiter is next, or
         * if the owner is not known.
         */
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
            super("server unavailable: " + reason, cause);
        }
    }

    /** Is thrown if another contender of the client has the same mutex and id. */
    public static final class InUse extends SimbaException {
        final transient boolean leaving; // the release of the other contender has begun

        InUse(String contender, boolean leaving) {
            super(contender + (leaving ? " is being released" : " contends already"), null);
            this.leaving = leaving;
        }
    }

    /** Is thrown when the client is closed. */
    public static final class Closed extends SimbaException {

        Closed() {
            super("the client is closed", null);
        }
    }

    /** The beginnings of error replies after which a retry may succeed. */
    private static final List<String> TRANSIENT = List.of("TRYAGAIN", "OOM", "BUSY", "UNBLOCKED",
        "ERR max number of clients reached", "ERR max number of blocked clients reached");

    /** Translates an error of Lettuce or of a future to one that the client throws. */
    static RuntimeException of(Throwable failure) {
        Throwable reason = failure;
        for (Throwable t = failure; t != null; t = t.getCause()) {
            if (t instanceof SimbaException known) {
                return known;
            }
            if (t instanceof RedisCommandExecutionException reply) {
                return TRANSIENT.stream().anyMatch(reply.getMessage()::startsWith) ? new Unavailable(reply.getMessage(), reply) : reply;
            }
            reason = t;
        }
        return new Unavailable(reason.toString(), failure);
    }

    /**
     * Whether the server refuses the request: somebody must first change the request, a right or
     * the server.
     */
    static boolean refused(Throwable failure) {
        return failure instanceof RedisCommandExecutionException;
    }

    /**
     * Returns the longest lease in ms that the server grants, if an error says that; otherwise 0.
     */
    static long tooLong(RuntimeException error) {
        String[] words = error.getMessage().split(" ", 3);
        return words.length == 3 && words[0].equals("TOOLONG") && words[1].matches("\\d{1,12}") ? Long.parseLong(words[1]) : 0;
    }
}
