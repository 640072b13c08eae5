package io.github.simbaresp;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * Reads the changes of one mutex. Notices only wake it: the server's history has what it delivers,
 * so no notice can be lost.
 */
final class Watcher implements Running.Body, Notices.Listener {
    private static final long EVERY = 15_000; // ms, as the others
    private static final long POLL = 1_000;
    private static final int CHANGES_MOST = 10_000;

    private final Core core;
    private final String mutex;
    private final long timeout;
    private final Consumer<State> consumer;
    private final Semaphore wake = new Semaphore(0);
    private boolean listens; // a read was accepted
    private boolean gap = true; // only the present state can follow
    private long seq; // of the last change
    private Owner owner; // after it; null = none
    private long newest; // the largest token so far
    private boolean differs; // the server has reported another owner in the last read

    Watcher(Core core, String mutex, Options options, Consumer<State> consumer) {
        this.core = core;
        this.mutex = mutex;
        this.timeout = options.timeout().toNanos();
        this.consumer = consumer;
    }

    @Override
    public void notice(String channel, String payload) {
        wake.release();
    }

    @Override
    public void run(Running self) throws InterruptedException {
        String channel = "simba-events:{" + mutex + "}";
        try {
            while (!self.isStopped()) {
                long delay = EVERY;
                try {
                    read().forEach(consumer);
                    if (!listens) { // not before the first read: the user may have no right to it
                        core.notices.add(channel, this);
                        listens = true;
                    }
                } catch (SimbaException.Unavailable e) {
                    core.noteFailure("watch " + mutex, e);
                    delay = POLL;
                }
                wake.tryAcquire(differs || core.notices.denied() ? POLL : delay, TimeUnit.MILLISECONDS);
                wake.drainPermits();
            }
        } finally {
            core.notices.remove(channel, this);
        }
    }

    /** Returns the changes since the last read, or the present state. */
    private List<State> read() throws InterruptedException {
        boolean first = !listens;
        List<State> changes = gap ? null : follow(history("SINCE", seq), owner());
        if (changes != null) {
            return changes;
        }
        gap = true; // until the present state was read
        seq = newest = 0;
        for (Reply event : history("COUNT", 1)) {
            seq = event.number("seq");
            newest = event.token();
        }
        owner = owner();
        newest = Math.max(newest, token(owner));
        gap = differs = false;
        return List.of(new State(Optional.ofNullable(owner), "", "", seq, !first));
    }

    /**
     * Returns the changes in a list of events; null if changes are missing. The owner is not older
     * than they.
     */
    private List<State> follow(List<Reply> events, Owner present) {
        List<State> changes = new ArrayList<>();
        for (Reply event : events) {
            seq = event.number("seq");
            long token = event.token();
            boolean begins = event.text("event").equals("acquired");
            if (begins && token > newest && owner == null) {
                owner = new Owner(event.text("owner"), token, Duration.ZERO);
            } else if (!begins && token != 0 && token == token(owner)) {
                owner = null;
            } else if (token > newest) { // the server does not keep the change before this one any more
                return null;
            } else { // of the queue, or older than the present state that was read
                continue;
            }
            newest = token;
            changes.add(new State(Optional.ofNullable(owner), event.text("event"), event.text("reason"), seq, false));
        }
        // The owner may be newer than the changes. But then the next read has a change, unless the
        // server was restarted and counts seq anew.
        boolean before = differs;
        differs = token(present) != token(owner);
        return events.size() >= CHANGES_MOST || before && differs && changes.isEmpty() ? null : changes;
    }

    private static long token(Owner owner) {
        return owner == null ? 0 : owner.token();
    }

    private List<Reply> history(String option, long value) throws InterruptedException {
        return Core.get(core.link.send(timeout, Command.HISTORY, mutex, option, value))
            .stream().map(event -> Reply.of((List<?>) event)).toList();
    }

    private Owner owner() throws InterruptedException {
        return Core.get(core.link.send(timeout, Command.OWNER, mutex).thenApply(Reply::ownerOf));
    }
}
