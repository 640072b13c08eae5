package io.github.simbaresp;

import java.time.Duration;

/**
 * The owner of a mutex, as the server has reported it.
 *
 * @param id    the contender's id
 * @param token the fencing token of the tenure
 * @param left  the time until the lease ends unless the owner renews it, when the server replied;
 *              zero if it is not known
 */
public record Owner(String id, long token, Duration left) {}
