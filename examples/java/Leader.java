// A leader loop with Jedis (redis.clients:jedis, 4 or 5). Java 17.
//
// Start a server with `make run`. Compile this program, and start it in two other terminals:
//
//     javac -cp jedis.jar Leader.java
//     java -cp jedis.jar:commons-pool2.jar:slf4j-api.jar:. Leader
//
// The first program becomes the leader. End it with Ctrl-C or kill -9, and the second program
// becomes the leader.
// Options: --addr host:port --mutex name --id contender --ttl ms

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.util.SafeEncoder;

public final class Leader {
    private static final long TRANSITION = 1000; // ms after the TTL, in which the leader may still work and renew
    private static final long WAIT = 2000;       // ms that an ACQUIRE may wait for the mutex
    private static final int TIMEOUT = 3000;     // ms that any request may take

    private final JedisPooled redis;
    private final String mutex;
    private final String id;
    private final long ttl;
    private final CountDownLatch stopping = new CountDownLatch(1);

    /** One tenure. A thread of its own renews it, and the thread that works reads it. */
    private final class Lease {
        final long token;
        private volatile long sent;     // when the request that began the lease was sent, ns
        private volatile boolean ended;

        Lease(long token) {
            this.token = token;
            this.ended = !renew(); // the reply to an ACQUIRE that waited does not say when the grant was
        }

        /**
         * Whether this process leads now. held reads the clock, so the result is right even after a
         * freeze. On some systems nanoTime does not count the time while the machine was suspended.
         */
        boolean held() {
            return !ended && left() > 0;
        }

        /** The time until this process gives up the lease: a little early, as clocks differ in speed. */
        private long left() {
            return sent + TimeUnit.MILLISECONDS.toNanos((ttl + TRANSITION) * 99 / 100) - System.nanoTime();
        }

        /** Renews until the lease is lost or ended. */
        void keep() {
            long usual = Math.min(ttl, (ttl + TRANSITION) * 2 / 3); // the rest is for slow replies
            long due = usual;
            while (held() && !await(Math.max(0, due - TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - sent)))) {
                try {
                    if (!renew()) {
                        break; // another contender may own the mutex
                    }
                    due = usual;
                } catch (JedisException e) {
                    due += 200; // try again, until the lease ends
                }
            }
            ended = true;
        }

        private boolean renew() {
            long now = System.nanoTime();
            Map<String, Object> answer = ask("SIMBA.GUARD", "TRANSITION", TRANSITION, "TOKEN", token);
            if (!answer.get("status").equals("renewed")) {
                return false;
            }
            sent = now; // before the request was sent, so the lease ends here before it ends at the server
            return true;
        }
    }

    private Leader(String addr, String mutex, String id, long ttl) {
        this.redis = new JedisPooled(HostAndPort.from(addr),
                DefaultJedisClientConfig.builder().connectionTimeoutMillis(TIMEOUT).socketTimeoutMillis(TIMEOUT).build());
        this.mutex = mutex;
        this.id = id;
        this.ttl = ttl;
    }

    private void run() throws InterruptedException {
        while (stopping.getCount() > 0) {
            try {
                Map<String, Object> answer = ask("SIMBA.ACQUIRE", "TRANSITION", TRANSITION, "WAIT", WAIT);
                String status = (String) answer.get("status");
                if (status.equals("acquired") || status.equals("renewed")) {
                    lead(new Lease((Long) answer.get("token")));
                }
            } catch (JedisException e) {
                System.err.println("cannot ask the server: " + e.getMessage());
                await(500);
            }
        }
        try { // release, so that the next waiter need not wait for the end of the lease
            if (Long.valueOf(1).equals(send("SIMBA.RELEASE", mutex, id))) {
                System.out.println("released");
            }
        } catch (JedisException e) {
            System.err.println("not released, it ends with its lease: " + e.getMessage());
        } finally {
            redis.close();
        }
    }

    private void lead(Lease lease) throws InterruptedException {
        if (!lease.held()) {
            return;
        }
        System.out.println("acquired, token " + lease.token);
        Thread keeper = new Thread(lease::keep);
        keeper.start();
        try {
            // A real program sends the token with each change. The resource refuses a smaller token.
            while (lease.held() && stopping.getCount() > 0) {
                System.out.println("working");
                await(Math.min(1000, Math.max(0, TimeUnit.NANOSECONDS.toMillis(lease.left()))));
            }
        } finally {
            lease.ended = true;
            keeper.interrupt();
            keeper.join(); // no renewal may arrive after the release
        }
        System.out.println("stopped working");
    }

    /** Sleeps. Returns true if the program must stop. */
    private boolean await(long millis) {
        try {
            return stopping.await(millis, TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            return true;
        }
    }

    /** Sends a request whose reply is a record: each name, and after it the value. */
    private Map<String, Object> ask(String command, Object... options) {
        Object[] args = new Object[3 + options.length];
        args[0] = mutex;
        args[1] = id;
        args[2] = ttl;
        System.arraycopy(options, 0, args, 3, options.length);
        List<?> reply = (List<?>) send(command, args);
        Map<String, Object> record = new HashMap<>();
        for (int i = 0; i + 1 < reply.size(); i += 2) {
            Object value = reply.get(i + 1);
            record.put(SafeEncoder.encode((byte[]) reply.get(i)), value instanceof byte[] b ? SafeEncoder.encode(b) : value);
        }
        return record;
    }

    private Object send(String command, Object... args) {
        ProtocolCommand name = () -> SafeEncoder.encode(command);
        byte[][] raw = new byte[args.length][];
        for (int i = 0; i < args.length; i++) {
            raw[i] = SafeEncoder.encode(String.valueOf(args[i]));
        }
        return redis.sendCommand(name, raw);
    }

    public static void main(String[] args) throws InterruptedException {
        Map<String, String> options = new HashMap<>(Map.of(
                "--addr", "127.0.0.1:7379", "--mutex", "leader", "--id", UUID.randomUUID().toString(), "--ttl", "3000"));
        for (int i = 0; i + 1 < args.length; i += 2) {
            if (options.replace(args[i], args[i + 1]) == null) {
                System.err.println("what is " + args[i] + "?");
                System.exit(2);
            }
        }
        Leader leader = new Leader(options.get("--addr"), options.get("--mutex"), options.get("--id"), Long.parseLong(options.get("--ttl")));
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> { // Ctrl-C, SIGTERM
            leader.stopping.countDown();
            try {
                main.join();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }));
        leader.run();
    }
}
