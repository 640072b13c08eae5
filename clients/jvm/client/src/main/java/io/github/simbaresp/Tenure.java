package io.github.simbaresp;

import java.time.Duration;
import java.util.concurrent.CompletionStage;

/**
 * The time in which this process owns a mutex. The client renews the lease in the background. A
 * tenure is safe for use by several threads.
 *
 * <p>No client can promise that a process is still the owner when its write arrives at a resource:
 * the process can be frozen right after a {@link #check}. So pass the {@link #token} with each
 * write, and let the resource refuse a smaller token than one that it has seen.
 */
public interface Tenure {
    /** Returns the name of the mutex. */
    String mutex();

    /** Returns the contender's id. */
    String id();

    /** Returns the fencing token. It is larger than those of all earlier tenures of the mutex. */
    long token();

    /**
     * Reports whether the work may go on. It reads the clock and asks nobody, so it is cheap, and
     * right even after the process was frozen or the machine was suspended. It returns false from
     * shortly before the lease can end at the server, after a loss, after the release, and when
     * {@code lead} or {@code every} is being stopped. Call it before each piece of work.
     */
    boolean check();

    /** Returns the time until {@link #check} turns false unless the client renews the lease. */
    Duration left();

    /**
     * Waits for the given time, or until {@link #check} turns false, whichever comes first, and
     * returns {@link #check}.
     *
     * @throws InterruptedException if the thread is interrupted
     */
    boolean await(Duration time) throws InterruptedException;

    /**
     * Returns a stage that completes when the mutex is lost. It never completes if the mutex is
     * released before. Actions run on a thread of the client that may block.
     */
    CompletionStage<Void> lost();

    /**
     * Makes {@code lead} or {@code every} end when the present work returns. If the work then
     * throws, they throw the same. It has no effect on a {@link Lock}.
     */
    void stop();
}
