package io.github.simbaresp;

/** What {@code lead} and {@code every} run while this process owns the mutex. */
@FunctionalInterface
public interface Work {
    /**
     * Works until {@link Lock#await} or {@link Lock#check} returns false, or the work is done.
     *
     * @throws Exception is logged, but an InterruptedException ends lead or every
     */
    void run(Lock tenure) throws Exception;
}
