package io.github.simbaresp;

import io.lettuce.core.RedisClient;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.protocol.CommandType;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What all calls of a client share: connections, threads, and the contenders. */
final class Core {
    /** The first pause after a failed request, in nanoseconds. */
    static final long PAUSE = 100_000_000;
    private static final long RELEASE_PAUSE_MOST = 1_000_000_000;
    /**
     * How often a client checks whether the machine was suspended: timers stand still then. A
     * timer that fires often also saves the others from waking the timers' thread when they are
     * set.
     */
    private static final long TICK = 200_000_000;
    private static final long LOG_EVERY = 10_000_000_000L;
    private static final ThreadFactory DAEMONS = body -> {
        Thread thread = new Thread(body, "simba-resp");
        thread.setDaemon(true);
        return thread;
    };

    final Logger log = LoggerFactory.getLogger(SimbaClient.class);
    final RedisClient redis;
    final Link link = new Link(this);
    final Waits waits = new Waits(this);
    final Notices notices = new Notices(this);
    final ExecutorService threads = Executors.newCachedThreadPool(DAEMONS); // may block
    final Set<StatefulConnection<?, ?>> connections = ConcurrentHashMap.newKeySet();
    final Set<Running> running = ConcurrentHashMap.newKeySet(); // leaders and watchers
    volatile long longest = Long.MAX_VALUE; // the server's longest lease in ms, if it is known
    private final ScheduledThreadPoolExecutor timers = new ScheduledThreadPoolExecutor(1, DAEMONS, new ThreadPoolExecutor.DiscardPolicy());
    private final Map<String, Attempt> contenders = new ConcurrentHashMap<>(); // until the server keeps nothing for them
    private final CompletableFuture<Void> closing = new CompletableFuture<>();
    private final CompletableFuture<Void> empty = new CompletableFuture<>(); // closed, and without contenders
    private volatile long suspended = Clock.suspended();
    private volatile long logged = Clock.rough() - LOG_EVERY;
    private volatile String prefix; // null = not known yet

    Core(RedisClient redis) {
        this.redis = redis;
        timers.setRemoveOnCancelPolicy(true);
        after(TICK, this::tick);
    }

    boolean isClosed() {
        return closing.isDone();
    }

    void checkOpen() {
        if (isClosed()) {
            throw new SimbaException.Closed();
        }
    }

    void close(long timeout) {
        closing.complete(null);
        contenders.values().forEach(Attempt::abort);
        running.forEach(Running::stop);
        if (contenders.isEmpty()) {
            empty.complete(null);
        }
        try {
            await(empty, timeout);
        } finally {
            timers.shutdownNow();
            threads.shutdown();
            connections.forEach(this::close);
        }
    }

    void close(StatefulConnection<?, ?> connection) {
        if (connections.remove(connection)) {
            connection.closeAsync();
        }
    }

    /**
     * Adds a contender. It refuses a second one with the same id: the server would treat the two
     * as one.
     */
    void enter(Attempt a) {
        checkOpen();
        Attempt other = contenders.putIfAbsent(a.key(), a);
        if (other != null) {
            throw new SimbaException.InUse(a.key(), other.leaving);
        }
        if (isClosed()) {
            leave(a);
        }
    }

    void leave(Attempt a) {
        contenders.remove(a.key(), a);
        if (isClosed() && contenders.isEmpty()) {
            empty.complete(null);
        }
    }

    private void tick() {
        long slept = Clock.suspended();
        if (slept != suspended) {
            suspended = slept;
            contenders.values().stream().map(a -> a.lease).filter(Objects::nonNull).forEach(Lease::renewNow);
        }
        after(TICK, this::tick);
    }

    /**
     * Returns what new ids begin with: the option, or the name of the user, as the server demands.
     */
    CompletableFuture<String> prefix(Terms terms) {
        String known = terms.options.idPrefix() != null ? terms.options.idPrefix() : prefix;
        return known != null ? CompletableFuture.completedFuture(known)
            : link.send(terms.timeout(), CommandType.ACL, "WHOAMI").thenApply(user -> {
                prefix = user.get(0).equals("default") ? "" : user.get(0) + ":";
                return prefix;
            });
    }

