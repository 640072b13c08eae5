package io.github.simbaresp;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisClient;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
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
import org.junit.jupiter.api.io.TempDir;

/** What the cases of clients/cases cannot reach from outside. */
@Timeout(300)
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
            CompletableFuture<Lock> waits = client.async(() -> client.lock("cancelled"));
            until(() -> waiters("cancelled") == 1);
            assertTrue(waits.cancel(true));
            until(() -> waiters("cancelled") == 0);
            assertTrue(held.check());
        }
    }

    /** Runs lead on a thread of the client. Cancelling the future interrupts it. */
    private static CompletableFuture<Void> lead(SimbaClient client, String mutex, Work work) {
        return client.async(() -> {
            client.lead(mutex, work);
            return null;
        });
    }

    @Test
    void closeEndsWorkWaitsAndLocks() throws Exception {
        SimbaClient client = SimbaClient.create(redis);
        Lock held = client.lock("closed");
        CountDownLatch leads = new CountDownLatch(1);
        CompletableFuture<Void> leader = lead(client, "closed-leader", tenure -> {
            leads.countDown();
            assertFalse(tenure.await(Duration.ofMinutes(1)));
            assertFalse(tenure.check()); // but it is released after the work
        });
        CompletableFuture<Void> watcher = client.async(() -> {
            client.watch("closed", state -> { });
            return null;
        });
        CompletableFuture<Lock> waits = client.async(() -> client.lock("closed"));
        leads.await();
        until(() -> waiters("closed") == 1);
        client.close();
        for (CompletableFuture<?> ended : new CompletableFuture<?>[] {leader, watcher, waits}) {
            ExecutionException e = assertThrows(ExecutionException.class, () -> ended.get(5, TimeUnit.SECONDS));
            assertInstanceOf(SimbaException.Closed.class, e.getCause());
        }
        assertFalse(held.check());
        held.close();
        try (SimbaClient other = SimbaClient.create(redis)) {
            assertTrue(other.owner("closed").isEmpty());
            assertTrue(other.owner("closed-leader").isEmpty());
        }
        assertThrows(SimbaException.Closed.class, () -> client.lock("closed"));
        client.close();
    }

    @Test
    void interruptEndsLeadAfterItsWork() throws Exception {
        try (SimbaClient client = SimbaClient.create(redis)) {
            CountDownLatch leads = new CountDownLatch(1);
            AtomicReference<Throwable> end = new AtomicReference<>();
            CompletableFuture<Boolean> owned = new CompletableFuture<>();
            Thread leader = new Thread(() -> {
                try {
                    client.lead("interrupted-leader", tenure -> {
                        leads.countDown();
                        while (!Thread.currentThread().isInterrupted()) {
                            Thread.onSpinWait(); // the flag stays set
                        }
                        owned.complete(tenure.check());
                    });
                } catch (Throwable e) {
                    end.set(e);
                }
            });
            leader.start();
            leads.await();
            leader.interrupt();
            leader.join();
            assertTrue(owned.get());
            assertInstanceOf(InterruptedException.class, end.get());
            assertTrue(client.owner("interrupted-leader").isEmpty());
        }
    }

    @Test
    void interruptThatCoincidesWithALossEndsLead() throws Exception {
        try (SimbaClient client = SimbaClient.create(redis)) {
            CountDownLatch leads = new CountDownLatch(1);
            AtomicReference<Throwable> end = new AtomicReference<>();
            Thread leader = new Thread(() -> {
                try {
                    client.lead("coincidence", tenure -> {
                        leads.countDown();
                        while (tenure.check()) {
                            Thread.onSpinWait();
                        }
                        Thread.currentThread().interrupt(); // as the caller's, at the moment of the loss
                    });
                } catch (Throwable e) {
                    end.set(e);
                }
            });
            leader.start();
            leads.await();
            Thread.sleep(1000); // an older tenure hears notices
            ask("SIMBA.BREAK", "coincidence");
            leader.join();
            assertInstanceOf(InterruptedException.class, end.get());
        }
    }

    @Test
    void clientInterruptsNobody() throws Exception {
        try (SimbaClient client = SimbaClient.create(redis)) {
            CountDownLatch tenures = new CountDownLatch(2);
            AtomicReference<Throwable> interrupt = new AtomicReference<>();
            CompletableFuture<Void> leader = lead(client, "broken", tenure -> {
                tenures.countDown();
                try {
                    tenure.lost().toCompletableFuture().get();
                    Thread.sleep(50);
                } catch (InterruptedException e) {
                    interrupt.set(tenures.getCount() == 0 ? null : e); // the second tenure is cancelled
                    throw e;
                }
            });
            until(() -> client.owner("broken").isPresent());
            Thread.sleep(1000);
            ask("SIMBA.BREAK", "broken");
            tenures.await();
            leader.cancel(true);
            until(() -> client.owner("broken").isEmpty());
            assertNull(interrupt.get());
        }
    }

    @Test
    void closeOfALockHonoursAnInterrupt() throws Exception {
        try (SimbaClient client = SimbaClient.create(redis)) {
            Lock lock = client.lock("interrupted-close");
            Thread.currentThread().interrupt();
            lock.close();
            assertTrue(Thread.interrupted());
            assertTrue(client.owner("interrupted-close").isEmpty());
        }
    }

    @Test
    void workEndsLead() throws Exception {
        try (SimbaClient client = SimbaClient.create(redis)) {
            client.lead("final", Lock::stop);
            client.every("final", Duration.ofMinutes(1), tenure -> {
                tenure.stop();
                throw new IllegalStateException("is logged");
            });
            assertTrue(client.owner("final").isEmpty());
        }
    }

    @Test
    void cancelledLockOfACallersIdLeavesNothing() throws Exception {
        try (SimbaClient client = SimbaClient.create(redis); Lock held = client.lock("named")) {
            for (int i = 0; i < 3; i++) { // before and after the connection for outcomes is open
                CompletableFuture<Lock> waits = client.async(() -> client.with(o -> o.id("me")).lock("named"));
                until(() -> waiters("named") == 1);
                Thread.sleep(200);
                waits.cancel(true);
                until(() -> waiters("named") == 0);
            }
            assertTrue(held.check());
        }
    }

    @Test
    void keptLeaseEndsByItself() throws Exception {
        try (SimbaClient client = SimbaClient.create(redis)) {
            Lock lock = client.lock("kept");
            long begin = System.nanoTime();
            assertTrue(lock.keepFor(Duration.ofSeconds(1)));
            until(() -> !lock.check());
            long passed = (System.nanoTime() - begin) / 1_000_000;
            assertTrue(passed > 900 && passed < 5_000, passed + " ms"); // it would last for 12 s
            assertFalse(lock.keepFor(Duration.ofSeconds(1)));
            assertThrows(SimbaException.Lost.class, lock::close);
        }
    }

    /** Runs the test with a client whose server is behind the proxy. */
    private interface Behind {
        void run(Proxy proxy, SimbaClient client) throws Exception;
    }

    private static void behindProxy(Options options, Behind test) throws Exception {
        try (Proxy proxy = new Proxy(server.port())) {
            RedisClient through = RedisClient.create("redis://127.0.0.1:" + proxy.port());
            SimbaClient client = SimbaClient.create(through, options);
            test.run(proxy, client);
            proxy.eat(false);
            proxy.delay(0);
            proxy.cut();
            try {
                client.close();
            } catch (SimbaException.Unavailable e) {
                System.err.println("close: " + e); // its release may come too late
            }
            through.shutdown();
        }
    }

    @Test
    void shorterLeaseCountsWithoutAReply() throws Exception {
        behindProxy(new Options().timeout(Duration.ofSeconds(1)), (proxy, client) -> {
            Lock lock = client.lock("shortened");
            proxy.eat(true);
            assertThrows(SimbaException.Unavailable.class, () -> lock.keepFor(Duration.ofMillis(500)));
            assertFalse(lock.check()); // the server may have taken the request
        });
    }

    @Test
    void shorteningIsRepeatedAfterAnOutage() throws Exception {
        behindProxy(new Options().timeout(Duration.ofSeconds(1)), (proxy, client) -> {
            Lock lock = client.lock("repeated");
            proxy.eat(true);
            assertThrows(SimbaException.Unavailable.class, () -> lock.keepFor(Duration.ofSeconds(5)));
            proxy.eat(false);
            proxy.cut();
            try (SimbaClient other = SimbaClient.create(redis)) {
                until(() -> other.owner("repeated").orElseThrow().left().toMillis() <= 5_000);
            }
            assertTrue(lock.check());
        });
    }

    @Test
    void interruptedShorteningCounts() throws Exception {
        try (SimbaClient client = SimbaClient.create(redis)) {
            Lock lock = client.lock("interrupted-keep");
            Thread.currentThread().interrupt();
            assertThrows(InterruptedException.class, () -> lock.keepFor(Duration.ofSeconds(1)));
            until(() -> client.owner("interrupted-keep").isEmpty());
            assertFalse(lock.check());
        }
    }

    @Test
    void lateRepliesToRenewalsCount() throws Exception {
        behindProxy(new Options().timeout(Duration.ofSeconds(10)).ttl(Duration.ofSeconds(3)), (proxy, client) -> {
            Lock lock = client.lock("late");
            proxy.delay(1_000); // longer than the patience, which is 670 ms
            assertTrue(lock.await(Duration.ofSeconds(5)));
        });
    }

    @Test
    void stalledServerGetsFewConnections() throws Exception {
        behindProxy(new Options().timeout(Duration.ofSeconds(1)).ttl(Duration.ofSeconds(3)), (proxy, client) -> {
            for (int i = 0; i < 20; i++) {
                client.lock("stalled-" + i);
            }
            int before = proxy.connections();
            proxy.eat(true);
            Thread.sleep(3_000);
            assertTrue(proxy.connections() - before < 8, "" + (proxy.connections() - before));
        });
    }

    @Test
    void closedClientLeavesAKeptLease() throws Exception {
        SimbaClient client = SimbaClient.create(redis);
        Lock lock = client.lock("kept-on");
        assertTrue(lock.keepFor(Duration.ofSeconds(20)));
        client.close();
        lock.close();
        try (SimbaClient other = SimbaClient.create(redis)) {
            assertEquals(lock.token(), other.owner("kept-on").orElseThrow().token());
        }
    }

    @Test
    void waitOfZeroAsksOnce() throws Exception {
        try (SimbaClient client = SimbaClient.create(redis)) {
            SimbaClient once = client.with(o -> o.wait(Duration.ZERO));
            try (Lock held = once.lock("zero")) {
                SimbaException.NotAcquired e =
                    assertThrows(SimbaException.NotAcquired.class, () -> once.lock("zero"));
                assertEquals(held.id(), e.owner().orElseThrow().id());
            }
            assertThrows(IllegalArgumentException.class, () -> client.with(o -> o.wait(Duration.ofMillis(-1))));
        }
    }

    @Test
    void limitWithoutAReplyIsUnavailable() throws Exception {
        behindProxy(new Options().timeout(Duration.ofSeconds(1)), (proxy, client) -> {
            client.lock("limit").close();
            proxy.eat(true);
            for (int ms : new int[] {1, 1_500}) {
                SimbaClient brief = client.with(o -> o.wait(Duration.ofMillis(ms)));
                assertThrows(SimbaException.Unavailable.class, () -> brief.lock("limit"));
            }
        });
    }

    @Test
    void callCannotHaveOptionsOfTheClient() {
        try (SimbaClient client = SimbaClient.create(redis)) {
            assertThrows(IllegalArgumentException.class, () -> client.with(o -> o.timeout(Duration.ofSeconds(1))));
            assertThrows(IllegalArgumentException.class, () -> client.with(o -> o.idPrefix("a")));
        }
    }

    @Test
    void watchPassesOnTheExceptionsOfItsConsumer() {
        try (SimbaClient client = SimbaClient.create(redis)) {
            assertThrows(SimbaException.Unavailable.class, () -> client.watch("consumed", state -> {
                throw new SimbaException.Unavailable("of the consumer", null);
            }));
        }
    }

    @Test
    void futureThatIsCompletedOtherwiseEndsItsCall() throws Exception {
        try (SimbaClient client = SimbaClient.create(redis); Lock held = client.lock("completed")) {
            client.async(() -> client.lock("completed")).orTimeout(500, TimeUnit.MILLISECONDS);
            until(() -> waiters("completed") == 1);
            until(() -> waiters("completed") == 0);
            assertTrue(held.check());
        }
    }

    @Test
    void closedClientEndsTheAwaitOfALock() throws Exception {
        SimbaClient client = SimbaClient.create(redis);
        Lock lock = client.lock("awaited");
        CompletableFuture<Boolean> awaits = client.async(() -> lock.await(Duration.ofMinutes(1)));
        client.close();
        assertFalse(awaits.get(5, TimeUnit.SECONDS));
    }

    @Test
    void callersIdIsNeverReleasedBlindly() throws Exception {
        try (Proxy proxy = new Proxy(server.port())) {
            RedisClient through = RedisClient.create("redis://127.0.0.1:" + proxy.port());
            SimbaClient client = SimbaClient.create(through, new Options().timeout(Duration.ofSeconds(1)));
            client.lock("blind").close();
            int released = proxy.count("SIMBA.RELEASE");
            proxy.eat(true);
            assertThrows(SimbaException.Unavailable.class, () -> client.with(o -> o.id("me")).tryLock("blind"));
            proxy.eat(false);
            proxy.cut();
            until(() -> proxy.count("SIMBA.OWNER") >= 1);
            Thread.sleep(300);
            assertEquals(released, proxy.count("SIMBA.RELEASE")); // the mutex is free
            client.close();
            through.shutdown();
        }
    }

    @Test
    void userWithoutTheRightToAskItsNameLocks(@TempDir Path dir) throws Exception {
        Path users = Files.writeString(dir.resolve("users.acl"), """
            user default on nopass ~* +@simba -@dangerous +hello
            user blind on >pw ~* +@simba -@dangerous +hello
            """);
        try (Server own = new Server("--aclfile", users.toString())) {
            RedisClient blind = RedisClient.create(own.url().replace("://", "://blind:pw@"));
            RedisClient nobody = RedisClient.create(own.url());
            try (SimbaClient client = SimbaClient.create(blind, new Options().idPrefix("blind:"));
                    SimbaClient other = SimbaClient.create(nobody)) {
                client.lock("blind").close();
                other.lock("blind").close();
            } finally {
                blind.shutdown();
                nobody.shutdown();
            }
        }
    }

    @Test
    void thereIsOneConnectionWithoutWaitersAndOldTenures() throws Exception {
        try (Proxy proxy = new Proxy(server.port())) {
            RedisClient through = RedisClient.create("redis://127.0.0.1:" + proxy.port());
            try (SimbaClient client = SimbaClient.create(through); Lock held = client.lock("quiet")) {
                Thread.sleep(500);
                assertEquals(1, proxy.count("HELLO"));
                assertTrue(held.check());
            } finally {
                through.shutdown();
            }
        }
    }

    @Test
    void requestWithoutReplyIsNeverSentAgain() throws Exception {
        try (Proxy proxy = new Proxy(server.port())) {
            RedisClient through = RedisClient.create("redis://127.0.0.1:" + proxy.port());
            SimbaClient client = SimbaClient.create(through, new Options().timeout(Duration.ofSeconds(1)));
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
