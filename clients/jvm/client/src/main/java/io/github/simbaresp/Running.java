package io.github.simbaresp;

import java.util.concurrent.CompletableFuture;

/** Work that runs until it is closed: that of {@code lead} and {@code every}, or a watch. */
public final class Running implements AutoCloseable {
    /** What runs. */
    interface Body {
        void run(Running self) throws InterruptedException;
    }

    private final Core core;
    private final long timeout;
    private final Body body;
    private final CompletableFuture<Void> ended = new CompletableFuture<>();
    private volatile boolean stopped;
    private Thread thread; // that runs the body; this and what follows is guarded by this; null = none
    private Lease lease; // whose work runs; null = none
    private boolean sent; // an interrupt, to thread

    Running(Core core, Options options, Body body) {
        this.core = core;
        this.timeout = options.timeout().toNanos();
        this.body = body;
    }

    /** Runs on a thread of its own. */
    Running start(String name) {
        Thread own = new Thread(() -> {
            try {
                here();
                ended.complete(null);
            } catch (Throwable e) {
                ended.completeExceptionally(e);
            }
        }, "simba-resp " + name);
        own.setDaemon(true);
        own.start();
        return this;
    }

    /** Runs on the thread of the caller. */
    void here() throws InterruptedException {
        core.running.add(this);
        set(Thread.currentThread(), null);
        try {
            core.checkOpen();
            body.run(this);
        } catch (InterruptedException e) {
            core.checkOpen();
            if (!stopped) {
                throw e;
            }
        } finally {
            core.running.remove(this);
            set(null, null);
        }
    }

    /** Sets what runs, and clears an interrupt that was for what ran before. */
    private synchronized void set(Thread runs, Lease works) {
        if (sent) {
            Thread.interrupted();
        }
        sent = false;
        thread = runs;
        lease = works;
    }

    /** Runs the work of a tenure, and interrupts it when it must end. */
    void work(Lease present, Work work) throws Exception {
        set(thread, present);
        present.whenQuit().thenRun(() -> interrupt(present));
        if (stopped) {
            present.quit();
        }
        try {
            work.run(present);
        } catch (InterruptedException e) {
            if (!sent) {
                throw e;
            }
        } finally {
            set(thread, null);
        }
    }

    private synchronized void interrupt(Lease cause) {
        if (thread != null && cause == lease) {
            sent = true;
            thread.interrupt();
        }
    }

    void stop() {
        stopped = true;
        Lease present;
        synchronized (this) {
            present = lease;
        }
        if (present != null) {
            present.quit();
        }
        interrupt(null); // between tenures
    }

    boolean isStopped() {
        return stopped;
    }

    /**
     * Returns a future that completes when the work has ended, with the exception that ended it.
     */
    public CompletableFuture<Void> ended() {
        return ended.copy();
    }

    /**
     * Interrupts the work, releases the mutex after it, and waits for both at most for {@link
     * Options#timeout}. If the work itself calls close, close does not wait.
     *
     * @throws SimbaException.Unavailable if the work has not ended in time
     */
    @Override
    public void close() {
        stop();
        if (thread != Thread.currentThread()) {
            Core.await(ended.exceptionally(failure -> null), timeout);
        }
    }
}
