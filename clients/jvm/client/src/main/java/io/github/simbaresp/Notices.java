package io.github.simbaresp;

import static io.lettuce.core.codec.StringCodec.UTF8;

import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.util.Set;
import java.util.concurrent.CompletableFuture;

/**
 * The connection for the channels of a client. A notice is only a hint, because it can be lost:
 * whoever gets it asks the server. Only the tick uses this object.
 */
final class Notices {
    private final Core core;
    private CompletableFuture<StatefulRedisPubSubConnection<String, String>> connection; // null = none
    private Set<String> channels = Set.of(); // that the connection has asked for
    private long dialed = Clock.now() - Core.FOREVER;

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
        } else if (Link.isUsable(connection)) {
            if (connection.isDone()) {
                subscribe(connection.join(), want);
            }
        } else if (Clock.now() - dialed >= 1_000 * Core.MILLI) {
            dial();
        }
    }

    private void dial() {
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
        want.stream().filter(channel -> !had.contains(channel)).forEach(channel -> c.async().subscribe(channel)
            .whenComplete((done, failure) -> core.note("SUBSCRIBE " + channel, failure)));
        had.stream().filter(channel -> !want.contains(channel)).forEach(channel -> c.async().unsubscribe(channel));
    }
}
