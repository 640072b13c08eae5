package io.github.simbaresp;

import java.time.Duration;

/** Contends for a mutex again and again, and runs work for each tenure. */
final class Leader implements Running.Body {
    /**
     * After a tenure of this length, a leader contends again at once. After a shorter one it
     * pauses.
     */
    private static final long QUICK = 1_000_000_000;

    private final Core core;
    private final Terms terms;
    private final Duration period; // null = one run for each tenure
    private final Work work;

    Leader(Core core, Terms terms, Duration period, Work work) {
        this.core = core;
        this.terms = terms;
        this.period = period;
        this.work = work;
    }

    @Override
    public void run(Running self) throws InterruptedException {
        boolean again = false;
        for (long pause = 0; !self.isStopped(); again = true) {
            Lease lease = new Attempt(core, terms, false, true, again).run();
            try {
                self.work(lease, period == null ? work : this::everyPeriod);
            } catch (InterruptedException e) {
                throw e;
            } catch (Exception e) {
                failed(lease, e);
            } finally {
                free(lease);
            }
            if (lease.stops()) {
                return;
            }
            Core.get(lease.release().handle((done, failure) -> null)); // at the latest when the lease would be over
            pause = lease.isShort(QUICK) ? Math.max(Core.PAUSE, Math.min(2 * pause, terms.ttl * 1_000_000)) : 0;
            core.sleep(pause);
        }
    }

    /** Runs the work at once and then each period, counted from the start of the tenure. */
    private void everyPeriod(Tenure tenure) throws InterruptedException {
        long step = period.toNanos();
        long next = Clock.rough();
        while (!((Lease) tenure).stops() && tenure.await(Duration.ofNanos(next - Clock.rough()))) {
            try {
                work.run(tenure);
            } catch (InterruptedException e) {
                throw e;
            } catch (Exception e) {
                failed((Lease) tenure, e);
            }
            next += step;
            next += Math.max(0, Clock.rough() - next) / step * step; // only the last missed start time
        }
    }

    private void failed(Lease lease, Exception failure) {
        if (lease.stops()) {
            throw failure instanceof RuntimeException known ? known : new SimbaException("the work failed: " + failure, failure);
        }
        core.log.error("the work failed: mutex={} contender={}", terms.mutex, terms.id, failure);
    }

    private void free(Lease lease) {
        try {
            lease.close();
        } catch (RuntimeException e) {
            core.log.debug("unlock", e); // a loss was logged, and the release goes on
        }
    }
}
