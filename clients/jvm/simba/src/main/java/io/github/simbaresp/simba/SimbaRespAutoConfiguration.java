package io.github.simbaresp.simba;

import io.github.simbaresp.Options;
import io.github.simbaresp.SimbaClient;
import io.lettuce.core.RedisClient;
import java.time.Duration;
import me.ahoo.simba.core.MutexContendServiceFactory;
import org.springframework.beans.factory.annotation.Qualifier;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.convert.DurationStyle;
import org.springframework.context.annotation.Bean;

/**
 * Makes the factory for Spring Boot if {@code simba.resp.url} is set, for example to
 * {@code redis://localhost:7379}, and there is no other factory. {@code simba.resp.ttl} and
 * {@code simba.resp.transition} are the two windows of a lease; without them, the client's defaults
 * hold, see {@link Options}.
 */
@AutoConfiguration
@ConditionalOnProperty("simba.resp.url")
@ConditionalOnMissingBean(MutexContendServiceFactory.class)
public class SimbaRespAutoConfiguration {
    /** Creates the client's RedisClient. */
    @Bean(destroyMethod = "shutdown")
    RedisClient simbaRespRedisClient(@Value("${simba.resp.url}") String url) {
        return RedisClient.create(url);
    }

    /** Creates the client. */
    @Bean(destroyMethod = "close")
    @ConditionalOnMissingBean
    SimbaClient simbaClient(@Qualifier("simbaRespRedisClient") RedisClient redis,
            @Value("${simba.resp.ttl:}") String ttl, @Value("${simba.resp.transition:}") String transition) {
        return SimbaClient.create(redis, new Options().ttl(duration(ttl)).grace(duration(transition)));
    }

    private static Duration duration(String value) {
        return value.isEmpty() ? null : DurationStyle.detectAndParse(value);
    }

    /** Creates the factory. */
    @Bean
    MutexContendServiceFactory mutexContendServiceFactory(SimbaClient client) {
        return new SimbaRespMutexContendServiceFactory(client);
    }
}
