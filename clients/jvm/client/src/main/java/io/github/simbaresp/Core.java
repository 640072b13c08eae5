package io.github.simbaresp;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.protocol.CommandType;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
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
    private static final long NOTE_EVERY = 10_000 * MILLI;
    private static final int LONGEST_ID = 128;
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
    final Map<Semaphore, String> watchers = new ConcurrentHashMap<>(); // with the channels that wake them
    volatile long ttl; // of contenders that set none, in ms, as grace
    volatile long grace;
    final CompletableFuture<Void> closing = new CompletableFuture<>(); // fails when the client is closed
    private final boolean fits; // the default windows, which get shorter if the server demands it
    /** Shut down when the client is closed and all mutexes are released. Then connections are closed, too. */
    final ScheduledThreadPoolExecutor timers =
        new ScheduledThreadPoolExecutor(1, DAEMONS, new ThreadPoolExecutor.DiscardPolicy());
    final Map<String, Lock> contenders = new ConcurrentHashMap<>(); // until the server keeps nothing for them
    private volatile long noted = Clock.now() - NOTE_EVERY;
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
        wakeAt(Clock.now());
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
        }
    }

    void close(StatefulConnection<?, ?> connection) {
        if (connections.remove(connection)) {
            connection.closeAsync();
        }
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

    /** Makes the next tick come at that time or earlier. */
    synchronized void wakeAt(long time) {
        if (time < tickAt) {
            timer.cancel(false);
            tickAt = time;
            timer = after(time - Clock.now(), this::tick);
        }
    }

    private void tick() {
        synchronized (this) {
            tickAt = Long.MAX_VALUE;
        }
        long now = Clock.now();
        long next = now + TICK;
        try {
            Set<String> want = new HashSet<>(watchers.values());
            for (Lock lock : contenders.values()) {
                next = Math.min(next, lock.act(now, want));
            }
            notices.listen(want);
        } finally {
            wakeAt(next);
        }
    }

    /** Makes those who want a channel ask the server at once. */
    void noticed(String channel) {
        contenders.values().stream().filter(lock -> lock.channel().equals(channel)).forEach(Lock::noticed);
        watchers.forEach((wake, name) -> {
            if (name.equals(channel)) {
                wake.release();
            }
        });
    }

    /** Releases a tenure that nobody waits for. A contender that still asks learns of it by its next request. */
    void giveBack(Reply outcome) {
        String mutex = outcome.text("mutex");
        String id = outcome.text("owner");
        Lock lock = contenders.get(mutex + " " + id);
        if (lock == null || (lock.token() == 0 ? lock.leaving.get() : lock.token() != outcome.number("token"))) {
            link.send(timeout, Command.RELEASE, mutex, id, "TOKEN", outcome.number("token"));
        }
    }

    /** Asks for the owner of a mutex; null = it is free. */
    CompletableFuture<Owner> owner(String mutex) {
        return link.send(timeout, Command.OWNER, mutex).thenApply(Reply::owner);
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
            : link.send(timeout, CommandType.ACL, "WHOAMI").handle((user, failure) -> {
                RuntimeException e = failure == null ? null : SimbaException.of(failure);
                if (e != null && !(e instanceof RedisCommandExecutionException)) {
                    throw e;
                }
                prefix = e != null || user.get(0).equals("default") ? "" : user.get(0) + ":";
                return prefix;
            });
    }

    /** Returns a contender id that people can read: prefix, {@code counter:pid@host~random}. */
    static String newId(String prefix) {
        String begin = prefix + COUNTER.incrementAndGet() + ":";
        int room = LONGEST_ID - begin.getBytes(StandardCharsets.UTF_8).length - PROCESS.length();
        return begin + PID_AND_HOST.substring(0, Math.max(0, Math.min(PID_AND_HOST.length(), room))) + PROCESS;
    }

    /** Returns 32 random hexadecimal digits. */
    static String random() {
        byte[] bytes = new byte[16];
        RANDOM.nextBytes(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    /** Logs a failure after which the client tries again, but not each one. */
    void note(String what, Throwable failure) {
        if (failure != null && !isClosed() && Clock.now() - noted >= NOTE_EVERY) {
            noted = Clock.now();
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
        boolean interrupted = false;
        try {
            for (long end = Clock.now() + timeout; Clock.now() < end; ) {
                try {
                    Boolean released = get(release, end - Clock.now());
                    if (released != null) {
                        return released;
                    }
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
            throw new SimbaException.Unavailable("the server may keep a mutex until its lease ends", null);
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
