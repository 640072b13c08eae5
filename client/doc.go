// Package client contends for the mutexes of a simba-resp server: leadership, locks
// and leader-gated work, over any go-redis client that is connected to one.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:7379", ContextTimeoutEnabled: true})
//	c, err := client.New(rdb, client.Options{})
//
// A Client makes
//
//   - a [Contender], which wants a mutex for as long as it runs and is told when it
//     has it and when it has lost it (Simba's contention service);
//   - a [Locker], which takes a mutex for a piece of work (Simba's locker);
//   - a [Scheduler], which runs periodic work on one of many processes (Simba's scheduler);
//   - a [Worker], the state machine of a job processor that works while it is the leader;
//   - a [Registry] of reentrant locks by key, as Spring's RedisLockRegistry;
//   - an [Observer], which sees who owns a mutex and wants nothing.
//
// # What holds for all of them
//
// One contender is one id: a request that is repeated with the same id is the same
// request, so a lost reply costs nothing. Two contenders must never have the same id.
//
// A lease is counted from before the request was sent that got it, and is given up a
// little before it ends (1 % of it, at most 250 ms). So whoever works under an
// ownership context has stopped to own the mutex, by his own clock, before another
// can, even if his clock is 1 % slow. A process that was stopped, or whose machine slept,
// for longer than its lease knows it with the first call of the context's Err: it reads
// the clock. What was begun before is not undone by that: let the
// resource that is worked on check the fencing token (SIMBA.CHECK).
//
// No contender holds a connection. Who waits has a place in the server's queue, and is
// called by a notice; all contenders of a Client share one subscriber's connection (one
// for each 4,096 of them). Where notices do not reach, the time of the
// owner's lease says when to ask again.
//
// All types are safe for concurrent use. Durations go to the server in milliseconds: what
// is not a whole number of them is an error.
package client
