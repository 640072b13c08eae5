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
import java.util.stream.Stream;

/**
 * The connection for requests, which are pipelined. The first request opens it, and opens it again
 * after it broke. When a request gets no reply, the later ones take a new connection. The old one is
 * closed when its requests have ended, because a late reply still counts.
 *
 * <p>Lettuce resends requests after a reconnect unless the options of its client forbid it, and
 * these belong to the caller. Therefore each connection is closed the moment it breaks, before
 * Lettuce reconnects. That cancels its requests, so that none is sent twice.
 */
final class Link {
    private final Core core;
    private CompletableFuture<StatefulRedisConnection<String, String>> present; // guarded by this, as the others
    private volatile long ready; // when present has opened; until then, when it should have
    private long last; // when the last request ends
    private long retired = Clock.now() - Core.FOREVER;

    Link(Core core) {
        this.core = core;
    }

    private synchronized CompletableFuture<StatefulRedisConnection<String, String>> open(long end) {
        last = Math.max(last, end);
        if (!isUsable(present)) {
            ready = Clock.now() + core.timeout;
            present = connect(core, redis -> redis.connect(UTF8));
            present.thenRun(() -> ready = Clock.now());
        }
        return present;
    }

    /** Replaces a connection without replies, but seldom: while the server stalls, a new one is no better. */
    private synchronized void retire(CompletableFuture<StatefulRedisConnection<String, String>> connection, long sent) {
        long now = Clock.now();
        boolean stalls = connection.isDone() ? sent >= ready : now >= ready;
        if (connection == present && stalls && now - retired >= core.timeout / 3) {
            present = null;
            retired = now;
            core.after(last - now, () -> connection.thenAccept(core::close));
        }
    }

    /**
     * Sends a request and returns its reply. The future fails with an exception that the client can
     * throw: that the server is unavailable if no reply comes within the timeout. After the patience,
     * later requests take another connection.
     */
    CompletableFuture<List<Object>> send(long timeout, long patience, ProtocolKeyword command, Object... args) {
        long from = Clock.now();
        CompletableFuture<StatefulRedisConnection<String, String>> connection = open(from + timeout);
        CompletableFuture<List<Object>> result = new CompletableFuture<>();
        Future<?> timer = core.after(patience, () -> {
            retire(connection, from);
            core.after(timeout - patience, () -> result.completeExceptionally(
                new SimbaException.Unavailable("the server has not replied in time", null)));
        });
        connection.thenCompose(c -> result.isDone() ? result : dispatch(c, command, args))
            .handle((reply, failure) -> {
                timer.cancel(false);
                return failure == null ? result.complete(reply)
                    : result.completeExceptionally(SimbaException.of(failure));
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
        return core.pending(CompletableFuture.supplyAsync(() -> {
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
        }, core.threads));
    }

    static CompletableFuture<List<Object>> dispatch(
            StatefulRedisConnection<String, String> c, ProtocolKeyword command, Object... args) {
        return c.async().dispatch(command, new NestedMultiOutput<>(UTF8), new CommandArgs<>(UTF8)
            .addValues(Stream.of(args).map(Object::toString).toList())).toCompletableFuture();
    }
}
