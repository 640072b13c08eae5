package io.github.simbaresp;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import java.util.function.UnaryOperator;

/**
 * Locks mutexes of simba-resp, leads and watches. It is safe for use by several threads. One
 * client for each process is enough.
 *
 * <pre>{@code
 * SimbaClient client = SimbaClient.create(RedisClient.create("redis://localhost:7379"));
 * try (Lock lock = client.lock("report")) {
 *     write(lock.token());
 * }
 * }</pre>
 *
 * <p>The client opens connections of its own with {@link RedisClient#connect()}, and never closes
 * the RedisClient. A connection that breaks is closed before Lettuce reconnects, and that cancels
 * its requests. So no request is sent twice, whatever the options of the RedisClient say.
 *
 * <p>Methods that wait throw {@link InterruptedException} if their thread is interrupted, and
 * leave no queue entry behind. All methods throw {@link SimbaException}, or Lettuce's {@link
 * io.lettuce.core.RedisCommandExecutionException} if the server refuses a request.
 */
public final class SimbaClient implements AutoCloseable {
    private static final long QUICK = 1_000 * Core.MILLI; // lead pauses after a shorter tenure
    private static final long WATCH_EVERY = 2_000 * Core.MILLI; // without a notice

    private final Core core;
    private final Options options; // of the calls

    private SimbaClient(Core core, Options options) {
        this.core = core;
        this.options = options;
    }

    /** Creates a client with the default options. It does not connect yet. */
    public static SimbaClient create(RedisClient redis) {
        return create(redis, new Options());
    }

    /** Creates a client with options. It does not connect yet. */
    public static SimbaClient create(RedisClient redis, Options options) {
        return new SimbaClient(new Core(redis, options), options.ttl(null).grace(null));
    }

    /**
     * Returns this client with other options for some of its calls. It shares the connections and the
     * end of this one, so it cannot have another {@code timeout} or {@code idPrefix}.
     *
     * <pre>{@code
     * client.with(o -> o.wait(Duration.ofSeconds(5))).lock("report")
     * }</pre>
     */
    public SimbaClient with(UnaryOperator<Options> change) {
        Options other = change.apply(options);
        if (!other.timeout().equals(options.timeout()) || !Objects.equals(other.idPrefix(), options.idPrefix())) {
            throw new IllegalArgumentException("timeout and idPrefix are options of create only");
        }
        return new SimbaClient(core, other);
    }

    /**
     * Waits until it owns the mutex, at most for {@link Options#wait(Duration)}. The server grants
     * the mutex first come, first served. While the server does not answer, lock tries again. With a
     * wait of zero, lock is {@link #tryLock}.
     *
     * @throws SimbaException.NotAcquired if the time has passed
     * @throws SimbaException.Unavailable if the time has passed, and the server has not answered at its end
     */
    public Lock lock(String mutex) throws InterruptedException {
        return Duration.ZERO.equals(options.longest()) ? tryLock(mutex)
            : new Lock(core, mutex, options, false).acquire(false, false);
    }

    /**
     * Asks for the mutex once, and takes no queue entry.
     *
     * @throws SimbaException.NotAcquired if another contender owns the mutex or is next
     * @throws SimbaException.Unavailable if the server does not reply
     */
    public Lock tryLock(String mutex) throws InterruptedException {
        return new Lock(core, mutex, options.wait(null), false).acquire(true, false);
    }

    /**
     * Contends for the mutex, and runs the work once for each tenure, until the thread is interrupted,
     * the client is closed, or the work calls {@link Lock#stop}. While the work runs, this process is
     * the leader. When the mutex is lost, {@link Lock#check} and {@link Lock#await} return false. The
     * work should then return, and lead contends again. If the work returns or throws earlier, lead
     * releases the mutex and contends again at the end of the queue; it pauses before if the tenure
     * was shorter than a second. An exception of the work is logged.
     *
     * <p>A refusal by the server before the first tenure is thrown. Later ones are logged.
     */
    public void lead(String mutex, Work work) throws InterruptedException {
        Lock lock = null;
        long pause = 0;
        do {
            Core.get(core.closing, pause);
            lock = new Lock(core, mutex, options, true).acquire(false, lock != null);
            try {
                run(lock, work);
            } finally {
                try {
                    lock.close();
                } catch (RuntimeException e) {
                    core.log.debug("unlock", e); // a loss was logged, and the release goes on
                }
            }
            pause = Clock.now() - lock.began >= QUICK ? 0
                : Math.max(Core.PAUSE, Math.min(2 * pause, core.ttl * Core.MILLI));
        } while (!lock.stops);
    }

