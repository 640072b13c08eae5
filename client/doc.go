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
// [Client.TryDo] does nothing if another has the mutex. [Client.Lock] and [Client.TryLock] return a [Lock], for
// what does not fit into a function. [Client.Owner] says who owns a mutex, and [Client.Check] is for the resource
// that is worked on: it refuses who does not own the mutex any more.
//
// Besides, a Client makes
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
// One contender is one id: a request that is repeated with the same id is the same
// request, so a lost reply costs nothing. Two contenders must never have the same id;
// one Client refuses the second.
//
// A lease is counted from before the request was sent that got it, and is given up a
// little before it ends (1 % of it, at most 250 ms). So whoever works under an
// ownership context has stopped to own the mutex, by his own clock, before another
// can, even if his clock is 1 % slow. A process that was stopped, or whose machine slept,
// for longer than its lease knows it with the first call of the context's Err: it reads
// the clock. A context that was derived from it does not: its first Err after such a freeze may
// still be nil. What was begun before is not undone by that: let the
// resource that is worked on check the fencing token ([Client.Check]).
//
// No contender holds a connection. Who waits has a place in the server's queue, and is
// called by a notice; all contenders of a Client share one subscriber's connection (one
// for each 4,096 of them). Where notices do not reach, the time of the
// owner's lease says when to ask again.
//
// All types are safe for concurrent use. Durations go to the server in milliseconds: what
// is not a whole number of them is an error.
package client
