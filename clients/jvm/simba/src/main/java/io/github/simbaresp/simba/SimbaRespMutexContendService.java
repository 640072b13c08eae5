package io.github.simbaresp.simba;

import io.github.simbaresp.Owner;
import io.github.simbaresp.Running;
import io.github.simbaresp.SimbaClient;
import io.github.simbaresp.State;
import io.github.simbaresp.Tenure;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import me.ahoo.simba.core.AbstractMutexContendService;
import me.ahoo.simba.core.MutexContender;
import me.ahoo.simba.core.MutexOwner;

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

    private final SimbaClient client;
    private Running leader;
    private Running watcher;
    private boolean owns; // guarded by this, as notified
    private CompletableFuture<?> notified = CompletableFuture.completedFuture(null); // the last callback

    SimbaRespMutexContendService(MutexContender contender, Executor handleExecutor, SimbaClient client) {
        super(contender, handleExecutor);
        this.client = client.with(options -> options.id(contender.getContenderId()));
    }

    @Override
    protected void startContend() {
        leader = client.leadAsync(getMutex(), this::own);
        watcher = client.watchAsync(getMutex(), this::observe);
    }

    @Override
    protected void stopContend() {
        watcher.close();
        leader.close();
    }

    /** Notifies the contender of its own tenure, whose windows grow with each renewal. */
    private void own(Tenure tenure) throws InterruptedException {
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
        if (!owns && !state.owner().map(Owner::id).equals(java.util.Optional.of(getContenderId()))) {
            tell(false, state.owner().<MutexOwner>map(owner -> fenced(owner.id(), owner.token(), System.currentTimeMillis(), owner.left()))
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
