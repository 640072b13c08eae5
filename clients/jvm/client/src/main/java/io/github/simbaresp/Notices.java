package io.github.simbaresp;

import static io.lettuce.core.codec.StringCodec.UTF8;
import static java.util.concurrent.TimeUnit.SECONDS;

import io.lettuce.core.protocol.CommandType;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;

/**
 * The channels that a client subscribes to, with their listeners. They share one connection. The
 * first listener opens it, and it is opened again when it breaks.
 */
final class Notices {
    private static final long PING_EVERY = 1_000_000_000;
    private static final long BROKEN_AFTER = 3; // seconds without a reply
    private static final long REDIAL = 500_000_000;

    /** Receives the notices of channels. It must not block. */
    interface Listener {
        /** Handles a notice. If payload is null, earlier notices may have been missed. */
        void notice(String channel, String payload);
    }

    private final Core core;
    private final Map<String, List<Listener>> listeners = new HashMap<>(); // this and what follows is guarded by this
    private StatefulRedisPubSubConnection<String, String> connection; // null = none
    private boolean runs;
    private volatile boolean denied; // the server has refused a SUBSCRIBE on this connection

    Notices(Core core) {
        this.core = core;
    }

    /** Whether the server refuses notices. */
    boolean denied() {
        return denied;
    }

    /** Adds a listener. It gets a notice without payload when the channel is subscribed. */
    void add(String channel, Listener listener) {
        synchronized (this) {
            List<Listener> list = listeners.computeIfAbsent(channel, name -> new CopyOnWriteArrayList<>());
            list.add(listener);
            if (list.size() == 1) {
                subscribe(channel);
                return;
            }
        }
        listener.notice(channel, null);
    }

    /** Removes a listener. It may still get notices that are being delivered. */
    synchronized void remove(String channel, Listener listener) {
        List<Listener> list = listeners.get(channel);
        if (list != null && list.remove(listener) && list.isEmpty()) {
            listeners.remove(channel);
            if (connection != null) {
                connection.async().unsubscribe(channel);
            }
        }
    }

    private synchronized void subscribe(String channel) {
        if (!runs) {
            runs = true;
            core.run(this::run);
        } else if (connection != null) {
            connection.async().subscribe(channel).whenComplete((done, failure) -> {
                if (failure != null && SimbaException.refused(SimbaException.of(failure))) {
                    core.noteFailure("SUBSCRIBE " + channel, SimbaException.of(failure));
                    denied = true;
                    core.run(() -> deliver(channel, null)); // do not wait for notices that do not come
                }
            });
        }
    }

    /** Keeps a connection until the client is closed. */
    private void run() {
        for (long delay = 0; !core.isClosed(); delay = REDIAL) {
            try {
                core.sleep(delay);
                listen();
            } catch (Exception e) {
                core.log.debug("the connection for notices has ended", e);
            }
        }
    }

    /** Uses one connection until it breaks. */
    private void listen() throws Exception {
        CompletableFuture<StatefulRedisPubSubConnection<String, String>> dialed = Link.connect(core, redis -> redis.connectPubSub(UTF8));
        try {
            StatefulRedisPubSubConnection<String, String> c = dialed.get(BROKEN_AFTER, SECONDS);
            c.addListener(new RedisPubSubAdapter<>() {
                @Override
                public void message(String channel, String payload) {
                    deliver(channel, payload);
                }

                @Override
                public void subscribed(String channel, long count) {
                    deliver(channel, null);
                }
            });
            use(c);
            while (true) {
                core.sleep(PING_EVERY);
                Link.dispatch(c, CommandType.PING).get(BROKEN_AFTER, SECONDS);
            }
        } finally {
            use(null);
            dialed.thenAccept(core::close);
        }
    }

    private synchronized void use(StatefulRedisPubSubConnection<String, String> c) {
        connection = c;
        denied = false;
        listeners.keySet().forEach(this::subscribe);
    }

    private void deliver(String channel, String payload) {
        List<Listener> list;
        synchronized (this) {
            list = listeners.getOrDefault(channel, List.of());
        }
        list.forEach(listener -> listener.notice(channel, payload));
    }
}
