package io.github.simbaresp.simba;

import io.github.simbaresp.Options;
import io.github.simbaresp.SimbaClient;
import io.lettuce.core.RedisClient;
import me.ahoo.simba.core.MutexContendServiceFactory;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.convert.DurationStyle;
import org.springframework.context.annotation.Bean;

/**
 * Makes the factory for Spring Boot if {@code simba.resp.url} is set, for example to
 * {@code redis://localhost:7379}, and there is no other factory. {@code simba.resp.ttl} and
 * {@code simba.resp.transition} are the two windows of a lease.
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
    SimbaClient simbaClient(RedisClient simbaRespRedisClient, @Value("${simba.resp.ttl:10s}") String ttl,
            @Value("${simba.resp.transition:2s}") String transition) {
        return SimbaClient.create(simbaRespRedisClient, new Options().ttl(DurationStyle.detectAndParse(ttl))
            .grace(DurationStyle.detectAndParse(transition)));
    }

    /** Creates the factory. */
    @Bean
    MutexContendServiceFactory mutexContendServiceFactory(SimbaClient client) {
        return new SimbaRespMutexContendServiceFactory(client);
    }
}
