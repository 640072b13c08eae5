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
 * after it broke.
 *
 * <p>Lettuce resends requests after a reconnect unless the options of its client forbid it, and
 * these belong to the caller. Therefore each connection is closed the moment it breaks, before
 * Lettuce reconnects. That cancels its requests, so that none is sent twice.
 */
final class Link {
    /** How long a connection is kept that was replaced, in case replies still arrive. */
    private static final long RETIRED = 10_000_000_000L;

    private final Core core;
    private CompletableFuture<StatefulRedisConnection<String, String>> present; // guarded by this; null = none

    Link(Core core) {
        this.core = core;
    }

    /** Returns the present connection, and opens one if there is none. */
    synchronized CompletableFuture<StatefulRedisConnection<String, String>> open() {
        if (present == null || present.isCompletedExceptionally() || present.isDone() && !present.join().isOpen()) {
            present = connect(core, redis -> redis.connect(UTF8));
        }
        return present;
    }

    /** Makes later requests use a new connection, unless they do already. */
    synchronized void retire(CompletableFuture<StatefulRedisConnection<String, String>> connection) {
        if (connection == present) {
            present = null;
            core.after(RETIRED, () -> connection.thenAccept(core::close));
        }
    }

    CompletableFuture<List<Object>> send(long timeout, ProtocolKeyword command, Object... args) {
        return send(open(), timeout, command, args);
    }

    /**
     * Sends a request and returns its reply. The future fails with an exception that the client
     * can throw. If no reply comes in time, the connection is replaced.
     */
    CompletableFuture<List<Object>> send(CompletableFuture<StatefulRedisConnection<String, String>> connection, long timeout,
            ProtocolKeyword command, Object... args) {
        CompletableFuture<List<Object>> result = new CompletableFuture<>();
        Future<?> timer = core.after(timeout, () -> {
            if (result.completeExceptionally(new SimbaException.Unavailable("no reply in time", null))) {
                retire(connection);
            }
        });
        connection.thenCompose(c -> result.isDone() ? result : dispatch(c, command, args)).whenComplete((reply, failure) -> {
            timer.cancel(false);
            if (failure == null) {
                result.complete(reply);
            } else {
                result.completeExceptionally(SimbaException.of(failure));
            }
        });
        return result;
    }

    /** Opens a connection on a thread of its own, since Lettuce blocks. It never reconnects. */
    static <C extends StatefulRedisConnection<String, String>> CompletableFuture<C> connect(Core core, Function<RedisClient, C> dial) {
        if (core.threads.isShutdown()) {
            return CompletableFuture.failedFuture(new SimbaException.Closed());
        }
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
            if (core.isClosed()) {
                core.close(connection);
            }
            return connection;
        }, core.threads);
    }

    /** Sends a request. An argument can be a list of arguments. */
    static CompletableFuture<List<Object>> dispatch(StatefulRedisConnection<String, String> c, ProtocolKeyword command, Object... args) {
        CommandArgs<String, String> list = new CommandArgs<>(UTF8);
        for (Object arg : args) {
            for (Object one : arg instanceof List<?> more ? more : List.of(arg)) {
                list.addValue(one.toString());
            }
        }
        return c.async().dispatch(command, new NestedMultiOutput<>(UTF8), list).toCompletableFuture();
    }
}
