package io.github.simbaresp;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisClient;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What the cases of clients/cases cannot reach from outside. */
@Timeout(30)
class SimbaClientTest {
    private static Server server;
    private static RedisClient redis;

    @BeforeAll
    static void start() throws Exception {
        server = new Server();
        redis = RedisClient.create(server.url());
    }

    @AfterAll
    static void stop() throws Exception {
        if (server != null) {
            redis.shutdown();
            server.close();
        }
    }

    private static List<Object> ask(String command, String... args) {
        ProtocolKeyword word = () -> command.getBytes(StandardCharsets.US_ASCII);
        try (StatefulRedisConnection<String, String> connection = redis.connect()) {
            return Link.dispatch(connection, word, (Object[]) args).join();
        }
    }

    private static int waiters(String mutex) {
        return ask("SIMBA.QUEUE", mutex).size();
    }

    private interface Condition {
        boolean holds() throws InterruptedException;
    }

    private static void until(Condition condition) throws InterruptedException {
        while (!condition.holds()) { // the test's timeout ends it
            Thread.sleep(5);
        }
    }

    @Test
    void interruptedLockLeavesNoQueueEntry() throws Exception {
        try (SimbaClient client = SimbaClient.create(redis); Lock held = client.lock("interrupted")) {
            AtomicReference<Throwable> failure = new AtomicReference<>();
            Thread waiter = new Thread(() -> {
                try {
                    client.lock("interrupted");
                } catch (Throwable e) {
                    failure.set(e);
                }
            });
            waiter.start();
            until(() -> waiters("interrupted") == 1);
            waiter.interrupt();
            waiter.join();
            assertInstanceOf(InterruptedException.class, failure.get());
            until(() -> waiters("interrupted") == 0);
            assertTrue(held.check());
        }
    }

    @Test
    void cancelledFutureLeavesNoQueueEntry() throws Exception {
        try (SimbaClient client = SimbaClient.create(redis); Lock held = client.lock("cancelled")) {
            CompletableFuture<Lock> waits = client.lockAsync("cancelled");
            until(() -> waiters("cancelled") == 1);
            assertTrue(waits.cancel(true));
            until(() -> waiters("cancelled") == 0);
            assertTrue(held.check());
        }
    }

    @Test
    void closeEndsWorkWaitsAndLocks() throws Exception {
        SimbaClient client = SimbaClient.create(redis);
        SimbaClient other = SimbaClient.create(redis);
        Lock held = client.lock("closed");
        CountDownLatch leads = new CountDownLatch(1);
        Running leader = client.leadAsync("closed-leader", tenure -> {
            leads.countDown();
            Thread.sleep(60_000);
        });
        Running watcher = client.watchAsync("closed", state -> { });
        CompletableFuture<Lock> waits = client.lockAsync("closed");
        leads.await();
        until(() -> waiters("closed") == 1);
        client.close();
        for (CompletableFuture<?> ended : new CompletableFuture<?>[] {leader.ended(), watcher.ended(), waits}) {
            ExecutionException e = assertThrows(ExecutionException.class, () -> ended.get(5, TimeUnit.SECONDS));
            assertInstanceOf(SimbaException.Closed.class, e.getCause());
        }
        assertFalse(held.check());
        assertTrue(other.owner("closed").isEmpty());
        assertTrue(other.owner("closed-leader").isEmpty());
        assertThrows(SimbaException.Closed.class, () -> client.lock("closed"));
        other.close();
    }

    @Test
    void closedLeaderReleasesAfterItsWork() throws Exception {
        try (SimbaClient client = SimbaClient.create(redis)) {
            CountDownLatch leads = new CountDownLatch(1);
            CompletableFuture<Boolean> after = new CompletableFuture<>();
            Running leader = client.leadAsync("stopped", tenure -> {
                leads.countDown();
                while (tenure.check()) {
                    Thread.onSpinWait(); // notices no interrupt
                }
                after.complete(client.owner("stopped").isPresent());
            });
            leads.await();
            leader.close();
            leader.ended().get(1, TimeUnit.SECONDS);
            assertTrue(client.owner("stopped").isEmpty());
        }
    }

    @Test
    void lossInterruptsTheWorkOnly() throws Exception {
        try (SimbaClient client = SimbaClient.create(redis)) {
            CountDownLatch tenures = new CountDownLatch(2);
            Running leader = client.leadAsync("broken", tenure -> {
                tenures.countDown();
                Thread.sleep(60_000);
            });
            until(() -> client.owner("broken").isPresent());
            Thread.sleep(1000); // a tenure that lasts hears notices
            ask("SIMBA.BREAK", "broken");
            assertTrue(tenures.await(10, TimeUnit.SECONDS));
            leader.close();
        }
    }

    @Test
    void workEndsLead() throws Exception {
        try (SimbaClient client = SimbaClient.create(redis)) {
            client.lead("final", Tenure::stop);
            assertThrows(IllegalStateException.class, () -> client.lead("final", tenure -> {
                tenure.stop();
                throw new IllegalStateException("no");
            }));
            assertTrue(client.owner("final").isEmpty());
        }
    }

    @Test
    void suspendedMachineLosesTheMutex() throws Exception {
        try (SimbaClient client = SimbaClient.create(redis)) {
            Lock lock = client.lock("suspended");
            CountDownLatch lost = new CountDownLatch(1);
            lock.lost().thenRun(lost::countDown);
            assertTrue(lock.check());
            Clock.pretend(Duration.ofSeconds(12).toNanos());
            assertFalse(lock.check());
            assertTrue(lost.await(1, TimeUnit.SECONDS));
            assertThrows(SimbaException.Lost.class, lock::close);
        }
    }

    @Test
    void shortSuspensionMakesTheOwnerRenewAtOnce() throws Exception {
        try (SimbaClient client = SimbaClient.create(redis); Lock lock = client.lock("naps")) {
            Clock.pretend(Duration.ofSeconds(2).toNanos());
            until(() -> lock.left().toMillis() > 11_000); // of 12 s less the margin
        }
    }

    @Test
    void requestWithoutReplyIsNeverSentAgain() throws Exception {
        try (Proxy proxy = new Proxy(server.port())) {
            RedisClient through = RedisClient.create("redis://127.0.0.1:" + proxy.port());
            SimbaClient client = SimbaClient.create(through, new Options().timeout(Duration.ofMillis(300)));
            client.lock("eaten").close();
            int before = proxy.count("SIMBA.ACQUIRE");
            proxy.eat(true);
            assertThrows(SimbaException.Unavailable.class, () -> client.tryLock("eaten"));
            assertEquals(before + 1, proxy.count("SIMBA.ACQUIRE"));
            proxy.eat(false);
            proxy.cut();
            until(() -> proxy.count("SIMBA.RELEASE") >= 2);
            Thread.sleep(1000); // Lettuce would reconnect within that time
            assertEquals(before + 1, proxy.count("SIMBA.ACQUIRE"));
            client.close();
            through.shutdown();
        }
    }
}
