import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.resource.DefaultClientResources;
import io.lettuce.core.resource.Delay;
import java.time.Duration;
import java.time.Instant;
import java.util.LinkedHashSet;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.apache.commons.pool2.impl.GenericObjectPoolConfig;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.providers.SentineledConnectionProvider;

/**
 * Sends a request every 20 ms to the leader that Sentinels name. Usage: SentinelClients LIBRARY
 * HOST:PORT,… KEY. It prints a line for each request: when it began and ended, in nanoseconds since
 * 1970, and "ok" or the error.
 */
public class SentinelClients {
    public static void main(String[] args) throws Exception {
        Callable<String> request = args[0].equals("jedis") ? jedis(args[1], args[2]) : lettuce(args[1], args[2]);
        while (true) {
            long from = now();
            String result;
            try {
                result = request.call().equals("OK") ? "ok" : "another reply";
            } catch (Exception e) {
                result = e.toString().replace('\n', ' ');
            }
            System.out.println(from + " " + now() + " " + result);
            Thread.sleep(20);
        }
    }

    static long now() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000_000L + now.getNano();
    }

    static Callable<String> jedis(String sentinels, String key) {
        Set<HostAndPort> addresses = new LinkedHashSet<>();
        for (String address : sentinels.split(",")) addresses.add(HostAndPort.from(address));
        JedisClientConfig config = DefaultJedisClientConfig.builder().timeoutMillis(2000).build();
        SentineledConnectionProvider provider = new SentineledConnectionProvider(
            "simba", config, new GenericObjectPoolConfig<Connection>(), addresses, config, 500);
        UnifiedJedis jedis = new UnifiedJedis(provider, 10, Duration.ofSeconds(1));
        return () -> jedis.set(key, "jedis", new SetParams().px(600_000));
    }

    static Callable<String> lettuce(String sentinels, String key) {
        RedisURI.Builder uri = RedisURI.builder().withSentinelMasterId("simba").withTimeout(Duration.ofSeconds(2));
        for (String address : sentinels.split(",")) {
            HostAndPort parts = HostAndPort.from(address);
            uri.withSentinel(parts.getHost(), parts.getPort());
        }
        RedisClient client = RedisClient.create(DefaultClientResources.builder()
            .reconnectDelay(Delay.exponential(10, 500, TimeUnit.MILLISECONDS, 2)).build(), uri.build());
        client.setOptions(ClientOptions.builder().autoReconnect(true).build());
        RedisCommands<String, String> redis = client.connect().sync();
        return () -> redis.psetex(key, 600_000, "lettuce");
    }
}
