package io.github.simbaresp;

import io.lettuce.core.api.StatefulRedisConnection;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.slf4j.event.Level;

/**
 * One tenure of this process. It ends no later than the lease at the server, because its lease
 * counts from before the request was sent.
 *
 * <p>The timer calls {@link #act} when something is due: a renewal, the end of the lease, or the
 * subscription. Replies arrive on threads of Lettuce. Only {@link #await} and {@link #close}
 * block.
 */
final class Lease implements Lock, Notices.Listener {
    private static final long MILLI = 1_000_000;
    /**
     * An owner gives up a lease by a hundredth of it early, at most this: clocks differ in speed.
     */
    private static final long MARGIN = 250 * MILLI;
    private static final long PAUSE_MOST = 500 * MILLI;
    private static final long PAUSE_LEAST = 10 * MILLI;
    /** A tenure that lasts subscribes to notices, to learn of a BREAK at once. */
    private static final long SUBSCRIBE_AFTER = 800 * MILLI;

    private enum End { LOST, RELEASED }

    private final Core core;
    private final Attempt of;
    private final Terms terms;
    private final long token;
    private final long began = Clock.rough();
    private final CompletableFuture<Void> quit = new CompletableFuture<>(); // completes when the work must end
    private final CompletableFuture<Void> lost = new CompletableFuture<>();
    private final CompletableFuture<Void> gone = new CompletableFuture<>(); // completes when the release has ended
    private volatile long until; // when this process gives up the lease
    private volatile boolean stops; // the work called stop
    private volatile End end; // null = lasts; written under this
    private long from; // when the request for the present lease was sent; this and what follows is guarded by this
    private long due; // when to renew
    private int unanswered; // renewals without a reply
    private boolean subscribed;
    private boolean releasing;
    private int releases; // RELEASE requests that were sent
    private Future<?> timer;
    private CompletableFuture<StatefulRedisConnection<String, String>> used; // by the last renewal

    Lease(Core core, Attempt of, Reply granted, long sent) {
        this.core = core;
        this.of = of;
        this.terms = of.terms;
        this.token = granted.token();
        this.subscribed = !terms.options.renew(); // it asks nobody
        renewed(sent, granted);
    }

    private void renewed(long sent, Reply reply) {
        long length = Math.min(terms.lease(), reply.left());
        from = sent;
        until = sent + length - Math.min(length / 100, MARGIN);
        due = terms.options.renew() ? sent + Math.min(terms.ttl * MILLI, length) / 3 : until;
    }

    @Override
    public String mutex() {
        return terms.mutex;
    }

    @Override
    public String id() {
        return terms.id;
    }

    @Override
    public long token() {
        return token;
    }

    @Override
    public CompletionStage<Void> lost() {
        return lost;
    }

    @Override
    public void stop() {
        stops = true;
    }

    boolean stops() {
        return stops;
    }

    CompletableFuture<Void> whenQuit() {
        return quit;
    }

    boolean isShort(long nanos) {
        return Clock.rough() - began < nanos;
    }

    @Override
    public Duration left() {
        return Duration.ofNanos(check() ? nanosLeft() : 0);
    }

    long nanosLeft() {
        return until - Clock.now();
    }

    /** Whether the lease is over. It does not ask whether the machine was suspended just now. */
    boolean isOver() {
        return until - Clock.rough() <= 0;
    }

    @Override
    public boolean extend(Duration ttl) throws InterruptedException {
        if (check()) {
            terms.ttl = ttl.toMillis();
            long sent = Clock.rough();
            answered(sent, Core.get(core.guard(core.link.open(), terms, token, terms.timeout())), null);
        }
        return check();
    }

    @Override
    public boolean check() {
        return held() && !quit.isDone();
    }

    /** Whether this process is the owner, even if its work must end. */
    boolean held() {
        if (end == null && nanosLeft() <= 0) {
            lose("");
        }
        return end == null;
    }

    @Override
    public boolean await(Duration time) throws InterruptedException {
        try {
            quit.get(Math.max(0, time.toNanos()), TimeUnit.NANOSECONDS);
        } catch (TimeoutException | ExecutionException e) {
            return check();
        }
        return false;
    }

