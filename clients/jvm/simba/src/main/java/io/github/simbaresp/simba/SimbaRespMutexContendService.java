package io.github.simbaresp.simba;

import io.github.simbaresp.Lock;
import io.github.simbaresp.Owner;
import io.github.simbaresp.SimbaClient;
import io.github.simbaresp.SimbaException;
import io.github.simbaresp.State;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import me.ahoo.simba.core.AbstractMutexContendService;
import me.ahoo.simba.core.MutexContender;
import me.ahoo.simba.core.MutexOwner;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One contender. It leads as {@link SimbaClient#lead} does. When a tenure is lost, the client
 * notices that by its own clock, before the lease can end at the server, and the contender is
 * notified.
 */
final class SimbaRespMutexContendService extends AbstractMutexContendService {
    /**
     * How long a release waits for {@code onReleased}. A contender may stop itself in a callback.
     */
    private static final long CALLBACK = 1_000; // ms
    private static final long RELEASE = 3_000; // how long stop waits for the release, in ms
    private static final long RETRY = 1_000; // the pause after a refusal, in ms
    private static final Logger LOG = LoggerFactory.getLogger(SimbaRespMutexContendService.class);

    private interface Body {
        void run() throws InterruptedException;
    }

    private final SimbaClient client;
    private Thread leader;
    private Thread watcher;
    private boolean owns; // guarded by this, as notified
    private CompletableFuture<?> notified = CompletableFuture.completedFuture(null); // the last callback

    SimbaRespMutexContendService(MutexContender contender, Executor handleExecutor, SimbaClient client) {
        super(contender, handleExecutor);
        this.client = client.with(options -> options.id(contender.getContenderId()));
    }

    @Override
    protected void startContend() {
        leader = start("simba leader " + getMutex(), () -> client.lead(getMutex(), this::own));
        watcher = start("simba watcher " + getMutex(), () -> client.watch(getMutex(), this::observe));
    }

    private static Thread start(String name, Body body) {
        Thread thread = new Thread(() -> {
            try {
                while (!runs(name, body)) {
                    Thread.sleep(RETRY);
                }
            } catch (InterruptedException | SimbaException.Closed e) {
                LOG.debug("{} has ended", name, e);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    /** Returns false if the call has failed, as while another contender of the client has the same id. */
    private static boolean runs(String name, Body body) throws InterruptedException {
        try {
            body.run();
            return true;
        } catch (SimbaException.Closed e) {
            throw e;
        } catch (RuntimeException e) {
            LOG.error("{} has failed; trying again", name, e);
            return false;
        }
    }

    /** Ends the contention, and waits until the mutex is released. An interrupt does not end the wait. */
    @Override
    protected void stopContend() {
        watcher.interrupt();
        leader.interrupt();
        boolean interrupted = false;
        for (long end = System.nanoTime() + RELEASE * 1_000_000; leader.isAlive() && System.nanoTime() < end; ) {
            try {
                leader.join(Math.max(1, (end - System.nanoTime()) / 1_000_000));
            } catch (InterruptedException e) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** Notifies the contender of its own tenure, whose end moves with each renewal. */
    private void own(Lock tenure) throws InterruptedException {
        long began = System.currentTimeMillis();
        try {
            Duration third;
            do {
                third = tenure.left().dividedBy(3);
                tell(true, fenced(tenure.id(), tenure.token(), began, tenure.left()));
            } while (tenure.await(third));
        } finally {
            await(tell(false, MutexOwner.NONE));
        }
    }

    /** Notifies the contender of other owners. */
    private synchronized void observe(State state) {
        if (!owns && !state.owner().map(Owner::id).equals(Optional.of(getContenderId()))) {
            long now = System.currentTimeMillis();
            tell(false, state.owner().<MutexOwner>map(owner -> fenced(owner.id(), owner.token(), now, owner.left()))
                .orElse(MutexOwner.NONE));
        }
    }

    private static FencedMutexOwner fenced(String id, long token, long began, Duration left) {
        long end = left.isZero() ? Long.MAX_VALUE : System.currentTimeMillis() + left.toMillis(); // zero = not known
        return new FencedMutexOwner(id, token, began, end, end);
    }

    /** Calls the contender after all earlier calls. */
    private synchronized CompletableFuture<?> tell(boolean own, MutexOwner owner) {
        owns = own;
        notified = notified.handle((done, failure) -> null).thenCompose(ignored -> notifyOwner(owner));
        return notified;
    }

    private static void await(CompletableFuture<?> callback) throws InterruptedException {
        try {
            callback.get(CALLBACK, TimeUnit.MILLISECONDS);
        } catch (ExecutionException | TimeoutException e) {
            return; // Simba has logged the failure
        }
    }
}
