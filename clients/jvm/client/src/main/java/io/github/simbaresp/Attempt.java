package io.github.simbaresp;

import io.lettuce.core.RedisCommandExecutionException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * The effort of one contender to own a mutex, on the thread of the caller.
 *
 * <pre>
 * ask ──acquired──► Lease
 *  ▲ │ queued
 *  │ ▼
 * waits: for the outcome by SIMBA.NEXT, or, if there is none, for a notice, at most a second
 * </pre>
 *
 * Whatever ends the wait, the contender asks again, unless the outcome is a grant.
 */
final class Attempt implements Notices.Listener {
    private static final long PAUSE_MOST = 2_000_000_000;
    private static final long POLL = 1_000_000_000;
    private static final long FOREVER = Long.MAX_VALUE / 4;

    final Terms terms;
    final boolean work; // of lead or every, which releases the mutex after it
    volatile Lease lease; // null = none yet
    volatile boolean leaving; // its release has begun
    private final Core core;
    private final boolean once; // ask once, and take no queue entry
    private final boolean again; // the contender had a tenure before, so it tries again after a refusal
    private final long deadline;
    private volatile CompletableFuture<Object> wake = new CompletableFuture<>(); // completes after a notice
    private CompletableFuture<?> flying = CompletableFuture.completedFuture(null); // the last request
    private boolean entered;
    private boolean keeps; // the server may keep something for the contender
    private boolean listens; // for notices
    private boolean polls; // the connection for outcomes could not be opened
    private Waits.Wait wait; // of the last request
    private Owner owner; // in the last reply
    private RuntimeException failure = new SimbaException.Unavailable("no reply in time", null); // of the last request
    private long pause = Core.PAUSE;

    Attempt(Core core, Terms terms, boolean once, boolean work, boolean again) {
        this.core = core;
        this.terms = terms;
        this.once = once;
        this.work = work;
        this.again = again;
        this.deadline = Clock.rough() + (once || work || terms.options.limit() == null ? FOREVER : terms.options.limit().toNanos());
        terms.fit(core.longest);
    }

    String key() {
        return terms.mutex + " " + terms.id;
    }

    /**
     * Asks until the contender owns the mutex. If it throws, it releases what the server may keep.
     */
    Lease run() throws InterruptedException {
        try {
            while (lease == null) {
                try {
                    round();
                } catch (SimbaException.Unavailable | SimbaException.InUse | RedisCommandExecutionException e) {
                    failed(e);
                }
            }
            return lease;
        } catch (TimeoutException e) {
            throw new SimbaException.NotAcquired(terms.mutex, owner, failure);
        } finally {
            core.waits.remove(wait);
            core.notices.remove(terms.channel(), this);
            core.notices.remove(terms.channel() + ":" + terms.id, this);
            if (lease == null && entered) {
                giveUp();
            }
        }
    }

    private void round() throws InterruptedException, TimeoutException {
        if (!entered) {
            terms.id = terms.id != null ? terms.id : Ids.next(get(core.prefix(terms)));
            core.enter(this);
            entered = true;
        }
        core.waits.remove(wait);
        wait = once ? null : core.waits.add();
        wake = new CompletableFuture<>();
        core.checkOpen();
        long sent = Clock.rough();
        Reply reply = ask(core.acquire(terms, wait, once || wait == null && !polls));
        if (reply.is("queued") && reply.has("request")) {
            reply = (Reply) get(CompletableFuture.anyOf(wait.outcome(), wake));
            if (reply == null) { // a notice
                return;
            }
            if (reply.granted() && Clock.rough() - sent > terms.lease() / 3) { // it counts from the request
                sent = Clock.rough();
                reply = ask(core.guard(core.link.open(), terms, reply.token(), terms.timeout()));
            }
        } else if (reply.is("queued")) {
            polls = false; // try again to open the connection
            listen();
            sleep(Math.min(POLL, reply.left() + ThreadLocalRandom.current().nextLong(POLL / 5)));
            return;
        } else if (once && !reply.granted()) {
            throw new SimbaException.NotAcquired(terms.mutex, owner, null);
        } else if (reply.is("busy")) {
            polls = !get(core.waits.open());
            return;
        }
        if (reply.granted()) {
            own(reply, sent);
        }
        if (lease == null) {
            sleep(Core.PAUSE);
        }
    }

