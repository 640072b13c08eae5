// Package client contends for the mutexes of a simba-resp server: leadership, locks
// and leader-gated work, over any go-redis client that is connected to one.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:7379", ContextTimeoutEnabled: true})
//	c, err := client.New(rdb, client.Options{})
//
// To lock a mutex for a piece of work, use [Client.Do]:
//
//	err = c.Do(ctx, "report", func(ctx context.Context) error {
//		return write(ctx, client.Token(ctx)) // ctx ends when the mutex is lost
//	})
//
// [Client.TryDo] does nothing if another has the mutex. [Client.Lock] and [Client.TryLock] return a
// [Lock], for work that does not fit into a function. Locks are not reentrant: a Do inside a Do of the
// same mutex waits for itself. [Client.Owner] returns the owner of a mutex. [Client.Check] lets the
// resource that is worked on reject a caller that no longer owns the mutex.
//
// A Client also creates
//
//   - a [Contender], which wants a mutex for as long as it runs and is told when it
//     has it and when it has lost it: leadership (Simba's contention service);
//   - a [Scheduler], which runs periodic work on one of many processes (Simba's scheduler);
//   - a [Worker], the state machine of a job processor that works while it is the leader;
//   - a [Registry] of reentrant locks by key, as Spring's RedisLockRegistry;
//   - an [Observer], which sees who owns a mutex and wants nothing.
//
// Each but the Registry has Run, which lasts until its context ends, for errgroup:
//
//	err = contender.Run(ctx)
//
// # What holds for all of them
//
// A tenure is one unbroken ownership of a mutex. It has a fencing token, which is larger than that
// of every tenure before. A lease is how long the server keeps the mutex for its owner without
// hearing from it: TTL + Transition. In the TTL the owner renews as planned, in the transition it
// is late; it owns the mutex in both, and nobody else may take it. The owner renews at the end of
// the TTL, or when a third of the lease is left.
//
// One contender is one id: a request that is repeated with the same id is the same
// request, so a lost reply costs nothing. Two contenders must never have the same id;
// one Client refuses the second.
//
// A lease is counted from before the request was sent that got it, and is given up a little before
// it ends (1 % of it, at most 250 ms). So when another becomes the owner because a lease has ended,
// the ownership context of the one before has ended, even if its clock is 1 % slow. Only
// SIMBA.BREAK, an administrator's command, gives the mutex to another at once: the owner hears of
// that by a notice, but not before it has owned the mutex for a second.
//
// A process that was frozen, or whose machine slept, for longer than its lease learns it from the
// ownership context itself and from the context of Do: their Err reads the clock. Err of a context
// that is derived from them (context.WithTimeout, errgroup) may still be nil at the first look.
// What was begun before is not undone by that: let the resource that is worked on check the fencing
// token ([Client.Check]).
//
// No contender holds a connection. One that waits has a place in the server's queue, and is
// notified; all contenders of a Client share one subscriber's connection (one for each 4,096 of
// them). If notices cannot be delivered, it asks when the owner's lease ends.
//
// All types are safe for concurrent use. Durations go to the server in milliseconds: a fraction of
// one is an error.
package client
