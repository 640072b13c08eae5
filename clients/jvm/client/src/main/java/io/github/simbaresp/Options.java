package io.github.simbaresp;

import java.time.Duration;

/**
 * The options of a client or of some of its calls. Each method returns a copy with one option
 * changed.
 *
 * @param ttl      the first window of a lease, 1 ms to 24 h: the client renews when a third of it has
 *                 passed; null means 10 s
 * @param grace    the second window, 0 to 24 h, in which the owner still owns the mutex, so that one
 *                 slow renewal does not lose it (TRANSITION in the protocol); null means 2 s, or none
 *                 if the client's options set only {@code ttl}. If neither is set and the server
 *                 refuses such a lease as too long, the client uses a shorter one
 * @param timeout  the longest time for a request, and for a release that somebody waits for; null
 *                 means 3 s. Only {@link SimbaClient#create} uses it
 * @param longest  the longest time that {@code lock} waits; null means no limit, and zero that it asks
 *                 once, as {@code tryLock} does
 * @param id       the contender's id; null means a new one for each call. Two contenders of a mutex
 *                 must not have the same id, since the server treats them as one
 * @param idPrefix what new ids begin with; null means the name of the user and a colon, as the server
 *                 demands, and nothing for the user {@code default}. Only {@link SimbaClient#create}
 *                 uses it
 */
public record Options(Duration ttl, Duration grace, Duration timeout, Duration longest, String id, String idPrefix) {
    /** Creates the default options. */
    public Options() {
        this(null, null, null, null, null, null);
    }

    /** Checks the options. */
    public Options {
        timeout = timeout == null ? Duration.ofSeconds(3) : timeout;
        check("ttl", ttl, 1);
        check("grace", grace, 0);
        check("timeout", timeout, 1);
        if (longest != null && longest.isNegative()) {
            throw new IllegalArgumentException("wait is " + longest + ", not 0 or more");
        }
    }

    private static void check(String name, Duration d, long least) {
        if (d != null && (d.toMillis() < least || d.compareTo(Duration.ofHours(24)) > 0)) {
            throw new IllegalArgumentException(name + " is " + d + ", not " + least + " ms to 24 h");
        }
    }

    /** Sets the first window of a lease. */
    public Options ttl(Duration value) {
        return new Options(value, grace, timeout, longest, id, idPrefix);
    }

    /** Sets the second window of a lease. */
    public Options grace(Duration value) {
        return new Options(ttl, value, timeout, longest, id, idPrefix);
    }

    /** Sets the longest time for a request. */
    public Options timeout(Duration value) {
        return new Options(ttl, grace, value, longest, id, idPrefix);
    }

    /** Sets the longest time that {@code lock} waits. */
    public Options wait(Duration value) {
        return new Options(ttl, grace, timeout, value, id, idPrefix);
    }

    /** Sets the contender's id. */
    public Options id(String value) {
        return new Options(ttl, grace, timeout, longest, value, idPrefix);
    }

    /** Sets what new ids begin with. */
    public Options idPrefix(String value) {
        return new Options(ttl, grace, timeout, longest, id, value);
    }
}
