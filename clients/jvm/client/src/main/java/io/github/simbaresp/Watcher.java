package io.github.simbaresp;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** Follows the changes of one mutex by the server's history, so it depends on no notice. */
final class Watcher {
    private final Core core;
    private final String mutex;
    private Owner owner; // after the last change; null = none
    private long newest = -1; // the largest token so far; -1 = nothing is known

    Watcher(Core core, String mutex) {
        this.core = core;
        this.mutex = mutex;
    }

    boolean isNew() {
        return newest < 0;
    }

    /** Returns the changes since the last read, or the present state if it is the first or changes are missing. */
    List<State> read() throws InterruptedException {
        Owner present = Core.get(core.owner(mutex), Core.FOREVER); // first, so that the history is not older
        List<Reply> events = Core.get(core.link.send(core.timeout, core.timeout, Command.HISTORY, mutex, "COUNT", 100), Core.FOREVER)
            .stream().map(Reply::of).toList();
        List<State> changes = isNew() ? List.of() : follow(events);
        if (!isNew() && (!changes.isEmpty() || token(present) == token(owner))) {
            return changes;
        }
        // Without an owner after it, the history has all tenures so far.
        owner = isNew() ? Core.get(core.owner(mutex), Core.FOREVER) : present;
        newest = owner != null ? owner.token()
            : events.stream().mapToLong(event -> event.number("token")).reduce(Math.max(newest, 0), Math::max);
        return List.of(new State(Optional.ofNullable(owner), "", ""));
    }

    private List<State> follow(List<Reply> events) {
        List<State> changes = new ArrayList<>();
        for (Reply event : events) {
            long token = event.number("token");
            boolean begins = event.text("event").equals("acquired") && token > newest;
            boolean ends = !event.text("event").equals("acquired") && token != 0 && token == token(owner);
            if (begins || ends) {
                owner = begins ? new Owner(event.text("owner"), token, Duration.ZERO) : null;
                newest = Math.max(newest, token);
                changes.add(new State(Optional.ofNullable(owner), event.text("event"), event.text("reason")));
            }
        }
        return changes;
    }

    private static long token(Owner owner) {
        return owner == null ? 0 : owner.token();
    }
}
