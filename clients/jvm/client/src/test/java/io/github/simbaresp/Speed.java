package io.github.simbaresp;

import io.lettuce.core.RedisClient;
import io.lettuce.core.api.StatefulRedisConnection;

/**
 * Compares lock and close with the raw ACQUIRE and RELEASE by the same RedisClient, by turns, one
 * request at a time. Usage: Speed redis://host:port [rounds [seconds]]
 */
final class Speed {
    private interface Body {
        void run() throws Exception;
    }

    private Speed() {}

    public static void main(String[] args) throws Exception {
        int rounds = args.length > 1 ? Integer.parseInt(args[1]) : 7;
        double seconds = args.length > 2 ? Double.parseDouble(args[2]) : 2;
        RedisClient redis = RedisClient.create(args[0]);
        StatefulRedisConnection<String, String> raw = redis.connect();
        SimbaClient client = SimbaClient.create(redis);
        double[] sums = new double[2];
        for (int round = 0; round <= rounds; round++) {
            double a = rate(seconds, () -> {
                Link.dispatch(raw, Command.ACQUIRE, "speed", "raw", 10_000, "TRANSITION", 2_000).get();
                Link.dispatch(raw, Command.RELEASE, "speed", "raw").get();
            });
            double b = rate(seconds, () -> client.lock("speed").close());
            System.out.printf("%s raw %.0f/s, lock %.0f/s, ratio %.2f%n", round == 0 ? "warm-up:" : "", a, b, b / a);
            if (round > 0) {
                sums[0] += a;
                sums[1] += b;
            }
        }
        System.out.printf("mean: raw %.0f/s, lock %.0f/s, ratio %.2f%n", sums[0] / rounds, sums[1] / rounds, sums[1] / sums[0]);
        client.close();
        raw.close();
        redis.shutdown();
    }

    private static double rate(double seconds, Body body) throws Exception {
        long begin = System.nanoTime();
        long n = 0;
        for (; System.nanoTime() - begin < seconds * 1e9; n++) {
            body.run();
        }
        return n / ((System.nanoTime() - begin) / 1e9);
    }
}
