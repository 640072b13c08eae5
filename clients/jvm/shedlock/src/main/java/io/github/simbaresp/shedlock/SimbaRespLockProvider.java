package io.github.simbaresp.shedlock;

import io.github.simbaresp.Lock;
import io.github.simbaresp.SimbaClient;
import io.github.simbaresp.SimbaException;
import java.time.Duration;
import java.util.Optional;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;

/**
 * Locks of ShedLock on simba-resp. The lease of a lock lasts for {@code lockAtMostFor}, and is not
 * renewed unless the job extends it. If the job ends before {@code lockAtLeastFor}, the lease is
 * shortened to the rest of that time. If the server does not answer then, {@code unlock} throws, and the
 * client goes on trying. The close of the client does not release such a lock.
 *
 * <p>The name of a lock must not contain white space or braces.
 */
public final class SimbaRespLockProvider implements ExtensibleLockProvider {
    private final SimbaClient client;
    private final String prefix;

    /** Creates a provider whose mutexes have the names of the locks, after {@code shedlock:}. */
    public SimbaRespLockProvider(SimbaClient client) {
        this(client, "shedlock:");
    }

    /** Creates a provider whose mutexes have the names of the locks, after a prefix. */
    public SimbaRespLockProvider(SimbaClient client, String prefix) {
        this.client = client;
        this.prefix = prefix;
    }

    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        try {
            Lock lock = interruptibly(() -> client.tryLock(prefix + configuration.getName()));
            try {
                return new Held(lock, configuration).keepFor(configuration.getLockAtMostFor());
            } catch (RuntimeException e) {
                release(lock, e); // the job will not run
                throw e;
            }
        } catch (SimbaException.NotAcquired e) {
            return Optional.empty();
        }
    }

    private static void release(Lock lock, RuntimeException cause) {
        try {
            lock.close();
        } catch (RuntimeException e) {
            cause.addSuppressed(e);
        }
    }

    private static final class Held extends AbstractSimpleLock {
        /** The client gives a lease up by a hundredth early, at most 250 ms. */
        private static final long MARGIN_MOST = 250;

        private final Lock lock;

        Held(Lock lock, LockConfiguration configuration) {
            super(configuration);
            this.lock = lock;
        }

        /** Makes the lease end after this time. The result is empty if it has ended. */
        Optional<SimpleLock> keepFor(Duration time) {
            return interruptibly(() -> lock.keepFor(time)) ? Optional.of(this) : Optional.empty();
        }

        @Override
        protected void doUnlock() {
            long rest = Duration.between(ClockProvider.now(), lockConfiguration.getLockAtLeastUntil()).toMillis();
            if (rest > 0) {
                keepFor(Duration.ofMillis(rest + Math.min(rest / 99 + 1, MARGIN_MOST)));
                return;
            }
            try {
                lock.close();
            } catch (SimbaException.Lost e) {
                return; // its time is over
            }
        }

        @Override
        protected Optional<SimpleLock> doExtend(LockConfiguration configuration) {
            return new Held(lock, configuration).keepFor(configuration.getLockAtMostFor());
        }
    }

    private interface Request<T> {
        T send() throws InterruptedException;
    }

    private static <T> T interruptibly(Request<T> request) {
        try {
            return request.send();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new LockException("interrupted", e);
        }
    }
}
