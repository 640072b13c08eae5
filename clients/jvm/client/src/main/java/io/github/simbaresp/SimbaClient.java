package io.github.simbaresp;

import io.lettuce.core.RedisClient;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
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
    private final Core core;
    private final Options options;

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
        boolean only = options.ttl() != null && options.grace() == null;
        return new SimbaClient(new Core(redis), only ? options.grace(Duration.ZERO) : options);
    }

    /**
     * Returns this client with other options, for some of its calls. It shares the connections and
     * the end of this one.
     *
     * <pre>{@code
     * client.with(o -> o.limit(Duration.ofSeconds(5))).lock("report")
     * }</pre>
     */
    public SimbaClient with(UnaryOperator<Options> change) {
        return new SimbaClient(core, change.apply(options));
    }

    /**
     * Waits until it owns the mutex, at most for {@link Options#limit}. The server grants the
     * mutex first come, first served. While the server is not available, lock tries again.
     *
     * @throws SimbaException.NotAcquired if the limit has passed. Its cause is the failure of the
     *                                    last request, if it failed
     */
    public Lock lock(String mutex) throws InterruptedException {
        return new Attempt(core, terms(mutex), false, false, false).run();
    }

    /**
     * Asks for the mutex once, and takes no queue entry. The result is empty if another contender
     * owns the mutex or is next.
     *
     * @throws SimbaException.Unavailable if the server does not reply
     */
    public Optional<Lock> tryLock(String mutex) throws InterruptedException {
        try {
            return Optional.of(new Attempt(core, terms(mutex), true, false, false).run());
        } catch (SimbaException.NotAcquired e) {
            return Optional.empty();
        }
    }

    /**
     * Locks as {@link #lock} does, on a thread of the client. Cancelling the future ends the wait.
     */
    public CompletableFuture<Lock> lockAsync(String mutex) {
        core.checkOpen();
        CompletableFuture<Lock> result = new CompletableFuture<>();
        Future<?> task = core.threads.submit(() -> {
            try {
                Lock lock = lock(mutex);
                if (!result.complete(lock)) {
                    lock.closeAsync();
                }
            } catch (RuntimeException | InterruptedException e) {
                result.completeExceptionally(e);
            }
        });
        result.whenComplete((lock, failure) -> task.cancel(result.isCancelled()));
        return result;
    }

    /**
     * Contends for the mutex, and runs the work once for each tenure, until the thread is
     * interrupted or the work calls {@link Tenure#stop}. While the work runs, this process is the
     * leader. When the mutex is lost, lead interrupts the work, waits for its return, and contends
     * again. If the work returns or throws, lead releases the mutex and contends again at the end
     * of the queue; it pauses before if the tenure was shorter than a second. An exception of the
     * work is logged.
     *
     * <p>A refusal by the server before the first tenure is thrown. Later ones are logged.
     */
    public void lead(String mutex, Work work) throws InterruptedException {
        leader(mutex, null, work).here();
    }

    /** Leads as {@link #lead} does, on a thread of its own. */
    public Running leadAsync(String mutex, Work work) {
        return leader(mutex, null, work).start(mutex);
    }

    /**
     * Runs the work again and again in one of many processes, which holds the mutex from run to
     * run. A new leader runs the work at once, and then each period. If a run takes longer than a
     * period, the next one begins at once, but only for the last missed start time. In all else
     * every is like {@link #lead}.
     */
    public void every(String mutex, Duration period, Work work) throws InterruptedException {
        leader(mutex, period, work).here();
    }

    /** Runs periodic work as {@link #every} does, on a thread of its own. */
    public Running everyAsync(String mutex, Duration period, Work work) {
        return leader(mutex, period, work).start(mutex);
    }

    private Running leader(String mutex, Duration period, Work work) {
        if (period != null && (period.isZero() || period.isNegative())) {
            throw new IllegalArgumentException("period is " + period + ", not more than 0");
        }
        return new Running(core, options, new Leader(core, terms(mutex), period, work));
    }

    /**
     * Passes the present state of the mutex to the consumer, and then each change in order, until
     * the thread is interrupted. A slow consumer misses none, as long as the server keeps them in
     * its history. When changes are missing, the consumer gets a present state with {@link
     * State#gap}. While the server does not answer, watch tries again.
     */
    public void watch(String mutex, Consumer<State> consumer) throws InterruptedException {
        watcher(mutex, consumer).here();
    }

    /** Watches as {@link #watch} does, on a thread of its own. */
    public Running watchAsync(String mutex, Consumer<State> consumer) {
        return watcher(mutex, consumer).start(mutex);
    }

    private Running watcher(String mutex, Consumer<State> consumer) {
        return new Running(core, options, new Watcher(core, mutex, options, consumer));
    }

    /** Asks the server for the owner of the mutex. */
    public Optional<Owner> owner(String mutex) throws InterruptedException {
        core.checkOpen();
        return Core.get(core.link.send(options.timeout().toNanos(), Command.OWNER, mutex)
            .thenApply(reply -> Optional.ofNullable(Reply.ownerOf(reply))));
    }

    /**
     * Asks the server whether the tenure with this fencing token still lasts. A resource calls
     * check before it acts for a client that claims to be the owner. The tenure can end right
     * after the reply. So a resource that can store a number better refuses tokens that are
     * smaller than one that it has seen.
     */
    public boolean check(String mutex, long token) throws InterruptedException {
        core.checkOpen();
        return token > 0 && Core.get(core.link.send(options.timeout().toNanos(), Command.CHECK, mutex, token).thenApply(Core::isOne));
    }

    /**
     * Ends the work of lead and every, unlocks all locks, and ends all waits and watches. It waits
     * for them at most for {@link Options#timeout}. It does not close the RedisClient.
     *
     * @throws SimbaException.Unavailable if the server may keep a mutex until its lease ends
     */
    @Override
    public void close() {
        core.close(options.timeout().toNanos());
    }

    private Terms terms(String mutex) {
        return new Terms(mutex, options);
    }
}
