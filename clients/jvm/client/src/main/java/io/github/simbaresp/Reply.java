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
    static Reply of(List<?> flat) {
        Map<String, Object> fields = new HashMap<>();
        for (int i = 0; i + 1 < flat.size(); i += 2) {
            fields.put(String.valueOf(flat.get(i)), flat.get(i + 1));
        }
        return new Reply(fields);
    }

    String text(String name) {
        return field(name, String.class);
    }

    long number(String name) {
        return field(name, Long.class);
    }

    boolean has(String name) {
        return fields.get(name) != null;
    }

    private <T> T field(String name, Class<T> type) {
        if (!type.isInstance(fields.get(name))) {
            throw new SimbaException("the server's reply lacks " + name + ": not a simba-resp server?", null);
        }
        return type.cast(fields.get(name));
    }

    boolean is(String status) {
        return text("status").equals(status);
    }

    boolean granted() {
        return is("acquired") || is("renewed");
    }

    long token() {
        return number("token");
    }

    /** Returns the time until the lease ends, in nanoseconds. */
    long left() {
        return number("transition") * 1_000_000;
    }

    /** Returns the owner; null if there is none. */
    Owner owner() {
        return text("owner").isEmpty() ? null : new Owner(text("owner"), token(), Duration.ofNanos(left()));
    }

    /** Returns the owner in a reply to SIMBA.OWNER; null if there is none. */
    static Owner ownerOf(List<Object> reply) {
        return reply.isEmpty() || reply.get(0) == null ? null : of(reply).owner();
    }
}
