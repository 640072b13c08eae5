package io.github.simbaresp;

import static io.lettuce.core.codec.StringCodec.UTF8;

import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisConnectionStateAdapter;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.function.Function;

/**
 * The connection for requests, which are pipelined. The first request opens it, and opens it again
 * after it broke. When a request gets no reply, the later ones take a new connection, and the old one
 * is closed a little later.
 *
 * <p>Lettuce resends requests after a reconnect unless the options of its client forbid it, and
 * these belong to the caller. Therefore each connection is closed the moment it breaks, before
 * Lettuce reconnects. That cancels its requests, so that none is sent twice.
 */
final class Link {
    private final Core core;
    private CompletableFuture<StatefulRedisConnection<String, String>> present; // guarded by this; null = none

    Link(Core core) {
        this.core = core;
    }

    private synchronized CompletableFuture<StatefulRedisConnection<String, String>> open() {
        if (!isUsable(present)) {
            present = connect(core, redis -> redis.connect(UTF8));
        }
        return present;
    }

    private synchronized void retire(CompletableFuture<StatefulRedisConnection<String, String>> connection) {
        if (connection == present) {
            present = null;
            core.after(core.timeout, () -> connection.thenAccept(core::close));
        }
    }

    /**
     * Sends a request and returns its reply. The future fails with an exception that the client can
     * throw: that the server is unavailable if no reply comes in time.
     */
    CompletableFuture<List<Object>> send(long timeout, ProtocolKeyword command, Object... args) {
        CompletableFuture<StatefulRedisConnection<String, String>> connection = open();
        CompletableFuture<List<Object>> result = new CompletableFuture<>();
        Future<?> timer = core.after(timeout, () -> {
            if (result.completeExceptionally(new SimbaException.Unavailable("no reply in time", null))) {
                retire(connection);
            }
        });
        connection.thenCompose(c -> result.isDone() ? result : dispatch(c, command, args))
            .whenComplete((reply, failure) -> {
                timer.cancel(false);
                if (failure == null) {
                    result.complete(reply);
                } else {
                    result.completeExceptionally(SimbaException.of(failure));
                }
            });
        return result;
    }

    /** Whether the connection is open, or is being opened. */
    static boolean isUsable(CompletableFuture<? extends StatefulRedisConnection<?, ?>> connection) {
        return connection != null && !connection.isCompletedExceptionally()
            && (!connection.isDone() || connection.join().isOpen());
    }

    /** Opens a connection on a thread of its own, since Lettuce blocks. It never reconnects. */
    static <C extends StatefulRedisConnection<String, String>> CompletableFuture<C> connect(
            Core core, Function<RedisClient, C> dial) {
        return CompletableFuture.supplyAsync(() -> {
            C connection = dial.apply(core.redis);
            core.connections.add(connection);
            connection.setTimeout(Duration.ofMinutes(1)); // the client has timers of its own
            connection.addListener(new RedisConnectionStateAdapter() {
                @Override
                public void onRedisDisconnected(RedisChannelHandler<?, ?> broken) {
                    core.close(connection);
                }
            });
            if (core.timers.isShutdown()) {
                core.close(connection);
            }
            return connection;
        }, core.threads);
    }

    static CompletableFuture<List<Object>> dispatch(
            StatefulRedisConnection<String, String> c, ProtocolKeyword command, Object... args) {
        CommandArgs<String, String> list = new CommandArgs<>(UTF8);
        for (Object arg : args) {
            list.addValue(arg.toString());
        }
        return c.async().dispatch(command, new NestedMultiOutput<>(UTF8), list).toCompletableFuture();
    }
}
