package io.github.simbaresp;

import java.util.Optional;

/**
 * What {@link SimbaClient#watch} has seen of a mutex: its present state, or one change.
 *
 * @param owner  the owner after the change; empty if the mutex is free
 * @param event  the change: {@code acquired}, {@code released}, {@code expired} or {@code broken};
 *               empty for a present state: the first one, or the one after a gap
 * @param reason why, see the server's reference of notices; often empty
 * @param seq    the number of the change; a server gives later changes larger numbers
 * @param gap    whether changes before this present state may be missing, since the server was
 *               restarted or does not keep them any more
 */
public record State(Optional<Owner> owner, String event, String reason, long seq, boolean gap) {}
