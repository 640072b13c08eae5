package io.github.simbaresp.simba;

import io.github.simbaresp.SimbaClient;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import me.ahoo.simba.core.MutexContendService;
import me.ahoo.simba.core.MutexContendServiceFactory;
import me.ahoo.simba.core.MutexContender;

/**
 * Creates contenders of Simba on simba-resp. A contender's {@code onAcquired} gets a {@link
 * FencedMutexOwner} in {@code state.getAfter()}, which has the fencing token.
 *
 * <p>Callbacks should return soon, because the contender learns of a loss only after the callback
 * before it. Start work on another thread, call {@code isInTtl()} of the service before each piece of
 * it, and pass the token with each write.
 *
 * <p>The name of a mutex must not contain white space or braces.
 */
public final class SimbaRespMutexContendServiceFactory implements MutexContendServiceFactory {
    private final SimbaClient client;
    private final Executor handleExecutor;

    /** Creates a factory whose contenders run their callbacks on the common pool. */
    public SimbaRespMutexContendServiceFactory(SimbaClient client) {
        this(client, ForkJoinPool.commonPool());
    }

    /**
     * Creates a factory. The client's options say how long a lease lasts. The callbacks of a
     * contender run on the executor, one after the other.
     */
    public SimbaRespMutexContendServiceFactory(SimbaClient client, Executor handleExecutor) {
        this.client = client;
        this.handleExecutor = handleExecutor;
    }

    @Override
    public MutexContendService createMutexContendService(MutexContender contender) {
        return new SimbaRespMutexContendService(contender, handleExecutor, client);
    }
}
