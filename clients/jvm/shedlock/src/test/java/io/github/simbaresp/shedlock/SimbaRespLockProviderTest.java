package io.github.simbaresp.shedlock;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.simbaresp.Server;
import io.github.simbaresp.SimbaClient;
import io.lettuce.core.RedisClient;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(30)
class SimbaRespLockProviderTest {
    private static Server server;
    private static RedisClient redis;
    private static SimbaClient client;
    private static LockProvider provider;

    @BeforeAll
    static void start() throws Exception {
        server = new Server();
        redis = RedisClient.create(server.url());
        client = SimbaClient.create(redis);
        provider = new SimbaRespLockProvider(client);
    }

    @AfterAll
    static void stop() throws Exception {
        if (server != null) {
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
        assertTrue(passed >= 590 && passed < 1_500, passed + " ms");
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
    void lockThatHasEndedCannotBeExtended() throws Exception {
        SimpleLock first = lock("late", 300, 0).orElseThrow();
        Thread.sleep(350);
        assertFalse(first.extend(Duration.ofMillis(300), Duration.ZERO).isPresent());
    }
}
