package io.github.simbaresp;

import static io.lettuce.core.codec.StringCodec.UTF8;

import io.lettuce.core.RedisFuture;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.util.Set;
import java.util.concurrent.CompletableFuture;

/**
 * The connection for the channels of a client. A notice is only a hint, because it can be lost:
 * whoever gets it asks the server. Only the tick uses this object.
 */
final class Notices {
    private static final long REDIAL = 1_000_000_000;

    private final Core core;
    private CompletableFuture<StatefulRedisPubSubConnection<String, String>> connection; // null = none
    private Set<String> channels = Set.of(); // that the connection has asked for
    private long dialed = Clock.now() - REDIAL;

    Notices(Core core) {
        this.core = core;
    }

    /** Subscribes to these channels and to no others. Without channels it closes the connection. */
    void listen(Set<String> want) {
        if (want.isEmpty()) {
            if (connection != null) {
                connection.thenAccept(core::close);
            }
            connection = null;
        } else if (!Link.isUsable(connection)) {
            dial();
        } else if (connection.isDone()) {
            subscribe(connection.join(), want);
        }
    }

    private void dial() {
        if (Clock.now() - dialed < REDIAL) {
            return;
        }
        dialed = Clock.now();
        channels = Set.of();
        connection = Link.connect(core, redis -> redis.connectPubSub(UTF8));
        connection.thenAccept(c -> {
            c.addListener(new RedisPubSubAdapter<>() {
                @Override
                public void message(String channel, String payload) {
                    core.noticed(channel);
                }
            });
            core.wakeAt(Clock.now());
        });
    }

    private void subscribe(StatefulRedisPubSubConnection<String, String> c, Set<String> want) {
        Set<String> had = channels;
        channels = Set.copyOf(want);
        want.stream().filter(channel -> !had.contains(channel)).forEach(channel -> {
            RedisFuture<Void> asked = c.async().subscribe(channel);
            asked.whenComplete((done, failure) -> core.note("SUBSCRIBE " + channel, failure));
        });
        had.stream().filter(channel -> !want.contains(channel)).forEach(channel -> c.async().unsubscribe(channel));
    }
}
