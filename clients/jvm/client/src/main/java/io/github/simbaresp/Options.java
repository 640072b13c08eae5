package io.github.simbaresp;

import java.time.Duration;

/**
 * The options of a client, which are the defaults of its calls. Each method returns a copy with
 * one option changed. Durations are whole milliseconds.
 *
 * @param ttl      the first window of a lease, 1 ms to 24 h: the client renews when a third of it
 *                 has passed; null means 10 s
 * @param grace    the second window, 0 to 24 h, in which the owner still owns the mutex, so that
 *                 one slow renewal does not lose it (TRANSITION in the protocol); null means 2 s,
 *                 or none if the client's options set only {@code ttl}. If neither is set and the
 *                 server refuses such a lease as too long, the client uses a shorter one
 * @param timeout  the longest time for a request or an unlock; null means 3 s
 * @param limit    the longest time that {@code lock} waits; null means no limit. {@code lead} and
 *                 {@code every} have none
 * @param id       the contender's id; null means a new one for each call. Two contenders of a
 *                 mutex must not have the same id, since the server treats them as one
 * @param idPrefix what a new id begins with; null means the name of the user and a colon, as the
 *                 server demands, and nothing for the user {@code default}
 * @param renew    whether the client renews the lease; if not, it ends after its windows unless
 *                 {@link Lock#extend} renews it
 */
public record Options(Duration ttl, Duration grace, Duration timeout, Duration limit, String id, String idPrefix, boolean renew) {
    private static final Duration MOST = Duration.ofHours(24);

    /** Creates the default options. */
    public Options() {
        this(null, null, null, null, null, null, true);
    }

    /** Checks the options. */
    public Options {
        timeout = timeout == null ? Duration.ofSeconds(3) : timeout;
        check("ttl", ttl, 1);
        check("grace", grace, 0);
        check("timeout", timeout, 1);
        check("limit", limit, 0);
    }

    private static void check(String name, Duration d, long least) {
        if (d != null && (d.toMillis() < least || !name.equals("limit") && d.compareTo(MOST) > 0 || d.toNanosPart() % 1_000_000 != 0)) {
            throw new IllegalArgumentException(name + " is " + d + ", not " + least + " ms to 24 h in whole milliseconds");
        }
    }

    /** Sets the first window of a lease. */
    public Options ttl(Duration value) {
        return new Options(value, grace, timeout, limit, id, idPrefix, renew);
    }

    /** Sets the second window of a lease. */
    public Options grace(Duration value) {
        return new Options(ttl, value, timeout, limit, id, idPrefix, renew);
    }

    /** Sets the longest time for a request. */
    public Options timeout(Duration value) {
        return new Options(ttl, grace, value, limit, id, idPrefix, renew);
    }

    /** Sets the longest time that {@code lock} waits. */
    public Options limit(Duration value) {
        return new Options(ttl, grace, timeout, value, id, idPrefix, renew);
    }

    /** Sets the contender's id. */
    public Options id(String value) {
        return new Options(ttl, grace, timeout, limit, value, idPrefix, renew);
    }

    /** Sets what new ids begin with. */
    public Options idPrefix(String value) {
        return new Options(ttl, grace, timeout, limit, id, value, renew);
    }

    /** Sets whether the client renews the lease. */
    public Options renew(boolean value) {
        return new Options(ttl, grace, timeout, limit, id, idPrefix, value);
    }
}
