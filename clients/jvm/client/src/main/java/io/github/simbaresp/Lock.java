package io.github.simbaresp;

import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.time.Duration;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
import java.util.stream.Stream;

/**
 * One unbroken ownership of a mutex by this process. The client renews the lease in the background.
 * {@link #close} unlocks the mutex; {@code lead} and {@code every} do it after their work. A lock is
 * not reentrant, and is safe for use by several threads.
 *
 * <p>No client can promise that a process is still the owner when its write arrives at a resource:
 * the process can be frozen right after a {@link #check}. So pass the {@link #token} with each
 * write, and let the resource refuse a smaller token than one that it has seen.
 */
public final class Lock implements AutoCloseable {
    // ASKING ──acquired──► HELD ──► LOST: expired, or the server says so
    //  ▲ │ queued            └────► RELEASED
    //  │ ▼
    // the outcome by SIMBA.NEXT, or, if there is none, the pause before the next request
    //
    // A lease counts from before its request was sent, and is given up early, so it ends here no later
    // than at the server.
    private enum Phase { ASKING, HELD, LOST, RELEASED }

    /** How long a contender waits for an outcome before it asks whether it still waits. */
    private static final long ASK_AGAIN = 60_000 * Core.MILLI;
    /** An owner gives up a lease by a hundredth of it early, at most this: clocks differ in speed. */
    private static final long MARGIN = 250 * Core.MILLI;
    private static final long RENEWAL_PAUSE = 10 * Core.MILLI;

    private final Core core;
    private final String mutex;
    private final Options options;
    private final boolean work; // of lead or every, which release the mutex after it
    private final long deadline;
    final Semaphore wake = new Semaphore(0); // a permit ends the pause before the next request
    private final CompletableFuture<Void> lost = new CompletableFuture<>();
    final CompletableFuture<Boolean> gone = new CompletableFuture<>(); // whether the release has ended the tenure
    private final AtomicReference<Phase> phase = new AtomicReference<>(Phase.ASKING);
    final AtomicBoolean leaving = new AtomicBoolean(); // the release has begun
    private volatile String id; // null = not made yet
    private volatile long token; // 0 = not acquired yet
    volatile boolean stops; // the work called stop

    // Of the contender
    private volatile Waits.Wait wait; // of the last request
    private long pause = Core.PAUSE;
    /** What the limit of the wait throws. */
    private Supplier<RuntimeException> why =
        () -> new SimbaException.Unavailable("the server has not replied in time", null);
    private CompletableFuture<Reply> flying = CompletableFuture.completedFuture(null); // the last request
    private volatile boolean keeps; // the server may keep something

    // Of the lease
    volatile long began;
    private volatile long sent; // when the request for the present lease was sent
    private volatile long until; // when this process gives it up
    private volatile long due; // when to renew it
    private volatile Duration fixed; // the length of the last lease, which is not renewed; null = it is renewed
    private volatile long longest; // of the leases that were asked for

    Lock(Core core, String mutex, Options options, boolean work) {
        this.core = core;
        this.mutex = Objects.requireNonNull(mutex, "mutex");
        this.options = options;
        this.work = work;
        this.id = options.id();
        this.deadline = Clock.now() + (work || options.longest() == null ? Core.FOREVER : nanos(options.longest()));
    }

    /** Returns the name of the mutex. */
    public String mutex() {
        return mutex;
    }

    /** Returns the contender's id. */
    public String id() {
        return id;
    }

    /** Returns the fencing token. It is larger than those of all earlier tenures of the mutex. */
    public long token() {
        return token;
    }

    String key() {
        return mutex + " " + id; // a mutex has no white space
    }

    String channel() {
        return "simba:{" + mutex + "}";
    }

    private long ttl() {
        Duration own = fixed != null ? fixed : options.ttl();
        return own == null ? core.ttl : own.toMillis();
    }

    private long grace() {
        return fixed != null ? 0 : options.grace() == null ? core.grace : options.grace().toMillis();
    }

    private long lease() {
        return (ttl() + grace()) * Core.MILLI;
    }

