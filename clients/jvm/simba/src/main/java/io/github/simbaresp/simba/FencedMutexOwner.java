package io.github.simbaresp.simba;

import me.ahoo.simba.core.MutexOwner;

/** An owner with the fencing token of its tenure. */
public final class FencedMutexOwner extends MutexOwner {
    private final long token;

    FencedMutexOwner(String id, long token, long acquiredAt, long ttlAt, long transitionAt) {
        super(id, acquiredAt, ttlAt, transitionAt);
        this.token = token;
    }

    /** Returns the fencing token. It is larger than those of all earlier tenures of the mutex. */
    public long token() {
        return token;
    }
}
