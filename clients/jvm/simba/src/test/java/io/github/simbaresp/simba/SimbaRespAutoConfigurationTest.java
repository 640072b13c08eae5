package io.github.simbaresp.simba;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.simbaresp.Server;
import io.github.simbaresp.SimbaClient;
import io.lettuce.core.RedisClient;
import me.ahoo.simba.core.MutexContendServiceFactory;
import org.junit.jupiter.api.Test;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;

class SimbaRespAutoConfigurationTest {
    private final ApplicationContextRunner runner =
        new ApplicationContextRunner().withConfiguration(AutoConfigurations.of(SimbaRespAutoConfiguration.class));

    @Test
    void urlMakesTheFactory() {
        runner.withPropertyValues("simba.resp.url=redis://127.0.0.1:1", "simba.resp.ttl=5s").run(context ->
            assertInstanceOf(SimbaRespMutexContendServiceFactory.class, context.getBean(MutexContendServiceFactory.class)));
    }

    @Test
    void anotherRedisClientIsNotUsed() throws Exception {
        try (Server server = new Server()) {
            RedisClient other = RedisClient.create("redis://127.0.0.1:1");
            runner.withPropertyValues("simba.resp.url=" + server.url())
                .withBean("other", RedisClient.class, () -> other, bean -> bean.setPrimary(true))
                .run(context -> assertTrue(context.getBean(SimbaClient.class).owner("free").isEmpty()));
        }
    }

    @Test
    void withoutUrlThereIsNone() {
        runner.run(context -> assertEquals(0, context.getBeanNamesForType(MutexContendServiceFactory.class).length));
    }
}