    CompletableFuture<Reply> acquire(Terms t, Waits.Wait wait, boolean noQueue) {
        List<Object> how = wait != null ? List.of("WAIT", 0) : noQueue ? List.of("NOQUEUE") : List.of();
        List<Object> via = wait != null ? wait.args() : List.of();
        return link.send(t.timeout(), Command.ACQUIRE, t.mutex, t.id, t.ttl, "TRANSITION", t.grace, how, via).thenApply(Reply::of);
    }

    CompletableFuture<Reply> guard(CompletableFuture<StatefulRedisConnection<String, String>> connection, Terms t, long token, long timeout) {
        return link.send(connection, timeout, Command.GUARD, t.mutex, t.id, t.ttl, "TRANSITION", t.grace, "TOKEN", token).thenApply(Reply::of);
    }

    /**
     * Ends the tenure of the token, or what the wait has brought. With neither it ends all that
     * the server keeps.
     */
    CompletableFuture<Boolean> release(Terms t, long token, Waits.Wait wait) {
        List<Object> what = token != 0 ? List.of("TOKEN", token) : wait != null ? wait.args() : List.of();
        return link.send(t.timeout(), Command.RELEASE, t.mutex, t.id, what).thenApply(Core::isOne);
    }

    /** Repeats a release until the server replies or refuses it, or the lease would be over. */
    CompletableFuture<Boolean> release(Terms terms, Supplier<CompletableFuture<Boolean>> release) {
        CompletableFuture<Boolean> result = new CompletableFuture<>();
        until(Clock.rough() + terms.lease(), PAUSE, release, result);
        return result;
    }

    private void until(long end, long pause, Supplier<CompletableFuture<Boolean>> release, CompletableFuture<Boolean> result) {
        release.get().whenComplete((released, failure) -> {
            if (failure == null) {
                result.complete(released);
            } else if (SimbaException.refused(SimbaException.of(failure)) || Clock.rough() > end) {
                result.completeExceptionally(SimbaException.of(failure));
            } else {
                after(pause, () -> until(end, Math.min(2 * pause, RELEASE_PAUSE_MOST), release, result));
            }
        });
    }

    /**
     * Releases a tenure that nobody waits for. A contender that still asks learns of it by its
     * next request.
     */
    void giveBack(Reply outcome) {
        Terms terms = new Terms(outcome.text("mutex"), new Options().id(outcome.text("owner")));
        Attempt a = contenders.get(terms.mutex + " " + terms.id);
        if (a == null || (a.lease == null ? a.leaving : a.lease.token() != outcome.token())) {
            release(terms, outcome.token(), null);
        }
    }

    static boolean isOne(List<Object> reply) {
        return Long.valueOf(1).equals(reply.get(0));
    }

    /** Logs a failed request, at most every 10 s. */
    void noteFailure(String what, RuntimeException failure) {
        if (Clock.rough() - logged >= LOG_EVERY) {
            logged = Clock.rough();
            log.warn("{}: {}; will try again", what, failure.getMessage());
        }
    }

    /** Runs body on the one thread that keeps time. Body must not block. */
    Future<?> after(long nanos, Runnable body) {
        return timers.schedule(body, nanos, TimeUnit.NANOSECONDS);
    }

    /** Runs body on a thread that it may block. */
    void run(Runnable body) {
        try {
            threads.execute(body);
        } catch (RejectedExecutionException e) {
            log.debug("the client is closed", e);
        }
    }

    /** Waits for the time. Throws if the client is closed. */
    void sleep(long nanos) throws InterruptedException {
        try {
            closing.get(nanos, TimeUnit.NANOSECONDS);
        } catch (TimeoutException | ExecutionException e) {
            return;
        }
        throw new SimbaException.Closed();
    }

    static <T> T get(CompletableFuture<T> future) throws InterruptedException {
        try {
            return future.get();
        } catch (ExecutionException e) {
            throw SimbaException.of(e);
        }
    }

    /** Waits for a release. An interrupt stays set, and does not end the wait. */
    static void await(CompletableFuture<?> release, long nanos) {
        boolean interrupted = Thread.interrupted();
        try {
            release.get(nanos, TimeUnit.NANOSECONDS);
        } catch (ExecutionException e) {
            throw SimbaException.of(e);
        } catch (TimeoutException e) {
            throw new SimbaException.Unavailable("no reply to the release in time; it goes on in the background", e);
        } catch (InterruptedException e) {
            interrupted = true;
            await(release, nanos);
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
