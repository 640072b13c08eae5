package io.github.simbaresp;

import static io.lettuce.core.codec.StringCodec.UTF8;
import static java.util.concurrent.TimeUnit.NANOSECONDS;

import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.api.StatefulRedisConnection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The connection on which SIMBA.NEXT returns the outcomes of all waits of a client. It opens when a
 * contender has to wait, and closes when nobody has waited for 30 s. When it ends, the waiter gets a
 * new name, its waits fail, and their contenders ask again.
 */
final class Waits {
    private static final long NEXT = 2_000; // how long a NEXT waits for an outcome, in ms
    private static final long BROKEN_AFTER = 3_000 * Core.MILLI; // without a reply
    private static final long IDLE_AFTER = 30_000 * Core.MILLI;
    private static final long REFUSED_PAUSE = 60_000 * Core.MILLI; // how long contenders poll after a refusal

    /** One request that may wait at the server. */
    record Wait(String waiter, long request, CompletableFuture<Reply> outcome) {}

    /** Of a contender that does not wait. */
    static final Wait NONE = new Wait("", 0, new CompletableFuture<>());

    private final Core core;
    private final Map<Long, Wait> all = new ConcurrentHashMap<>();
    private volatile String waiter = Core.random();
    private volatile boolean bound; // the server knows the waiter
    private volatile long used; // when the connection was opened, or the last wait ended
    private boolean runs; // guarded by this, as what follows
    private long last; // the last request
    private long refused = Clock.now() - REFUSED_PAUSE;

    Waits(Core core) {
        this.core = core;
    }

    /** Adds a wait for a request that is about to be sent. */
    synchronized Wait add() {
        Wait wait = new Wait(waiter, ++last, new CompletableFuture<>());
        all.put(wait.request, wait);
        return wait;
    }

    void remove(Wait wait) {
        all.remove(wait.request);
        used = Clock.now();
    }

    boolean isBound(Wait wait) {
        return bound && wait.waiter.equals(waiter);
    }

    /** Opens the connection, unless it is open or the server has refused it. */
    synchronized void start() {
        if (!runs && Clock.now() - refused >= REFUSED_PAUSE) {
            runs = true;
            used = Clock.now();
            core.threads.execute(this::collect);
        }
    }

    private void collect() {
        CompletableFuture<StatefulRedisConnection<String, String>> connection =
            Link.connect(core, redis -> redis.connect(UTF8));
        RuntimeException cause = null;
        try {
            StatefulRedisConnection<String, String> c = connection.get(BROKEN_AFTER, NANOSECONDS);
            for (long ms = 0; !all.isEmpty() || !core.isClosed() && Clock.now() - used <= IDLE_AFTER; ms = NEXT) {
                List<Object> outcomes = Link.dispatch(c, Command.NEXT, waiter, ms).get(BROKEN_AFTER, NANOSECONDS);
                if (ms == 0) {
                    bound = true;
                    core.contenders.values().forEach(contender -> contender.wake.release());
                }
                outcomes.forEach(outcome -> deliver(Reply.of(outcome)));
            }
        } catch (Exception e) {
            cause = SimbaException.of(e);
            core.note("SIMBA.NEXT", cause);
        }
        connection.thenAccept(core::close); // the server hands on what was not received
        end(cause instanceof RedisCommandExecutionException);
    }

    /** Ends all waits, also those that were added since the waiter has its name. */
    private synchronized void end(boolean isRefused) {
        refused = isRefused ? Clock.now() : refused;
        waiter = Core.random();
        bound = false;
        runs = false;
        all.values().forEach(wait -> wait.outcome.completeExceptionally(
            new SimbaException.Unavailable("the connection for outcomes has ended", null)));
        all.clear();
    }

    private void deliver(Reply outcome) {
        Wait wait = all.get(outcome.number("request"));
        if (wait != null) {
            wait.outcome.complete(outcome);
        } else if (outcome.text("error") == null && outcome.is("acquired")) {
            core.giveBack(outcome);
        }
    }
}
