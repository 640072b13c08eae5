package io.github.simbaresp;

/** What {@code lead} and {@code every} run. */
@FunctionalInterface
public interface Work {
    /**
     * Works as the owner of a mutex, until {@link Tenure#check} is false or the work is done.
     *
     * @throws Exception is logged, unless {@link Tenure#stop} was called
     */
    void run(Tenure tenure) throws Exception;
}