    private CompletableFuture<Reply> send(long timeout, long patience, ProtocolKeyword command, Object... how) {
        longest = Math.max(longest, lease());
        return core.link.send(timeout, patience, command, Stream.concat(
            Stream.of(mutex, id, ttl(), "TRANSITION", grace()), Stream.of(how)).toArray()).thenApply(Reply::of);
    }

    private static long nanos(Duration d) {
        return Math.min(TimeUnit.NANOSECONDS.convert(d), Core.FOREVER);
    }

    /**
     * Asks until the contender owns the mutex. If it throws, it releases what the server may keep.
     *
     * @param once  ask once, and take no queue entry
     * @param again the call has had a tenure before, so that a refusal does not end it
     */
    Lock acquire(boolean once, boolean again) throws InterruptedException {
        try {
            while (true) {
                wait = once ? Waits.NONE : core.waits.add();
                try {
                    if (ask(once)) {
                        return this;
                    }
                } catch (SimbaException.Unavailable | SimbaException.InUse | RedisCommandExecutionException e) {
                    if ((options.ttl() != null || options.grace() != null || !core.shortens(e))
                            && (once || Clock.now() >= deadline || !again && !(e instanceof SimbaException.Unavailable))) {
                        throw e;
                    }
                    why = () -> e;
                    core.note("acquire " + mutex, e);
                } finally {
                    core.waits.remove(wait);
                }
                pause();
            }
        } catch (Throwable e) {
            end();
            throw e;
        }
    }

    /** Sends a request, and waits for its outcome. Returns whether the tenure has begun. */
    private boolean ask(boolean once) throws InterruptedException {
        if (id == null) {
            id = Core.newId(get(core.prefix(), Core.FOREVER));
        }
        core.enter(this);
        long from = Clock.now();
        keeps = true;
        // Even if the server does not know the waiter, the contender gets its place in the queue.
        flying = send(core.timeout, core.timeout, Command.ACQUIRE, once ? new Object[] {"NOQUEUE"}
            : new Object[] {"WAIT", 0, "VIA", wait.waiter(), "REQUEST", wait.request()});
        Reply reply = get(flying, Core.FOREVER);
        keeps = !reply.is("busy");
        Owner owner = reply.owner();
        why = () -> new SimbaException.NotAcquired(mutex, owner);
        if (once && reply.is("busy")) {
            throw why.get();
        }
        if (reply.fields().get("request") != null) {
            pause = Core.PAUSE;
            reply = get(wait.outcome(), ASK_AGAIN);
            if (reply == null) {
                return false;
            } else if (reply.text("error") != null) {
                throw SimbaException.of(new RedisCommandExecutionException(reply.text("error")));
            } else if (reply.is("acquired") && Clock.now() - from > lease() / 3) { // it counts from the request
                from = Clock.now();
                reply = get(send(core.timeout, core.timeout, Command.GUARD, "TOKEN", reply.number("token")), Core.FOREVER);
            }
        } else if (reply.is("queued")) { // it polls
            core.waits.start();
        }
        return (reply.is("acquired") || reply.is("renewed")) && begin(from, reply);
    }

    private boolean begin(long from, Reply reply) {
        renewed(from, lease(), reply);
        if (until <= Clock.now()) {
            throw new SimbaException.Unavailable("the reply took longer than the lease", null);
        }
        token = reply.number("token");
        began = Clock.now();
        phase.set(Phase.HELD);
        core.checkOpen(); // after that, close finds the tenure
        core.wakeAt(due);
        return true;
    }

    /** Waits for a future, at most until the deadline. Returns null if it takes longer than the time. */
    private <T> T get(CompletableFuture<T> future, long nanos) throws InterruptedException {
        long left = deadline - Clock.now();
        T value = Core.get(future, Math.min(left, nanos));
        if (value == null && left <= nanos) {
            throw why.get();
        }
        return value;
    }

    /** Waits until the next request. */
    private void pause() throws InterruptedException {
        long nanos = pause / 2 + ThreadLocalRandom.current().nextLong(pause);
        long left = deadline - Clock.now();
        if (!wake.tryAcquire(Math.min(left, nanos), TimeUnit.NANOSECONDS) && left <= nanos) {
            throw why.get();
        }
        core.checkOpen();
        pause = Math.min(2 * pause, Math.min(2_000, ttl()) * Core.MILLI);
    }

