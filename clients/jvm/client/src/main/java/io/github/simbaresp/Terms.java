package io.github.simbaresp;

import java.util.Objects;

/** What a contender asks for. */
final class Terms {
    final String mutex;
    final Options options;
    volatile String id; // null = not made yet
    volatile long ttl; // ms, as grace
    volatile long grace;

    Terms(String mutex, Options options) {
        this.mutex = Objects.requireNonNull(mutex, "mutex");
        this.options = options;
        this.id = options.id();
        this.ttl = options.ttl() == null ? 10_000 : options.ttl().toMillis();
        this.grace = options.grace() == null ? 2_000 : options.grace().toMillis();
    }

    /** Returns the length of the lease, in nanoseconds. */
    long lease() {
        return (ttl + grace) * 1_000_000;
    }

    long timeout() {
        return options.timeout().toNanos();
    }

    /**
     * Shortens default windows to at most longest ms. Returns false if there is nothing to
     * shorten.
     */
    boolean fit(long longest) {
        long lease = ttl + grace;
        if (lease <= longest || longest < 2 || options.ttl() != null || options.grace() != null) {
            return false;
        }
        ttl = longest * ttl / lease;
        grace = longest - ttl;
        return true;
    }

    String channel() {
        return "simba:{" + mutex + "}";
    }
}
