// Package client contends for the mutexes of a simba-resp server: leadership, locks and work that
// only the leader does. It sends its requests with a go-redis client.
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
// [Client.TryDo] returns an error at once if another contender owns the mutex. [Client.Lock] and
// [Client.TryLock] return a [Lock], for work that does not fit into a function. Locks are not
// reentrant. With [Client.Check] a resource can reject a caller that does not own the mutex any
// more.
//
// A Client also creates
//
//   - a [Contender], which contends for a mutex as long as it runs: leadership (Simba's contention
//     service);
//   - a [Scheduler], which runs periodic work in one of many processes (Simba's scheduler);
//   - an [Observer], which observes the owner of a mutex.
//
// Each of them has a method Run, which lasts until its context ends.
//
// Two packages build on a Client. Package worker has the state machine of a job processor that
// works while it is the leader. Package registry has reentrant locks by key, like Spring's
// RedisLockRegistry. [Hooks] report events for metrics and traces.
//
// # Leases and tenures
//
// A tenure is one unbroken ownership of a mutex. It has a fencing token, which is larger than that
// of every earlier tenure of the mutex. A lease is the owner's right to the mutex for a limited
// time. Each renewal begins a new lease of the same tenure.
//
// A lease has two windows: first the TTL window, then the transition window. In the transition
// window the owner still owns the mutex and may renew. The owner renews at the end of the TTL
// window, or when a third of the lease is left, whichever is earlier.
//
// A contender is identified by its id. If a contender repeats a request, the server recognizes the
// id, so a lost reply does no harm. Two contenders of a mutex must never have the same id at the
// same time. If both are of one Client, the Client refuses the second contender with [ErrInUse].
//
// # When an ownership ends
//
// The client gives each owner an ownership context, which ends when the client releases or loses
// the mutex. The client counts a lease from the moment before it sends the request that acquires or
// renews the mutex. It gives the lease up a little before the end: 1 % of the lease, at most
// 250 ms. So the ownership context ends before the server grants the mutex to another contender.
// This is true unless the owner's clock loses more than this margin during the lease.
//
// Only SIMBA.BREAK, an administrator's command, can end a lease while the ownership context lasts.
// The ownership context then ends when the owner gets a notice of the break, or at its next
// renewal. The owner subscribes to such notices when its tenure has lasted for about a second.
//
// After a freeze of the process or the machine, the lease may have ended. The method Err of an
// ownership context reads the clock, so it reports the loss at once. So does Err of the context
// that Do passes to its work. Err of a context that is derived from one of them
// (context.WithTimeout, errgroup) may still be nil at the first call. Work that began before the
// freeze continues, so the resource should check the fencing token ([Client.Check]).
//
// # Connections
//
// No contender holds a connection. A waiter has an entry in the server's queue and gets a notice
// when it is next. Up to 4,096 contenders of a Client share one connection for notices. A waiter
// that gets no notice asks again when the owner's lease ends.
//
// All types are safe for concurrent use. The client sends durations in milliseconds. A TTL or
// transition window that is not a whole number of milliseconds is an error.
package client
