package io.github.simbaresp;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SslOptions;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.protocol.ProtocolVersion;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Drives one client for the cases of clients/cases. It reads requests from stdin, and writes
 * replies and events to stdout, as JSON lines. Each request runs on a thread of its own.
 */
public final class Agent {
    private static final Pattern FIELD = Pattern.compile("\"(\\w+)\"\\s*:\\s*(?:\"((?:[^\"\\\\]|\\\\.)*)\"|([^,}\\s]+))");

    private final SimbaClient client;
    private final Map<String, Lock> locks = new ConcurrentHashMap<>();
    private final Map<String, Thread> threads = new ConcurrentHashMap<>();

    private Agent(Map<String, String> request) {
        ClientOptions.Builder options = ClientOptions.builder();
        if (request.containsKey("protocol")) {
            options.protocolVersion(request.get("protocol").equals("2") ? ProtocolVersion.RESP2 : ProtocolVersion.RESP3);
        }
        if (request.containsKey("ca")) {
            options.sslOptions(SslOptions.builder().trustManager(new File(request.get("ca"))).build());
        }
        RedisClient redis = RedisClient.create(uri(request));
        redis.setOptions(options.build());
        loadClasses(redis);
        Options own = windows(request, new Options());
        client = SimbaClient.create(redis, request.containsKey("timeout") ? own.timeout(millis(request, "timeout")) : own);
    }

    /** Loads Lettuce before the first request, whose time counts. On a busy machine, that takes seconds. */
    private static void loadClasses(RedisClient redis) {
        try (StatefulRedisConnection<String, String> connection = redis.connect()) {
            connection.sync().ping();
        } catch (RuntimeException e) {
            System.err.println("open: " + e); // as some cases want
        }
    }

    private static RedisURI uri(Map<String, String> request) {
        RedisURI uri = RedisURI.create(request.get("url"));
        if (request.containsKey("sentinel")) {
            RedisURI leader = RedisURI.create("redis-sentinel://" + request.get("sentinel") + "#simba");
            leader.setSsl(uri.isSsl());
            leader.setCredentialsProvider(uri.getCredentialsProvider());
            return leader;
        }
        return uri;
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        Map<String, String> open = parse(in.readLine());
        Agent agent = new Agent(open);
        say("id", number(open), "ok", Map.of());
        for (String line; (line = in.readLine()) != null; ) {
            Map<String, String> request = parse(line);
            Thread thread = new Thread(() -> agent.handle(request));
            if (request.containsKey("as") && !request.get("do").matches("unlock|held|stop")) {
                agent.threads.put(request.get("as"), thread);
            }
            thread.start();
        }
        System.exit(0);
    }

    private void handle(Map<String, String> request) {
        try {
            say("id", number(request), "ok", run(request));
        } catch (Throwable e) {
            say("id", number(request), "error", nameOf(e), "text", e.toString());
        }
        if (request.get("do").equals("close")) {
            System.exit(0);
        }
    }

    private Map<String, Object> run(Map<String, String> request) throws InterruptedException {
        String mutex = request.get("mutex");
        String as = request.get("as");
        SimbaClient with = client.with(o -> windows(request, o).id(request.get("id_of"))
            .wait(request.containsKey("limit") ? millis(request, "limit") : null));
        switch (request.get("do")) {
            case "lock" -> {
                return locked(as, with.lock(mutex));
            }
            case "try_lock" -> {
                return locked(as, with.tryLock(mutex));
            }
            case "unlock" -> locks.get(as).close();
            case "held" -> {
                return Map.of("held", locks.get(as).check());
            }
            case "lead" -> with.lead(mutex, tenure -> {
                say("event", "begin", "as", as, "token", tenure.token(), "id", tenure.id());
                try {
                    tenure.await(request.containsKey("work") ? millis(request, "work") : Duration.ofDays(1));
                } finally {
                    say("event", "end", "as", as, "lost", !tenure.check());
                }
            });
            case "every" -> with.every(mutex, millis(request, "period"), tenure -> say("event", "run", "as", as, "token", tenure.token()));
            case "watch" -> client.watch(mutex, state -> say("event", "owner", "as", as,
                "owner", state.owner().map(Owner::id).orElse(""), "token", state.owner().map(Owner::token).orElse(0L)));
            case "stop" -> threads.get(as).interrupt();
            case "owner" -> {
                Owner owner = client.owner(mutex).orElse(new Owner("", 0, Duration.ZERO));
                return Map.of("owner", owner.id(), "token", owner.token());
            }
            case "check" -> {
                return Map.of("holds", client.check(mutex, Long.parseLong(request.get("token"))));
            }
            case "block" -> Thread.sleep(Long.parseLong(request.get("ms")));
            case "close" -> client.close();
            default -> throw new IllegalArgumentException("unknown request " + request.get("do"));
        }
        return Map.of();
    }

    private Map<String, Object> locked(String as, Lock lock) {
        locks.put(as, lock);
        lock.lost().thenRun(() -> say("event", "lost", "as", as));
        return Map.of("token", lock.token(), "id", lock.id());
    }

    private static Options windows(Map<String, String> request, Options o) {
        Options ttl = request.containsKey("ttl") ? o.ttl(millis(request, "ttl")) : o;
        return request.containsKey("grace") ? ttl.grace(millis(request, "grace")) : ttl;
    }

    private static Duration millis(Map<String, String> request, String name) {
        return Duration.ofMillis(Long.parseLong(request.get(name)));
    }

    private static long number(Map<String, String> request) {
        return Long.parseLong(request.get("id"));
    }

    private static String nameOf(Throwable e) {
        return e instanceof InterruptedException ? "cancelled"
            : e instanceof SimbaException.NotAcquired ? "not_acquired"
            : e instanceof SimbaException.Lost ? "lost"
            : e instanceof SimbaException.Unavailable ? "unavailable"
            : e instanceof SimbaException.InUse ? "in_use"
            : e instanceof SimbaException.Closed ? "closed"
            : e instanceof RedisCommandExecutionException ? "refused"
            : e instanceof IllegalArgumentException ? "argument" : "internal";
    }

    /** Reads a JSON object without nested ones. */
    private static Map<String, String> parse(String line) {
        Map<String, String> fields = new LinkedHashMap<>();
        Matcher m = FIELD.matcher(line);
        while (m.find()) {
            if (m.group(2) != null) {
                fields.put(m.group(1), m.group(2).replaceAll("\\\\(.)", "$1"));
            } else if (!m.group(3).equals("null")) {
                fields.put(m.group(1), m.group(3));
            }
        }
        return fields;
    }

    private static void say(Object... fields) {
        StringBuilder line = new StringBuilder("{");
        for (int i = 0; i < fields.length; i += 2) {
            line.append(i == 0 ? "" : ",").append(json(fields[i])).append(":").append(json(fields[i + 1]));
        }
        synchronized (System.out) {
            // on the clock of all processes of the machine
            System.out.println(line.append(",\"at\":").append(System.nanoTime() / 1000).append("}"));
            System.out.flush();
        }
    }

    private static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            StringBuilder fields = new StringBuilder();
            map.forEach((k, v) -> fields.append(fields.length() == 0 ? "" : ",").append(json(k)).append(":").append(json(v)));
            return "{" + fields + "}";
        }
        return value instanceof Number || value instanceof Boolean ? value.toString()
            : "\"" + value.toString().replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n").replace("\t", " ").replace("\r", " ") + "\"";
    }
}
