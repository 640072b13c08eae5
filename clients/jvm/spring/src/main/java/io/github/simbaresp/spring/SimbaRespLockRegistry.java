package io.github.simbaresp.spring;

import io.github.simbaresp.SimbaClient;
import io.github.simbaresp.SimbaException;
import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;
import org.springframework.integration.support.locks.ExpirableLockRegistry;

/**
 * Locks of Spring Integration on simba-resp. A lock belongs to a thread, and is reentrant. The
 * client renews it, and waiters get it first come, first served.
 *
 * <p>A lock throws {@link ConcurrentModificationException} when it is unlocked or locked again
 * after it was lost.
 *
 * <p>A key, which is a part of the mutex's name, must not contain white space or braces.
 */
public final class SimbaRespLockRegistry implements ExpirableLockRegistry {
    private final SimbaClient client;
    private final String prefix;
    private final Map<String, KeyLock> locks = new ConcurrentHashMap<>();

    /** Creates a registry. Its mutexes are named after the prefix, a colon, and the key. */
    public SimbaRespLockRegistry(SimbaClient client, String prefix) {
        this.client = client;
        this.prefix = prefix;
    }

    @Override
    public Lock obtain(Object key) {
        if (!(key instanceof String name)) {
            throw new IllegalArgumentException("the key is " + key + ", not a string");
        }
        return locks.computeIfAbsent(name, k -> new KeyLock(prefix + ":" + k));
    }

    @Override
    public void expireUnusedOlderThan(long age) {
        long now = System.currentTimeMillis();
        locks.values().removeIf(lock -> now - lock.used > age && lock.isUnused());
    }

    private final class KeyLock implements Lock {
        final ReentrantLock local = new ReentrantLock();
        volatile long used = System.currentTimeMillis();
        private final String mutex;
        private io.github.simbaresp.Lock held; // guarded by local; null = not locked

        KeyLock(String mutex) {
            this.mutex = mutex;
        }

        boolean isUnused() {
            return !local.isLocked() && !local.hasQueuedThreads();
        }

        @Override
        public void lock() {
            boolean interrupted = false;
            try {
                while (true) {
                    local.lock();
                    try {
                        acquired(() -> client.lock(mutex));
                        return;
                    } catch (InterruptedException e) {
                        interrupted = true; // acquired has unlocked the local lock
                    }
                }
            } finally {
                if (interrupted) {
                    Thread.currentThread().interrupt();
                }
            }
        }

        @Override
        public void lockInterruptibly() throws InterruptedException {
            local.lockInterruptibly();
            acquired(() -> client.lock(mutex));
        }

        @Override
        public boolean tryLock() {
            try {
                return local.tryLock() && acquired(() -> client.tryLock(mutex));
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return false;
            }
        }

        @Override
        public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
            long end = System.nanoTime() + unit.toNanos(time);
            return local.tryLock(time, unit) && acquired(() -> {
                Duration rest = Duration.ofNanos(Math.max(0, end - System.nanoTime()));
                return client.with(o -> o.wait(rest)).lock(mutex);
            });
        }

        private interface Request {
            io.github.simbaresp.Lock send() throws InterruptedException;
        }

        /**
         * Locks the mutex after the local lock, unless the thread has it already. If that fails, it
         * unlocks the local lock. Returns false if another one owns the mutex.
         */
        private boolean acquired(Request request) throws InterruptedException {
            boolean done = false;
            used = System.currentTimeMillis();
            try {
                if (held != null) {
                    if (!held.check()) {
                        throw new ConcurrentModificationException("the mutex " + mutex + " was lost");
                    }
                } else {
                    held = request.send();
                }
                done = true;
                return true;
            } catch (SimbaException.NotAcquired e) {
                return false;
            } finally {
                if (!done) {
                    local.unlock();
                }
            }
        }

        @Override
        public void unlock() {
            if (!local.isHeldByCurrentThread()) {
                throw new IllegalStateException("You do not own lock at " + mutex);
            }
            io.github.simbaresp.Lock last = local.getHoldCount() == 1 ? held : null;
            try {
                if (last != null) {
                    held = null;
                    last.close();
                }
            } catch (SimbaException.Lost e) {
                throw new ConcurrentModificationException(e.getMessage(), e);
            } finally {
                local.unlock();
            }
        }

        @Override
        public Condition newCondition() {
            throw new UnsupportedOperationException("conditions are not supported");
        }
    }
}
