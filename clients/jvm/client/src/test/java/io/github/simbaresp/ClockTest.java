package io.github.simbaresp;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class ClockTest {
    private static final long MILLI = 1_000_000;

    private long nanoTime = 5_000 * MILLI;
    private long wall = 1_700_000_000_000L * MILLI;
    private long uptime = 3_000 * MILLI; // less than nanoTime, as in some containers
    private int readings;

    private final Clock clock = new Clock(() -> nanoTime, () -> wall / MILLI, () -> {
        readings++;
        return uptime / (10 * MILLI) * 10 * MILLI;
    });

    private void runs(long millis) {
        nanoTime += millis * MILLI;
        suspended(millis);
    }

    private void suspended(long millis) {
        wall += millis * MILLI;
        uptime += millis * MILLI;
    }

    @Test
    void suspensionCountsAtOnce() {
        long before = clock.read();
        suspended(30);
        long passed = clock.read() - before;
        assertTrue(passed >= 30 * MILLI && passed <= 50 * MILLI, passed + " ns");
        suspended(3_600_000);
        assertTrue(clock.read() - before >= 3_600_030 * MILLI);
    }

    @Test
    void withoutSuspensionItIsNanoTime() {
        long before = clock.read();
        for (int i = 1; i <= 500; i++) {
            runs(7);
            assertEquals(i * 7 * MILLI, clock.read() - before);
        }
        assertTrue(readings < 10, readings + " readings");
    }

    @Test
    void nobodyCanSetIt() {
        long before = clock.read();
        wall += 3_600_000 * MILLI;
        assertEquals(before, clock.read());
        wall -= 7_200_000 * MILLI;
        assertEquals(before, clock.read());
    }
}
