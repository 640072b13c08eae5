package io.github.simbaresp.simba;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;

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
    void withoutUrlThereIsNone() {
        runner.run(context -> assertEquals(0, context.getBeanNamesForType(MutexContendServiceFactory.class).length));
    }
}