    /**
     * Runs the work again and again in one of many processes, which holds the mutex from run to run.
     * A new leader runs the work at once, and then each period. If a run takes longer than a period,
     * the next one begins at once, but only for the last missed start time. In all else every is like
     * {@link #lead}.
     */
    public void every(String mutex, Duration period, Work work) throws InterruptedException {
        long step = period.toNanos();
        if (step <= 0) {
            throw new IllegalArgumentException("period is " + period + ", not more than 0");
        }
        lead(mutex, lock -> {
            for (long next = Clock.now(); !lock.stops && lock.await(Duration.ofNanos(next - Clock.now())); ) {
                run(lock, work);
                next += Math.max(1, (Clock.now() - next) / step) * step;
            }
        });
    }

    private void run(Lock lock, Work work) throws InterruptedException {
        try {
            work.run(lock);
        } catch (InterruptedException e) {
            throw e;
        } catch (Exception e) {
            core.log.error("the work failed: mutex={} contender={}", lock.mutex(), lock.id(), e);
        }
    }

    /**
     * Passes the present state of the mutex to the consumer, and then each change in order, until the
     * thread is interrupted or the client is closed. It does not contend. A slow consumer misses no
     * change, as long as the server keeps them in its history, and they are fewer than 100. While the
     * server does not answer, watch tries again.
     */
    public void watch(String mutex, Consumer<State> consumer) throws InterruptedException {
        Semaphore wake = new Semaphore(0);
        Watcher watcher = new Watcher(core, mutex);
        try {
            while (true) {
                core.checkOpen();
                List<State> changes = List.of();
                try {
                    changes = watcher.read();
                    core.watchers.put(wake, "simba-events:{" + mutex + "}"); // the user has the right to it
                    core.wakeAt(Core.FOREVER);
                } catch (SimbaException.Unavailable | RedisCommandExecutionException e) {
                    if (watcher.isNew() && !(e instanceof SimbaException.Unavailable)) {
                        throw e;
                    }
                    core.note("watch " + mutex, e);
                }
                changes.forEach(consumer);
                wake.tryAcquire(WATCH_EVERY, TimeUnit.NANOSECONDS);
                wake.drainPermits();
            }
        } finally {
            core.watchers.remove(wake);
        }
    }

    /**
     * Runs a call of this client on one of its threads, for example {@code async(() ->
     * client.lock("report"))}. If the future is cancelled or completed otherwise, as by {@code
     * orTimeout}, the call is interrupted, and a lock that it returns nevertheless is released. Each
     * call takes a daemon thread until it returns.
     */
    public <T> CompletableFuture<T> async(Callable<T> call) {
        core.checkOpen();
        CompletableFuture<T> result = new CompletableFuture<>();
        AtomicBoolean returned = new AtomicBoolean();
        Future<?> task = core.threads.submit(() -> {
            try {
                T value = call.call();
                returned.set(true);
                if (!result.complete(value) && value instanceof Lock lock) {
                    lock.close();
                }
            } catch (Throwable e) {
                returned.set(true);
                result.completeExceptionally(e);
            }
        });
        result.whenComplete((value, failure) -> task.cancel(!returned.get()));
        return result;
    }

    /** Asks the server for the owner of the mutex. */
    public Optional<Owner> owner(String mutex) throws InterruptedException {
        core.checkOpen();
        return Optional.ofNullable(Core.get(core.owner(mutex), Core.FOREVER));
    }

    /**
     * Asks the server whether the tenure with this fencing token still lasts. A resource calls check
     * before it acts for a client that claims to be the owner. The tenure can end right after the
     * reply. So a resource that can store a number better refuses tokens that are smaller than one
     * that it has seen.
     */
    public boolean check(String mutex, long token) throws InterruptedException {
        core.checkOpen();
        return token > 0
            && Core.get(core.link.send(core.timeout, core.timeout, Command.CHECK, mutex, token), Core.FOREVER).get(0).equals(1L);
    }

    /**
     * Ends all calls with {@link SimbaException.Closed}, unlocks all locks, those of work when it has
     * returned, and waits for that at most for {@link Options#timeout}, and a second for its
     * connections. Locks after {@link Lock#keepFor} stay until they end by themselves. It does not
     * close the RedisClient.
     *
     * @throws SimbaException.Unavailable if the server may keep a mutex until its lease ends
     */
    @Override
    public void close() {
        core.close();
    }
}
