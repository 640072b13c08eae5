import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import me.ahoo.simba.core.AbstractMutexContender;
import me.ahoo.simba.core.MutexContendService;
import me.ahoo.simba.core.MutexState;
import me.ahoo.simba.spring.redis.SpringRedisMutexContendServiceFactory;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.listener.RedisMessageListenerContainer;

/**
 * Runs contenders of Simba's own, unchanged Redis backend. All callbacks run on one thread, since the
 * backend does not keep them in order.
 * Usage: SimbaItself HOST PORT TTL TRANSITION (both ms). Each line of stdin is a command. The process
 * ends with stdin, and prints the events on stdout:
 *
 *   start ID MUTEX ROUND   starts a contender. Prints ACQUIRED ID ROUND when it owns the mutex, and
 *                          RELEASED ID ROUND when it no longer does
 *   stop ID ROUND          stops the contender, and releases the mutex. Prints STOPPED ID ROUND
 *
 * A callback of one round may come in the next.
 */
public class SimbaItself {
    public static void main(String[] args) throws Exception {
        LettuceConnectionFactory redis = new LettuceConnectionFactory(args[0], Integer.parseInt(args[1]));
        redis.afterPropertiesSet();
        redis.start();
        StringRedisTemplate template = new StringRedisTemplate(redis);
        template.afterPropertiesSet();
        RedisMessageListenerContainer listeners = new RedisMessageListenerContainer();
        listeners.setConnectionFactory(redis);
        listeners.afterPropertiesSet();
        listeners.start();
        ScheduledExecutorService scheduler = Executors.newScheduledThreadPool(2);
        SpringRedisMutexContendServiceFactory factory = new SpringRedisMutexContendServiceFactory(
            Duration.ofMillis(Long.parseLong(args[2])), Duration.ofMillis(Long.parseLong(args[3])),
            template, listeners, Executors.newSingleThreadExecutor(), scheduler);
        template.hasKey("warm"); // connects
        say("READY 0");
        Map<String, MutexContendService> services = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            String id = words[1];
            try {
                if (words[0].equals("start")) {
                    String round = id + " " + words[3];
                    MutexContendService service = factory.createMutexContendService(new AbstractMutexContender(words[2], id) {
                        @Override public void onAcquired(MutexState state) { say("ACQUIRED " + round); }
                        @Override public void onReleased(MutexState state) { say("RELEASED " + round); }
                    });
                    services.put(id, service);
                    service.start();
                } else {
                    services.remove(id).stop();
                    say("STOPPED " + id + " " + words[2]);
                }
            } catch (Throwable failure) {
                say("FAILED " + id + " " + failure);
            }
        }
        System.exit(0);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
