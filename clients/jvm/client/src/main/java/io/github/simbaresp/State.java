package io.github.simbaresp;

import java.util.Optional;

/**
 * What {@link SimbaClient#watch} has seen of a mutex: its present state, or one change.
 *
 * @param owner  the owner after the change; empty if the mutex is free
 * @param event  the change: {@code acquired}, {@code released}, {@code expired} or {@code broken};
 *               empty for a present state: the first one, or one before which changes are missing
 * @param reason why, see the server's reference of notices; often empty
 */
public record State(Optional<Owner> owner, String event, String reason) {}
