package io.github.simbaresp;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.protocol.CommandType;
import java.lang.management.ManagementFactory;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What all calls of a client share: connections, threads, contenders, and the tick, which does what is
 * due for all tenures.
 */
final class Core {
    static final long MILLI = 1_000_000; // in nanoseconds
    static final long FOREVER = Long.MAX_VALUE / 4;
    /** The first pause before a request is repeated. */
    static final long PAUSE = 100 * MILLI;
    /** Timers stand still while the machine is suspended, so a client looks at its clock so often. */
    private static final long TICK = 200 * MILLI;
    private static final Pattern TOO_LONG = Pattern.compile("TOOLONG (\\d{1,12}) .*", Pattern.DOTALL);
    private static final SecureRandom RANDOM = new SecureRandom();
    private static final AtomicLong COUNTER = new AtomicLong();
    /** Tells processes with the same pid and host name apart, as in containers. */
    private static final String PROCESS = "~" + random().substring(0, 16);
    private static final String PID_AND_HOST =
        ManagementFactory.getRuntimeMXBean().getName().replaceAll("[^\\w.@-]", "");
    private static final ThreadFactory DAEMONS = body -> {
        Thread thread = new Thread(body, "simba-resp");
        thread.setDaemon(true);
        return thread;
    };

    final Logger log = LoggerFactory.getLogger(SimbaClient.class);
    final RedisClient redis;
    final long timeout;
    final ExecutorService threads = Executors.newCachedThreadPool(DAEMONS); // may block
    final Link link = new Link(this);
    final Waits waits = new Waits(this);
    final Notices notices = new Notices(this);
    final Set<StatefulConnection<?, ?>> connections = ConcurrentHashMap.newKeySet();
    private final Set<CompletableFuture<?>> changes = ConcurrentHashMap.newKeySet(); // of connections
    final Map<Semaphore, String> watchers = new ConcurrentHashMap<>(); // with the channels that wake them
    volatile long ttl; // of contenders that set none, in ms, as grace
    volatile long grace;
    final CompletableFuture<Void> closing = new CompletableFuture<>(); // fails when the client is closed
    private final boolean fits; // the default windows, which get shorter if the server demands it
    /** Shut down when the client is closed and all mutexes are released. Then connections are closed, too. */
    final ScheduledThreadPoolExecutor timers =
        new ScheduledThreadPoolExecutor(1, DAEMONS, new ThreadPoolExecutor.DiscardPolicy());
    final Map<String, Lock> contenders = new ConcurrentHashMap<>(); // until the server keeps nothing for them
    private final Set<String> noted = ConcurrentHashMap.newKeySet(); // the failures that were logged since notedFrom
    private volatile long notedFrom = Clock.now();
    private volatile String prefix; // of ids; null = not known yet
    private long tickAt = Long.MAX_VALUE; // guarded by this, as timer
    private Future<?> timer = CompletableFuture.completedFuture(null);

    Core(RedisClient redis, Options options) {
        this.redis = redis;
        timeout = options.timeout().toNanos();
        fits = options.ttl() == null && options.grace() == null;
        ttl = options.ttl() == null ? 10_000 : options.ttl().toMillis();
        grace = options.grace() != null ? options.grace().toMillis() : fits ? 2_000 : 0;
        prefix = options.idPrefix();
        timers.setRemoveOnCancelPolicy(true);
    }

    boolean isClosed() {
        return closing.isDone();
    }

    void checkOpen() {
        if (isClosed()) {
            throw new SimbaException.Closed();
        }
    }

    void close() {
        closing.completeExceptionally(new SimbaException.Closed());
        contenders.values().forEach(Lock::hangUp);
        watchers.keySet().forEach(Semaphore::release);
        Stream<CompletableFuture<?>> gone = contenders.values().stream().map(lock -> lock.gone);
        try {
            await(CompletableFuture.allOf(gone.toArray(CompletableFuture<?>[]::new)).handle((done, failure) -> true));
        } finally {
            timers.shutdownNow();
            connections.forEach(this::close);
            // Lettuce complains about open connections when its client is shut down.
            for (long end = Clock.now() + 1_000 * MILLI; !changes.isEmpty() && Clock.now() < end; ) {
                LockSupport.parkNanos(MILLI);
            }
        }
    }

    void close(StatefulConnection<?, ?> connection) {
        if (connections.remove(connection)) {
            pending(connection.closeAsync());
        }
    }

    /** Makes the close of the client wait a little for a connection that opens or closes. */
    <T> CompletableFuture<T> pending(CompletableFuture<T> change) {
        changes.add(change);
        change.whenComplete((done, failure) -> changes.remove(change));
        return change;
    }

    /** Adds a contender. The server would treat a second one with the same id as the first. */
    void enter(Lock lock) {
        Lock other = contenders.putIfAbsent(lock.key(), lock);
        if (other != null && other != lock) {
            throw !other.leaving.get() ? new SimbaException.InUse(lock.key())
                : new SimbaException.Unavailable("the last tenure of " + lock.key() + " is not released yet", null);
        }
        checkOpen();
    }

