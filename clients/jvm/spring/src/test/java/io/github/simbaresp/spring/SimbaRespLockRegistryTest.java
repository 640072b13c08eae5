package io.github.simbaresp.spring;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.simbaresp.Options;
import io.github.simbaresp.Server;
import io.github.simbaresp.SimbaClient;
import io.lettuce.core.RedisClient;
import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(30)
class SimbaRespLockRegistryTest {
    private Server server;
    private RedisClient redis;
    private SimbaClient client;
    private SimbaRespLockRegistry here;
    private SimbaRespLockRegistry there; // of another process

    @BeforeEach
    void start() throws Exception {
        server = new Server();
        redis = RedisClient.create(server.url());
        client = SimbaClient.create(redis, new Options().ttl(Duration.ofMillis(500)).grace(Duration.ofMillis(200)));
        here = new SimbaRespLockRegistry(client, "registry");
        there = new SimbaRespLockRegistry(client, "registry");
    }

    @AfterEach
    void stop() throws Exception {
        if (server != null) {
            client.close();
            redis.shutdown();
            server.close();
        }
    }

    @Test
    void locksAreReentrantAndExclusive() throws Exception {
        Lock lock = here.obtain("a");
        assertSame(lock, here.obtain("a"));
        lock.lock();
        assertTrue(lock.tryLock());
        lock.lockInterruptibly();
        assertFalse(there.obtain("a").tryLock());
        assertFalse(there.obtain("a").tryLock(100, TimeUnit.MILLISECONDS));
        assertFalse(CompletableFuture.supplyAsync(() -> here.obtain("a").tryLock()).join());
        lock.unlock();
        lock.unlock();
        assertFalse(there.obtain("a").tryLock());
        lock.unlock();
        assertTrue(there.obtain("a").tryLock());
        there.obtain("a").unlock();
        assertThrows(IllegalStateException.class, lock::unlock);
    }

    @Test
    void waiterGetsTheLockAfterTheOwner() throws Exception {
        Lock lock = here.obtain("b");
        lock.lock();
        CompletableFuture<Boolean> waits = CompletableFuture.supplyAsync(() -> {
            Lock other = there.obtain("b");
            other.lock();
            other.unlock();
            return true;
        });
        Thread.sleep(1_000); // the lease is renewed meanwhile
        assertFalse(waits.isDone());
        lock.unlock();
        assertTrue(waits.get(5, TimeUnit.SECONDS));
    }

    @Test
    void interruptEndsTheWaitUnlessItIsLock() throws Exception {
        Lock lock = here.obtain("c");
        lock.lock();
        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, () -> there.obtain("c").lockInterruptibly());
        lock.unlock();
        Thread.currentThread().interrupt();
        there.obtain("c").lock();
        assertTrue(Thread.interrupted());
        there.obtain("c").unlock();
    }

    @Test
    void unlockReportsALoss() throws Exception {
        Lock lock = here.obtain("d");
        lock.lock();
        server.close();
        Thread.sleep(1_000);
        assertThrows(ConcurrentModificationException.class, lock::unlock);
    }

    @Test
    void unusedLocksAreForgotten() throws Exception {
        Lock unused = here.obtain("e");
        Lock used = here.obtain("f");
        used.lock();
        Thread.sleep(20);
        here.expireUnusedOlderThan(10);
        assertNotSame(unused, here.obtain("e"));
        assertSame(used, here.obtain("f"));
        used.unlock();
    }
}
