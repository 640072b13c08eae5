package io.github.simbaresp;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * A record that the server has sent: a map in RESP3, a flat list of names and values in RESP2.
 * Lettuce's output makes a flat list of both.
 */
record Reply(Map<String, Object> fields) {
    static Reply of(Object flat) {
        List<?> list = (List<?>) flat;
        Map<String, Object> fields = new HashMap<>();
        for (int i = 0; i + 1 < list.size(); i += 2) {
            fields.put(String.valueOf(list.get(i)), list.get(i + 1));
        }
        return new Reply(fields);
    }

    /** Returns a text; null if there is none. */
    String text(String name) {
        return (String) fields.get(name);
    }

    long number(String name) {
        return (Long) fields.get(name);
    }

    boolean is(String status) {
        return text("status").equals(status);
    }

    /** Returns the time until the lease ends, in nanoseconds. */
    long left() {
        return number("transition") * Core.MILLI;
    }

    /** Returns the owner; null if there is none. */
    Owner owner() {
        return text("owner").isEmpty() ? null : new Owner(text("owner"), number("token"), Duration.ofNanos(left()));
    }
}