    /** Ends the contender because the client is closed. A lease that ends by itself stays. */
    void hangUp() {
        core.threads.execute(() -> lost.complete(null));
        if (phase.get() == Phase.HELD && !work) {
            if (fixed != null && leaving.compareAndSet(false, true)) {
                core.contenders.remove(key(), this);
                gone.complete(true);
            } else {
                end();
            }
        } else {
            wait.outcome().completeExceptionally(new SimbaException.Closed());
            wake.release();
        }
    }

    /** Returns how much of a lease counts here. */
    private static long usable(long length) {
        return length - Math.min(length / 100, MARGIN);
    }

    /** Begins a lease. */
    private synchronized void renewed(long from, long asked, Reply reply) {
        long length = Math.min(asked, reply.left());
        sent = from;
        until = from + usable(length);
        due = fixed != null ? Core.FOREVER : from + Math.min(ttl() * Core.MILLI, length) / 3;
    }

    /**
     * Reports whether this process owns the mutex, and {@link #lost} has not completed. It reads the
     * clock and asks nobody, so it is cheap, and right even after the process was frozen or the machine
     * was suspended. It returns false from shortly before the lease can end at the server. Call it
     * before each piece of work.
     */
    public boolean check() {
        if (phase.get() == Phase.HELD && until <= Clock.now()) {
            lose("");
        }
        return phase.get() == Phase.HELD && !lost.isDone();
    }

    /** Returns the time until {@link #check} turns false unless the client renews the lease. */
    public Duration left() {
        return Duration.ofNanos(check() ? Math.max(0, until - Clock.now()) : 0);
    }

    /**
     * Waits for the given time, or until the work should end, whichever comes first. Returns
     * {@link #check}.
     *
     * @throws InterruptedException if the thread is interrupted
     */
    public boolean await(Duration time) throws InterruptedException {
        long end = Clock.now() + nanos(time);
        while (check() && Clock.now() < end) {
            Core.get(lost, Math.min(end - Clock.now(), ASK_AGAIN)); // which does not count a suspension
        }
        return check();
    }

    /**
     * Returns a stage that completes when the mutex is lost, or the client is closed. Actions run on a
     * thread of the client that may block. An action must not interrupt the thread of {@code lead},
     * because that ends lead.
     */
    public CompletionStage<Void> lost() {
        return lost.minimalCompletionStage();
    }

    /**
     * Makes {@code lead} or {@code every} return when the present work returns. It has no effect on
     * other locks.
     */
    public void stop() {
        stops = true;
    }

    /**
     * Makes the lease end by itself after this time, from 1 ms to 24 h: renews it now, and then never
     * again. The time can be shorter than what is left. The close of the client then does not release
     * the mutex. After this call, the lock does not notice a {@code SIMBA.BREAK}.
     *
     * @return false if the mutex was lost
     * @throws SimbaException.Unavailable if the server does not reply in time. The client tries again
     *                                    in the background, also after an interrupt, and {@link #check}
     *                                    turns false at the end of the shorter of both leases
     */
    public boolean keepFor(Duration time) throws InterruptedException {
        core.checkOpen();
        fixed = new Options().ttl(Objects.requireNonNull(time, "time")).ttl();
        if (check() && Core.get(renew(), core.timeout) == null) {
            throw new SimbaException.Unavailable("the server has not replied in time", null);
        }
        return check();
    }

    /** Does what is due, adds the channel that it needs, and returns when the next thing is due. */
    long act(long now, Set<String> want) {
        if (!check()) {
            return Core.FOREVER;
        }
        if (fixed == null && now - began >= 800 * Core.MILLI) { // a short tenure is not worth a subscription
            want.add(channel());
        }
        if (now >= due) {
            renew();
        }
        return Math.min(due, until);
    }

    /** Asks the server whether the tenure lasts. */
    void noticed() {
        if (fixed == null && check()) {
            renew();
        }
    }