    /** Makes the next tick come at that time or earlier. After it, there are ticks as long as somebody needs them. */
    synchronized void wakeAt(long time) {
        long next = Math.min(time, Clock.now() + TICK);
        if (next < tickAt) {
            timer.cancel(false);
            tickAt = next;
            timer = after(next - Clock.now(), this::tick);
        }
    }

    private void tick() {
        synchronized (this) {
            tickAt = Long.MAX_VALUE;
        }
        if (!contenders.isEmpty() || !watchers.isEmpty()) {
            wakeAt(Core.FOREVER); // first, whatever fails
        }
        Set<String> want = new HashSet<>(watchers.values());
        contenders.values().forEach(lock -> wakeAt(lock.act(Clock.now(), want)));
        notices.listen(want);
    }

    /** Makes those who want a channel ask the server at once. */
    void noticed(String channel) {
        contenders.values().stream().filter(lock -> lock.channel().equals(channel)).forEach(Lock::noticed);
        watchers.entrySet().stream().filter(e -> e.getValue().equals(channel)).forEach(e -> e.getKey().release());
    }

    /** Releases a tenure that nobody waits for. A contender that still asks learns of it by its next request. */
    void giveBack(Reply outcome) {
        String id = outcome.text("owner");
        Lock lock = contenders.get(outcome.text("mutex") + " " + id);
        if (lock == null || (lock.token() == 0 ? lock.leaving.get() : lock.token() != outcome.number("token"))) {
            link.send(timeout, timeout, Command.RELEASE, outcome.text("mutex"), id, "TOKEN", outcome.number("token"));
        }
    }

    /** Asks for the owner of a mutex; null = it is free. */
    CompletableFuture<Owner> owner(String mutex) {
        return link.send(timeout, timeout, Command.OWNER, mutex).thenApply(reply ->
            reply.isEmpty() || reply.get(0) == null ? null : Reply.of(reply).owner());
    }

    /** Whether an error says that the default windows are too long. Then they get shorter. */
    boolean shortens(Throwable error) {
        Matcher m = TOO_LONG.matcher(String.valueOf(error.getMessage()));
        long longest = fits && m.matches() ? Long.parseLong(m.group(1)) : 0;
        if (longest > 1 && longest < ttl + grace) { // or another contender has shortened them
            log.warn("the server refuses the default lease: {}", error.getMessage());
            ttl = longest * 5 / 6;
            grace = longest - ttl;
        }
        return longest > 1;
    }

    /** Returns what new ids begin with. A user without the right to ask sets the option. */
    CompletableFuture<String> prefix() {
        return prefix != null ? CompletableFuture.completedFuture(prefix)
            : link.send(timeout, timeout, CommandType.ACL, "WHOAMI").handle((user, failure) -> {
                if (failure instanceof SimbaException e) {
                    throw e;
                }
                prefix = failure != null || user.get(0).equals("default") ? "" : user.get(0) + ":";
                return prefix;
            });
    }

    /** Returns a contender id of at most 128 bytes that people can read: prefix, {@code counter:pid@host~random}. */
    static String newId(String prefix) {
        String begin = prefix + COUNTER.incrementAndGet() + ":";
        int room = 128 - begin.getBytes(StandardCharsets.UTF_8).length - PROCESS.length();
        return begin + PID_AND_HOST.substring(0, Math.max(0, Math.min(PID_AND_HOST.length(), room))) + PROCESS;
    }

    /** Returns 32 random hexadecimal digits. */
    static String random() {
        return "%032x".formatted(new BigInteger(128, RANDOM));
    }

    /** Logs a failure after which the client tries again, but the same one only each 30 s. */
    void note(String what, Throwable failure) {
        if (Clock.now() - notedFrom >= 30_000 * MILLI) {
            notedFrom = Clock.now();
            noted.clear();
        }
        if (failure != null && !isClosed() && noted.add(what)) {
            log.warn("{}: {}; trying again", what, SimbaException.of(failure).getMessage());
        }
    }

    /** Runs body on the one thread that keeps time. Body must not block. */
    Future<?> after(long nanos, Runnable body) {
        return timers.schedule(body, nanos, TimeUnit.NANOSECONDS);
    }

    /** Waits for a future. Returns null if it takes longer than the time. */
    static <T> T get(CompletableFuture<T> future, long nanos) throws InterruptedException {
        try {
            return future.get(nanos, TimeUnit.NANOSECONDS);
        } catch (ExecutionException e) {
            throw SimbaException.of(e);
        } catch (TimeoutException e) {
            return null;
        }
    }

    /** Waits for a release, at most for timeout. An interrupt stays set, and does not end the wait. */
    boolean await(CompletableFuture<Boolean> release) {
        try {
            return release.copy().orTimeout(timeout, TimeUnit.NANOSECONDS).join();
        } catch (CompletionException e) {
            throw !(e.getCause() instanceof TimeoutException) ? SimbaException.of(e)
                : new SimbaException.Unavailable("the server may keep a mutex until its lease ends", e.getCause());
        }
    }
}
