package io.github.simbaresp;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A clock in nanoseconds that runs on while the machine is suspended. {@link System#nanoTime}
 * stands still then, but the server's clock may not. On Linux, {@code /proc/uptime} shows how long
 * the machine was suspended. Elsewhere, this clock is {@code nanoTime}.
 */
final class Clock {
    /** The resolution of {@code /proc/uptime}. */
    private static final long RESOLUTION = 10_000_000;
    private static final ReentrantLock LOCK = new ReentrantLock(); // guards what follows
    /** Not a file of java.nio, which closes when its reader is interrupted. */
    private static final RandomAccessFile UPTIME = open();
    private static final byte[] BUFFER = new byte[32];
    private static volatile long suspended = -1; // -1 = not measured yet
    private static volatile long pretended; // by tests

    static {
        suspended();
    }

    private Clock() {}

    static long now() {
        long slept = suspended();
        return System.nanoTime() + slept;
    }

    /**
     * Returns the time without asking whether the machine was suspended since the last call of
     * now. It is cheap, and never later than now. So it is right for the begin of a lease, but not
     * for its end.
     */
    static long rough() {
        return System.nanoTime() + suspended + pretended;
    }

    /**
     * Returns how long the machine was suspended since it booted, with a constant error of up to
     * 10 ms. The difference of the two clocks is too small by up to 10 ms. So only a larger jump
     * shows a suspension, which then counts as up to 10 ms too long.
     */
    static long suspended() {
        LOCK.lock();
        try {
            long span = UPTIME == null ? 0 : uptime() - System.nanoTime();
            if (suspended == -1 || span > suspended + RESOLUTION) {
                suspended = Math.max(0, suspended == -1 ? span : span + RESOLUTION);
            }
        } catch (IOException | NumberFormatException e) {
            suspended = Math.max(0, suspended); // unknown
        } finally {
            LOCK.unlock();
        }
        return suspended + pretended;
    }

    /** Makes the clock jump forward, as after a suspension. */
    static void pretend(long nanos) {
        pretended = pretended + nanos;
    }

    private static long uptime() throws IOException {
        UPTIME.seek(0);
        String line = new String(BUFFER, 0, UPTIME.read(BUFFER), StandardCharsets.US_ASCII); // 350735.47 234388.90
        return Long.parseLong(line.substring(0, line.indexOf(' ')).replace(".", "")) * RESOLUTION;
    }

    private static RandomAccessFile open() {
        try {
            return new RandomAccessFile("/proc/uptime", "r");
        } catch (IOException e) {
            return null;
        }
    }
}