    /** Does what is due, and sets the timer for what is due next. */
    void act() {
        if (!held()) {
            return;
        }
        boolean renew;
        boolean subscribe;
        synchronized (this) {
            long now = Clock.rough();
            long age = now - began;
            renew = now >= due;
            subscribe = !subscribed && age >= SUBSCRIBE_AFTER;
            subscribed |= subscribe;
            if (renew) {
                due = now + Math.max(PAUSE_LEAST, Math.min(terms.timeout(), (until - now) / 3));
            }
            long next = Math.min(until, subscribed ? due : Math.min(due, began + SUBSCRIBE_AFTER));
            setTimer(end == null ? core.after(next - now, this::act) : null);
        }
        if (subscribe) {
            core.notices.add(terms.channel(), this);
        }
        if (renew) {
            renew(true);
        }
    }

    private void setTimer(Future<?> next) {
        if (timer != null) {
            timer.cancel(false);
        }
        timer = next;
    }

    /** Sends a renewal, on another connection if the last one has had no reply for long. */
    private void renew(boolean late) {
        long sent;
        CompletableFuture<StatefulRedisConnection<String, String>> connection;
        synchronized (this) {
            if (late && unanswered > 0) {
                core.link.retire(used);
            }
            connection = used = core.link.open();
            unanswered++;
            sent = Clock.rough();
        }
        core.guard(connection, terms, token, Math.max(1, nanosLeft())).whenComplete((reply, failure) ->
            answered(sent, reply, failure == null ? null : SimbaException.of(failure)));
    }

    /** Handles the reply to a renewal. A late one does not shorten the lease. */
    private void answered(long sent, Reply reply, RuntimeException failure) {
        synchronized (this) {
            unanswered = Math.max(0, unanswered - 1);
            if (end != null || failure != null && sent < from) {
                return;
            }
            if (failure != null) {
                due = Clock.rough() + Math.max(PAUSE_LEAST, Math.min(PAUSE_MOST, nanosLeft() / 8));
            } else if (!reply.is("lost") && sent >= from) {
                renewed(sent, reply);
            }
        }
        if (failure != null) {
            core.noteFailure("renew " + terms.mutex, failure);
        } else if (reply.is("lost")) {
            lose(reply.text("owner"));
        }
        act();
    }

    /** Asks the server at once if the notice may mean that the tenure has ended. */
    @Override
    public void notice(String channel, String payload) {
        boolean other = payload == null || payload.startsWith("acquired@@") && !payload.equals("acquired@@" + terms.id);
        if (end != null) { // it ended while it subscribed
            core.notices.remove(channel, this);
        } else if (other || payload.equals("released@@" + terms.id)) {
            renewNow();
        }
    }

    void renewNow() {
        if (held() && terms.options.renew()) {
            renew(false);
        }
    }

    private void lose(String owner) {
        if (finish(End.LOST)) {
            core.log.atLevel(terms.options.renew() ? Level.WARN : Level.DEBUG)
                .log("mutex lost: mutex={} contender={} token={} owner={}", terms.mutex, terms.id, token, owner);
            core.run(() -> lost.complete(null));
            if (!of.work) {
                release();
            }
        }
    }

    /** Ends the tenure. Returns false if it had ended before. */
    private boolean finish(End how) {
        synchronized (this) {
            if (end != null) {
                return false;
            }
            end = how;
            setTimer(null);
        }
        if (subscribed) {
            core.notices.remove(terms.channel(), this);
        }
        quit.complete(null);
        return true;
    }

    /**
     * Ends the work because it is stopped or the client is closed. The lease is renewed until it
     * has ended.
     */
    void quit() {
        quit.complete(null);
        if (!of.work) {
            release();
        }
    }

    /**
     * Ends the tenure and releases the mutex in the background. Only the first call has an effect.
     */
    CompletableFuture<Void> release() {
        if (isOver()) {
            lose("");
        }
        finish(End.RELEASED);
        synchronized (this) {
            if (releasing) {
                return gone;
            }
            releasing = true;
        }
        of.leaving = true;
        core.release(terms, () -> {
            releases++;
            return core.release(terms, token, null);
        }).whenComplete((released, failure) -> {
            core.leave(of);
            if (end == End.LOST || failure == null && !released && releases == 1) { // else perhaps by an earlier RELEASE
                gone.completeExceptionally(new SimbaException.Lost(terms.mutex));
            } else if (failure != null) {
                gone.completeExceptionally(failure);
            } else {
                gone.complete(null);
            }
        });
        return gone;
    }

    @Override
    public void close() {
        release();
        if (end == End.LOST) {
            throw new SimbaException.Lost(terms.mutex);
        }
        Core.await(gone, terms.timeout());
    }

    @Override
    public CompletableFuture<Void> closeAsync() {
        return release().whenCompleteAsync((done, failure) -> { }, core.threads);
    }
}
