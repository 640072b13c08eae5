package io.github.simbaresp.shedlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.simbaresp.Server;
import io.github.simbaresp.SimbaClient;
import io.lettuce.core.RedisClient;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The rules of ShedLock's own tests for providers that can extend locks. */
@Timeout(300)
class SimbaRespLockProviderTest {
    private static Server server;
    private static RedisClient redis;
    private static SimbaClient client;
    private static LockProvider provider;
    private static ExecutorService pool;

    @BeforeAll
    static void start() throws Exception {
        server = new Server();
        redis = RedisClient.create(server.url());
        client = SimbaClient.create(redis);
        provider = new SimbaRespLockProvider(client);
        pool = Executors.newCachedThreadPool();
    }

    @AfterAll
    static void stop() throws Exception {
        if (server != null) {
            pool.shutdown();
            client.close();
            redis.shutdown();
            server.close();
        }
    }

    private static LockConfiguration configuration(String name, long most, long least) {
        return new LockConfiguration(Instant.now(), name, Duration.ofMillis(most), Duration.ofMillis(least));
    }

    private static Optional<SimpleLock> lock(String name, long most, long least) {
        return provider.lock(configuration(name, most, least));
    }

    @Test
    void oneOwnerAtATime() {
        SimpleLock first = lock("one", 10_000, 0).orElseThrow();
        assertTrue(lock("one", 10_000, 0).isEmpty());
        assertTrue(lock("another", 10_000, 0).isPresent());
        first.unlock();
        lock("one", 10_000, 0).orElseThrow().unlock();
    }

    @Test
    void lockIsFreeRightAfterUnlock() {
        for (int i = 0; i < 20; i++) {
            SimpleLock lock = lock("again", 300_000, 0).orElseThrow();
            assertTrue(lock("again", 300_000, 0).isEmpty());
            lock.unlock();
        }
    }

    @Test
    void noTwoJobsOfOneLockRunAtOnce() throws Exception {
        int threads = 8;
        int runs = 50;
        AtomicInteger[] running = {new AtomicInteger(), new AtomicInteger()};
        AtomicInteger overlaps = new AtomicInteger();
        int[] counters = new int[2]; // not atomic: the lock protects them
        DefaultLockingTaskExecutor executor = new DefaultLockingTaskExecutor(provider);
        List<CompletableFuture<Void>> jobs = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            int name = i % 2;
            jobs.add(CompletableFuture.runAsync(() -> {
                for (AtomicInteger done = new AtomicInteger(); done.get() < runs; ) {
                    executor.executeWithLock((Runnable) () -> {
                        overlaps.addAndGet(running[name].incrementAndGet() - 1);
                        int n = counters[name];
                        Thread.yield();
                        counters[name] = n + 1;
                        running[name].decrementAndGet();
                        done.incrementAndGet();
                    }, configuration("fuzz" + name, 300_000, 1));
                }
            }, pool));
        }
        for (CompletableFuture<Void> job : jobs) {
            job.get();
        }
        assertEquals(0, overlaps.get());
        assertEquals(threads / 2 * runs, counters[0]);
        assertEquals(threads / 2 * runs, counters[1]);
    }

    @Test
    void lockEndsAfterLockAtMostFor() throws Exception {
        SimpleLock first = lock("most", 500, 0).orElseThrow();
        Thread.sleep(300);
        assertTrue(lock("most", 500, 0).isEmpty());
        Thread.sleep(300);
        SimpleLock second = lock("most", 5_000, 0).orElseThrow();
        first.unlock(); // does not end the second
        assertTrue(lock("most", 500, 0).isEmpty());
        second.unlock();
    }

    @Test
    void lockLastsForLockAtLeastFor() throws Exception {
        long begin = System.nanoTime();
        lock("least", 10_000, 600).orElseThrow().unlock();
        while (lock("least", 10_000, 0).isEmpty()) {
            Thread.sleep(5);
        }
        long passed = Duration.ofNanos(System.nanoTime() - begin).toMillis();
        assertTrue(passed >= 590 && passed < 9_000, passed + " ms");
    }

    @Test
    void extendSetsNewTimes() throws Exception {
        SimpleLock first = lock("extend", 400, 0).orElseThrow();
        SimpleLock second = first.extend(Duration.ofMillis(1_200), Duration.ZERO).orElseThrow();
        Thread.sleep(600);
        assertTrue(lock("extend", 400, 0).isEmpty());
        second.unlock();
        assertTrue(lock("extend", 300, 0).isPresent());
    }

    @Test
    void lockCanBeExtendedAgainAndAgain() throws Exception {
        SimpleLock lock = lock("extend-more", 400, 0).orElseThrow();
        for (int i = 0; i < 3; i++) {
            lock = lock.extend(Duration.ofMillis(1_000), Duration.ZERO).orElseThrow();
        }
        Thread.sleep(500);
        assertTrue(lock("extend-more", 400, 0).isEmpty());
        lock.unlock();
        lock("extend-more", 400, 0).orElseThrow().unlock();
    }

    @Test
    void extendSetsLockAtLeastFor() {
        SimpleLock first = lock("extend-least", 10_000, 0).orElseThrow();
        first.extend(Duration.ofMillis(10_000), Duration.ofMillis(9_000)).orElseThrow().unlock();
        assertTrue(lock("extend-least", 10_000, 0).isEmpty());
    }

    @Test
    void lockThatWasUnlockedOrExtendedIsInvalid() {
        SimpleLock unlocked = lock("invalid", 10_000, 0).orElseThrow();
        unlocked.unlock();
        assertThrows(IllegalStateException.class, () -> unlocked.extend(Duration.ofSeconds(10), Duration.ZERO));
        SimpleLock extended = lock("invalid", 10_000, 0).orElseThrow();
        SimpleLock valid = extended.extend(Duration.ofSeconds(10), Duration.ZERO).orElseThrow();
        assertThrows(IllegalStateException.class, () -> extended.extend(Duration.ofSeconds(10), Duration.ZERO));
        assertThrows(IllegalStateException.class, extended::unlock);
        assertTrue(lock("invalid", 10_000, 0).isEmpty());
        valid.unlock();
    }

    @Test
    void lockThatHasEndedCannotBeExtended() throws Exception {
        SimpleLock first = lock("late", 300, 0).orElseThrow();
        Thread.sleep(350);
        assertFalse(first.extend(Duration.ofMillis(300), Duration.ZERO).isPresent());
    }
}