    /** Waits for the reply to a request. */
    private Reply ask(CompletableFuture<Reply> request) throws InterruptedException, TimeoutException {
        boolean kept = keeps;
        keeps = true;
        flying = request;
        try {
            Reply reply = get(request);
            keeps = kept || !reply.is("busy");
            owner = reply.owner();
            failure = null;
            pause = Core.PAUSE;
            return reply;
        } catch (RuntimeException e) {
            keeps = kept || !SimbaException.refused(e) || e.getMessage().contains(" misconfigured: ");
            throw e;
        }
    }

    /** Begins the tenure that a reply has granted, unless the reply took longer than the lease. */
    private void own(Reply reply, long sent) {
        Lease granted = new Lease(core, this, reply, sent);
        if (granted.isOver() && terms.options.renew()) {
            throw new SimbaException.Unavailable("the reply took longer than the lease", null);
        }
        lease = granted;
        granted.act();
        if (core.isClosed()) {
            granted.quit();
        }
    }

    private void failed(RuntimeException e) throws InterruptedException, TimeoutException {
        failure = e;
        long longest = SimbaException.tooLong(e);
        if (terms.fit(longest)) {
            core.log.warn("the server refuses the default lease as too long; a shorter one is used: ttl={} grace={}", terms.ttl, terms.grace);
            core.longest = longest;
            return;
        }
        boolean leaves = e instanceof SimbaException.InUse other && other.leaving;
        if (once || !again && !leaves && !(e instanceof SimbaException.Unavailable)) {
            throw e;
        }
        core.noteFailure("acquire " + terms.mutex, e);
        sleep(pause / 2 + ThreadLocalRandom.current().nextLong(pause));
        pause = leaves ? pause : Math.min(2 * pause, Math.min(terms.ttl * 1_000_000, PAUSE_MOST));
    }

    /** Waits for a notice. */
    private void sleep(long nanos) throws InterruptedException, TimeoutException {
        long end = Clock.rough() + nanos;
        try {
            wake.get(Math.min(nanos, deadline - Clock.rough()), TimeUnit.NANOSECONDS);
        } catch (TimeoutException e) {
            if (end > deadline) {
                throw e;
            }
        } catch (ExecutionException e) {
            throw SimbaException.of(e);
        }
    }

    private <T> T get(CompletableFuture<T> future) throws InterruptedException, TimeoutException {
        try {
            return future.get(deadline - Clock.rough(), TimeUnit.NANOSECONDS);
        } catch (ExecutionException e) {
            throw SimbaException.of(e);
        }
    }

    private void listen() {
        if (!listens) {
            listens = true;
            core.notices.add(terms.channel(), this);
            core.notices.add(terms.channel() + ":" + terms.id, this);
        }
    }

    /** Wakes a polling waiter if it is next, if the mutex is free, or after a new subscription. */
    @Override
    public void notice(String channel, String payload) {
        if (payload == null || payload.startsWith("released@@")) {
            wake.complete(null);
        }
    }

    /** Ends the contender because the client is closed. */
    void abort() {
        Lease present = lease;
        if (present != null) {
            present.quit();
        } else {
            wake.completeExceptionally(new SimbaException.Closed());
        }
    }

    /**
     * Releases what the server may keep, after the last request, which the RELEASE must not
     * overtake. It names the request if the caller has chosen the id: a late RELEASE could
     * otherwise end a later tenure of the id.
     */
    private void giveUp() {
        leaving = true;
        Waits.Wait via = terms.options.id() != null ? wait : null;
        flying.handle((reply, error) -> !keeps ? CompletableFuture.completedFuture(false)
            : core.release(terms, () -> core.release(terms, 0, error == null ? via : null))).thenCompose(released -> released)
            .whenComplete((released, error) -> core.leave(this));
    }
}
