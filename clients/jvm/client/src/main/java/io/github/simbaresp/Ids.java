package io.github.simbaresp;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.concurrent.atomic.AtomicLong;

/** Makes contender ids that people can read: prefix, {@code counter:pid@host~random}. */
final class Ids {
    private static final int LONGEST = 128;
    private static final SecureRandom RANDOM = new SecureRandom();
    private static final AtomicLong COUNTER = new AtomicLong();
    /** Tells processes with the same pid and host name apart, as in containers. */
    private static final String PROCESS = random().substring(0, 16);
    private static final String HOST = host();

    private Ids() {}

    static String next(String prefix) {
        String begin = prefix + COUNTER.incrementAndGet() + ":" + ProcessHandle.current().pid() + "@";
        int room = LONGEST - begin.getBytes(StandardCharsets.UTF_8).length - PROCESS.length() - 1;
        return begin + HOST.substring(0, Math.max(0, Math.min(HOST.length(), room))) + "~" + PROCESS;
    }

    /** Returns 32 random hexadecimal digits. */
    static String random() {
        byte[] bytes = new byte[16];
        RANDOM.nextBytes(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    private static String host() {
        try {
            String name = InetAddress.getLocalHost().getHostName();
            return name.matches("[\\w.-]+") ? name : "localhost";
        } catch (UnknownHostException e) {
            return "localhost";
        }
    }
}
