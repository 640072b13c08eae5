package io.github.simbaresp;

import static io.lettuce.core.codec.StringCodec.UTF8;
import static java.util.concurrent.TimeUnit.SECONDS;

import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.api.StatefulRedisConnection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/**
 * The connection on which SIMBA.NEXT returns the outcomes of all waits of a client. It opens when
 * a contender finds that it has to wait, and closes when nobody has waited for 30 s. When it
 * breaks, all its waits end with {@link #GONE}, and their contenders ask again.
 */
final class Waits {
    /** The outcome of a wait whose connection has ended. */
    static final SimbaException GONE = new SimbaException.Unavailable("the connection for outcomes has ended", null);
    private static final long NEXT = 2_000; // how long a NEXT waits for an outcome, in ms
    private static final long BROKEN_AFTER = 3; // seconds without a reply
    private static final long IDLE_AFTER = 30_000_000_000L;
    /** How long contenders poll after the server has refused SIMBA.NEXT. */
    private static final long REFUSED_PAUSE = 60_000_000_000L;

    /** One request that may wait at the server. */
    record Wait(String waiter, long number, CompletableFuture<Reply> outcome) {
        List<Object> args() {
            return List.of("VIA", waiter, "REQUEST", number);
        }
    }

    private final Core core;
    private final Map<Long, Wait> all = new HashMap<>(); // this and what follows is guarded by this
    private CompletableFuture<Boolean> opened; // null = there is no connection
    private String bound; // the waiter's name; null = the connection is not open
    private long last; // the number of the last wait
    private long used; // when the connection was opened, or the last wait ended
    private long refused = Clock.rough() - REFUSED_PAUSE; // when the server refused SIMBA.NEXT

    Waits(Core core) {
        this.core = core;
    }

    /**
     * Adds a wait for a request that is about to be sent. Returns null if the connection is not
     * open.
     */
    synchronized Wait add() {
        if (bound == null) {
            return null;
        }
        Wait wait = new Wait(bound, ++last, new CompletableFuture<>());
        all.put(wait.number, wait);
        return wait;
    }

    /** Ends the interest in a wait. */
    synchronized void remove(Wait wait) {
        if (wait != null) {
            all.remove(wait.number);
            used = Clock.rough();
        }
    }

    /** Opens the connection. The result is whether it is open. It never fails. */
    synchronized CompletableFuture<Boolean> open() {
        if (opened == null && Clock.rough() - refused < REFUSED_PAUSE) {
            return CompletableFuture.completedFuture(false);
        }
        if (opened == null) {
            opened = new CompletableFuture<>();
            core.run(this::collect);
        }
        return opened;
    }

    /** Uses one connection, from its begin to its end. */
    private void collect() {
        String waiter = Ids.random();
        CompletableFuture<StatefulRedisConnection<String, String>> connection = Link.connect(core, redis -> redis.connect(UTF8));
        RuntimeException cause = null;
        try {
            StatefulRedisConnection<String, String> c = connection.get(BROKEN_AFTER, SECONDS);
            Link.dispatch(c, Command.NEXT, waiter, 0).get(BROKEN_AFTER, SECONDS);
            bind(waiter);
            while (!isIdle()) {
                List<Object> outcomes = Link.dispatch(c, Command.NEXT, waiter, NEXT).get(BROKEN_AFTER, SECONDS);
                outcomes.forEach(outcome -> deliver(Reply.of((List<?>) outcome)));
            }
        } catch (Exception e) {
            cause = SimbaException.of(e);
        }
        connection.thenAccept(core::close); // the server hands on what was not received
        end(cause);
    }

    private synchronized void bind(String waiter) {
        bound = waiter;
        used = Clock.rough();
        opened.complete(true);
    }

    private synchronized boolean isIdle() {
        if (all.isEmpty() && Clock.rough() - used > IDLE_AFTER) {
            bound = null; // so that no wait is added any more
        }
        return bound == null;
    }

    private synchronized void end(RuntimeException cause) {
        if (SimbaException.refused(cause)) {
            core.log.error("the server refuses SIMBA.NEXT; waiters poll instead: {}", cause.getMessage());
            refused = Clock.rough();
        }
        opened.complete(false);
        opened = null;
        bound = null;
        all.values().forEach(wait -> wait.outcome.completeExceptionally(GONE));
        all.clear();
    }

    private void deliver(Reply outcome) {
        Wait wait;
        synchronized (this) {
            wait = all.remove(outcome.number("request"));
            used = Clock.rough();
        }
        if (wait != null && outcome.has("error")) {
            wait.outcome.completeExceptionally(SimbaException.of(new RedisCommandExecutionException(outcome.text("error"))));
        } else if (wait != null) {
            wait.outcome.complete(outcome);
        } else if (!outcome.has("error") && outcome.is("acquired")) {
            core.giveBack(outcome);
        }
    }
}