    /** Sends a renewal. If its lease is the shorter one, that counts even without a reply. */
    private synchronized CompletableFuture<Reply> renew() {
        long from = Clock.now();
        long asked = lease();
        Duration last = fixed;
        until = Math.min(until, from + usable(asked));
        // A third of what is left, so that there is time to try again by another connection.
        long patience = Math.max(RENEWAL_PAUSE, Math.min(core.timeout, (until - from) / 3));
        due = from + patience;
        // A late reply counts, too, but its connection does not stay open for a day.
        return send(Math.max(core.timeout, Math.min(until - from, 10 * core.timeout)), patience,
            Command.GUARD, "TOKEN", token).whenComplete((reply, e) ->
                renewed(from, asked, last == fixed && from >= sent, reply, e));
    }

    /** Handles the reply to a renewal, unless it is older than the present lease. */
    private void renewed(long from, long asked, boolean counts, Reply reply, Throwable e) {
        if (e == null && reply.is("lost")) {
            lose(reply.text("owner"));
        } else if (counts && e == null) {
            renewed(from, asked, reply);
        } else if (counts && phase.get() == Phase.HELD) {
            due = Math.min(due, Clock.now() + Math.max(RENEWAL_PAUSE, (until - Clock.now()) / 8));
            core.note("renew " + mutex, e);
        }
        core.wakeAt(due);
    }

    private void lose(String other) {
        if (phase.compareAndSet(Phase.HELD, Phase.LOST)) {
            core.threads.execute(() -> lost.complete(null));
            if (fixed == null) {
                core.log.warn("mutex lost: mutex={} contender={} token={} owner={}", mutex, id, token, other);
            }
            if (!work) {
                end();
            }
        }
    }

    /** Ends the contender, and releases in the background what the server may keep. */
    private CompletableFuture<Boolean> end() {
        check();
        phase.compareAndSet(Phase.HELD, Phase.RELEASED);
        if (leaving.compareAndSet(false, true)) {
            // A RELEASE does not overtake the last request, unless that has got no reply in time.
            flying.whenComplete((reply, e) -> free(Clock.now() + longest, true));
        }
        return gone;
    }

    /** Repeats a release until the server replies or refuses it, or the lease would be over. */
    private void free(long over, boolean first) {
        freeOnce().whenComplete((released, failed) -> {
            RuntimeException e = failed == null ? null : SimbaException.of(failed);
            if (e instanceof SimbaException.Unavailable && Clock.now() < over) {
                core.after(Core.PAUSE + ThreadLocalRandom.current().nextLong(9 * Core.PAUSE), () -> free(over, false));
                return;
            }
            core.contenders.remove(key(), this);
            if (e == null) {
                gone.complete(released || !first); // else perhaps by an earlier RELEASE
            } else {
                gone.completeExceptionally(e);
            }
        });
    }

    /**
     * Releases the tenure, or what the server may keep for a contender without one. Nobody else has an
     * id that the client has made. An id of the caller may have a later tenure, which a late RELEASE
     * must not end.
     */
    private CompletableFuture<Boolean> freeOnce() {
        if (!keeps || token != 0 || options.id() == null) {
            return !keeps ? CompletableFuture.completedFuture(true)
                : token != 0 ? release("TOKEN", token) : release();
        }
        CompletableFuture<Boolean> ended = !core.waits.isBound(wait) ? CompletableFuture.completedFuture(false)
            : release("VIA", wait.waiter(), "REQUEST", wait.request());
        return ended.thenCompose(done -> done ? ended : core.owner(mutex).thenCompose(now ->
            now != null && now.id().equals(id) ? release("TOKEN", now.token()) : ended));
    }

    private CompletableFuture<Boolean> release(Object... what) {
        return core.link.send(core.timeout, core.timeout, Command.RELEASE, Stream.concat(
            Stream.of(mutex, id), Stream.of(what)).toArray()).thenApply(reply -> reply.get(0).equals(1L));
    }

    /**
     * Unlocks the mutex, and waits for the server's reply at most for {@link Options#timeout}. A
     * later call waits for the same release. An interrupt does not end the wait; it stays set.
     *
     * @throws SimbaException.Lost        if the mutex was lost before
     * @throws SimbaException.Unavailable if the server does not reply in time. The release goes on in
     *                                    the background. At the latest, the mutex is free when its
     *                                    lease ends
     */
    @Override
    public void close() {
        CompletableFuture<Boolean> released = end();
        if (phase.get() == Phase.LOST || !core.await(released)) {
            throw new SimbaException.Lost(mutex);
        }
    }
}
