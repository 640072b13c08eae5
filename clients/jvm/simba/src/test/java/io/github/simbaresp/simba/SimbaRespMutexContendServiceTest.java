package io.github.simbaresp.simba;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.simbaresp.Options;
import io.github.simbaresp.Server;
import io.github.simbaresp.SimbaClient;
import io.lettuce.core.RedisClient;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import me.ahoo.simba.core.AbstractMutexContender;
import me.ahoo.simba.core.ContenderIdGenerator;
import me.ahoo.simba.core.MutexContendService;
import me.ahoo.simba.core.MutexContendServiceFactory;
import me.ahoo.simba.core.MutexState;
import me.ahoo.simba.schedule.AbstractScheduler;
import me.ahoo.simba.schedule.ScheduleConfig;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * The rules of Simba's own spec, and ours. Assertions are outside callbacks, since Simba swallows
 * those inside.
 */
@Timeout(300)
class SimbaRespMutexContendServiceTest {
    private Server server;
    private RedisClient redis;
    private SimbaClient client;
    private MutexContendServiceFactory factory;

    private record Event(String what, String id, long token) {}

    private final BlockingQueue<Event> events = new LinkedBlockingQueue<>();

    private final class Contender extends AbstractMutexContender {
        Contender(String mutex) {
            super(mutex, ContenderIdGenerator.HOST.generate());
        }

        Contender(String mutex, String id) {
            super(mutex, id);
        }

        @Override
        public void onAcquired(MutexState state) {
            events.add(new Event("acquired", getContenderId(), ((FencedMutexOwner) state.getAfter()).token()));
        }

        @Override
        public void onReleased(MutexState state) {
            events.add(new Event("released", getContenderId(), 0));
        }
    }

    @BeforeEach
    void start() throws Exception {
        server = new Server();
        redis = RedisClient.create(server.url());
        client = SimbaClient.create(redis, new Options().ttl(Duration.ofMillis(600)).grace(Duration.ofMillis(300)));
        factory = new SimbaRespMutexContendServiceFactory(client);
    }

    @AfterEach
    void stop() throws Exception {
        if (server != null) {
            client.close();
            redis.shutdown();
            server.close();
        }
    }

    private Event next() throws InterruptedException {
        return events.poll(100, TimeUnit.SECONDS);
    }

    @Test
    void startAndStopAndStartAgain() throws Exception {
        MutexContendService service = factory.createMutexContendService(new Contender("restart"));
        long last = 0;
        for (int i = 0; i < 2; i++) {
            service.start();
            Event acquired = next();
            assertEquals("acquired", acquired.what);
            assertTrue(service.isOwner());
            assertTrue(acquired.token > last);
            last = acquired.token;
            service.stop();
            assertEquals("released", next().what);
            assertFalse(service.isOwner());
            assertTrue(client.owner("restart").isEmpty());
        }
    }

    @Test
    void contenderWhoseIdIsInUseTriesAgain() throws Exception {
        MutexContendService first = factory.createMutexContendService(new Contender("twins", "same"));
        MutexContendService second = factory.createMutexContendService(new Contender("twins", "same"));
        first.start();
        assertEquals("acquired", next().what);
        second.start();
        Thread.sleep(200); // it is refused
        first.stop();
        assertEquals("released", next().what);
        assertEquals("acquired", next().what);
        Thread.currentThread().interrupt(); // does not end the wait for the release
        second.stop();
        assertTrue(Thread.interrupted());
        assertTrue(client.owner("twins").isEmpty());
    }

    @Test
    void ownerStaysOwnerAndInTtl() throws Exception {
        MutexContendService service = factory.createMutexContendService(new Contender("guard"));
        service.start();
        assertEquals("acquired", next().what);
        for (int i = 0; i < 20; i++) {
            Thread.sleep(100);
            assertTrue(service.isOwner());
            assertTrue(service.isInTtl());
        }
        service.stop();
        assertEquals("released", next().what);
        assertNull(events.poll());
    }

    @Test
    void contendersOwnTheMutexInTurn() throws Exception {
        List<MutexContendService> services = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            services.add(factory.createMutexContendService(new Contender("turns")));
            services.get(i).start();
        }
        long last = 0;
        for (int i = 0; i < 5; i++) {
            Event acquired = next();
            assertEquals("acquired", acquired.what);
            assertTrue(acquired.token > last);
            last = acquired.token;
            MutexContendService owner = services.stream()
                .filter(s -> s.getContenderId().equals(acquired.id)).findFirst().orElseThrow();
            for (MutexContendService one : services) { // all learn who the owner is
                while (one.getStatus().isActive() && !one.getAfterOwner().getOwnerId().equals(acquired.id)) {
                    Thread.sleep(5);
                }
                assertEquals(one == owner, one.isOwner());
            }
            owner.stop();
            assertEquals(new Event("released", acquired.id, 0), next()); // before the next one acquires
        }
        assertNull(events.poll(200, TimeUnit.MILLISECONDS));
    }

    @Test
    void oneContenderOfTenOwnsTheMutex() throws Exception {
        List<MutexContendService> services = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            services.add(factory.createMutexContendService(new Contender("ten")));
            services.get(i).start();
        }
        Event acquired = next();
        assertEquals("acquired", acquired.what);
        assertNull(events.poll(3, TimeUnit.SECONDS)); // longer than three leases
        assertEquals(List.of(acquired.id),
            services.stream().filter(MutexContendService::isOwner).map(MutexContendService::getContenderId).toList());
        services.forEach(MutexContendService::stop);
    }

    @Test
    void schedulerWorksWhileItOwnsTheMutex() throws Exception {
        AtomicInteger runs = new AtomicInteger();
        AbstractScheduler scheduler = new AbstractScheduler("schedule", factory) {
            @Override
            protected ScheduleConfig getConfig() {
                return ScheduleConfig.delay(Duration.ZERO, Duration.ofMillis(50));
            }

            @Override
            protected String getWorker() {
                return "worker";
            }

            @Override
            protected void work() {
                runs.incrementAndGet();
            }
        };
        assertFalse(scheduler.getRunning());
        scheduler.start();
        assertTrue(scheduler.getRunning());
        while (runs.get() < 3) {
            Thread.sleep(5);
        }
        scheduler.stop();
        assertFalse(scheduler.getRunning());
        Thread.sleep(100);
        int last = runs.get();
        Thread.sleep(200);
        assertEquals(last, runs.get());
    }

    @Test
    void contenderIsReleasedWithoutTheServer() throws Exception {
        MutexContendService service = factory.createMutexContendService(new Contender("dead"));
        service.start();
        assertEquals("acquired", next().what);
        server.close();
        assertEquals("released", next().what);
        assertFalse(service.isOwner());
    }
}
