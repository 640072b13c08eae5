package io.github.simbaresp.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.simbaresp.Options;
import io.github.simbaresp.Server;
import io.github.simbaresp.SimbaClient;
import io.lettuce.core.RedisClient;
import java.time.Duration;
import java.util.ArrayList;
import java.util.ConcurrentModificationException;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The rules of Spring Integration's own tests for lock registries, and ours. */
@Timeout(300)
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
    void locksOfOtherKeysAndRegistriesAreIndependent() {
        SimbaRespLockRegistry other = new SimbaRespLockRegistry(client, "another");
        assertNotSame(here.obtain("a"), here.obtain("b"));
        assertNotEquals(here.obtain("a"), there.obtain("a"));
        for (Lock lock : List.of(here.obtain("a"), here.obtain("b"), other.obtain("a"))) {
            assertTrue(lock.tryLock());
        }
        for (Lock lock : List.of(here.obtain("a"), here.obtain("b"), other.obtain("a"))) {
            lock.unlock();
        }
        assertThrows(IllegalArgumentException.class, () -> here.obtain(7));
    }

    @Test
    void onlyTheThreadThatLockedUnlocks() throws Exception {
        Lock lock = here.obtain("thread");
        lock.lock();
        CompletableFuture<Boolean> other = CompletableFuture.supplyAsync(() -> {
            try {
                assertFalse(lock.tryLock(50, TimeUnit.MILLISECONDS));
            } catch (InterruptedException e) {
                throw new IllegalArgumentException(e);
            }
            lock.unlock();
            return true;
        });
        ExecutionException e = assertThrows(ExecutionException.class, () -> other.get(5, TimeUnit.SECONDS));
        assertInstanceOf(IllegalStateException.class, e.getCause());
        assertTrue(e.getMessage().contains("own"));
        lock.unlock();
    }

    @Test
    void oneOfTwoWaitersGetsTheLock() throws Exception {
        Lock lock = here.obtain("two");
        lock.lock();
        AtomicInteger owners = new AtomicInteger();
        List<CompletableFuture<Void>> waits = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            Lock waiter = new SimbaRespLockRegistry(client, "registry").obtain("two");
            waits.add(client.async(() -> {
                if (waiter.tryLock(1, TimeUnit.SECONDS)) {
                    owners.incrementAndGet(); // and never unlocks
                }
                return null;
            }));
        }
        Thread.sleep(200);
        assertEquals(0, owners.get());
        lock.unlock();
        for (CompletableFuture<Void> wait : waits) {
            wait.get(5, TimeUnit.SECONDS);
        }
        assertEquals(1, owners.get());
    }

    @Test
    void registriesOfManyProcessesExcludeEachOther() throws Exception {
        int[] counter = new int[1]; // the lock protects it
        List<CompletableFuture<Void>> works = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            SimbaRespLockRegistry registry = new SimbaRespLockRegistry(client, "registry");
            works.add(client.async(() -> {
                for (int n = 0; n < 5; n++) {
                    Lock lock = registry.obtain("many");
                    lock.lock();
                    int before = counter[0];
                    Thread.sleep(1);
                    counter[0] = before + 1;
                    lock.unlock();
                }
                return null;
            }));
        }
        for (CompletableFuture<Void> work : works) {
            work.get(20, TimeUnit.SECONDS);
        }
        assertEquals(50, counter[0]);
    }

    @Test
    void threadsThatExpireAndObtainGetTheSameLock() throws Exception {
        for (int i = 0; i < 50; i++) {
            String key = "same" + i;
            Callable<Lock> use = () -> {
                here.expireUnusedOlderThan(10_000);
                Lock lock = here.obtain(key);
                assertTrue(lock.tryLock(5, TimeUnit.SECONDS));
                lock.unlock();
                return lock;
            };
            CompletableFuture<Lock> first = client.async(use);
            CompletableFuture<Lock> second = client.async(use);
            assertSame(first.get(), second.get());
        }
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
