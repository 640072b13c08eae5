package io.github.simbaresp;

import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;

/**
 * A clock in nanoseconds that nobody can set, and that runs on while the machine is suspended.
 * {@link System#nanoTime} stands still then, but the server's clock may not.
 *
 * <p>The uptime of Linux counts a suspension, but has steps of 10 ms and is in a file. So the clock
 * reads it only once a second, and when the wall clock has moved otherwise than nanoTime, as it does
 * in a suspension. Elsewhere, this clock is nanoTime.
 */
final class Clock {
    private static final long STEP = 10_000_000; // of the uptime
    private static final long READ_EVERY = 1_000_000_000;
    private static final long DRIFT = 5_000_000; // of the wall clock against nanoTime
    private static final long UNKNOWN = Long.MIN_VALUE / 2;
    private static final Clock BOOT = new Clock(System::nanoTime, System::currentTimeMillis, Clock::uptime);

    private final LongSupplier nanoTime;
    private final LongSupplier wallMillis;
    private final LongSupplier uptime;
    private final AtomicLong ahead; // of nanoTime, in the last reading, as wallAhead
    private volatile long wallAhead;
    private volatile long readAt = UNKNOWN;

    Clock(LongSupplier nanoTime, LongSupplier wallMillis, LongSupplier uptime) {
        this.nanoTime = nanoTime;
        this.wallMillis = wallMillis;
        this.uptime = uptime;
        this.ahead = new AtomicLong(uptime.getAsLong() - nanoTime.getAsLong());
    }

    static long now() {
        return BOOT.read();
    }

    long read() {
        long now = nanoTime.getAsLong();
        long wall = wallMillis.getAsLong() * 1_000_000 - now;
        if (now - readAt > READ_EVERY || Math.abs(wall - wallAhead) > DRIFT) {
            // The difference is too small by up to a step. So only a larger jump shows a suspension,
            // which then counts as up to a step too long.
            long measured = uptime.getAsLong() - nanoTime.getAsLong();
            ahead.accumulateAndGet(measured, (known, read) -> read > known + STEP ? read + STEP : known);
            wallAhead = wall;
            readAt = now;
        }
        return nanoTime.getAsLong() + ahead.get();
    }

    private static long uptime() {
        try (InputStream file = new FileInputStream("/proc/uptime")) { // not of java.nio, which heeds interrupts
            String line = new String(file.readAllBytes(), StandardCharsets.US_ASCII); // 350735.47 234388.90
            return Long.parseLong(line.substring(0, line.indexOf(' ')).replace(".", "")) * STEP;
        } catch (IOException e) {
            return UNKNOWN;
        }
    }
}
