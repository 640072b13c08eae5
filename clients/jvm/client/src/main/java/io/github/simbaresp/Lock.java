package io.github.simbaresp;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/** A locked mutex. {@link #close} unlocks it. Locks are not reentrant. */
public interface Lock extends Tenure, AutoCloseable {
    /**
     * Unlocks the mutex, and waits for the server's reply at most for {@link Options#timeout}. A
     * later call waits for the same release. An interrupt does not end the wait; it stays set.
     *
     * @throws SimbaException.Lost        if the mutex was lost before
     * @throws SimbaException.Unavailable if the server does not reply in time. The release goes on
     *                                    in the background. At the latest, the mutex is free when
     *                                    its lease ends
     */
    @Override
    void close();

    /**
     * Renews the lease now, with another first window, which can be shorter. The second window
     * stays. Only a lock with {@link Options#renew} off needs it.
     *
     * @return false if the mutex was lost
     */
    boolean extend(Duration ttl) throws InterruptedException;

    /**
     * Unlocks the mutex. The future ends as {@link #close} does, but waits until the lease would
     * be over.
     */
    CompletableFuture<Void> closeAsync();
}
