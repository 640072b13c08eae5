// Package client contends for the mutexes of a simba-resp server: locks, leadership and periodic
// work. It sends its requests with a go-redis client.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:7379", ContextTimeoutEnabled: true})
//	c, err := client.New(rdb, client.Options{})
//	…
//	err = c.Do(ctx, "report", func(ctx context.Context) error {
//		return write(ctx, client.Token(ctx)) // ctx ends when the mutex is lost
//	})
//
// [Client.Do] locks a mutex for a function, and [Client.Lock] for work that does not fit into one.
// [Client.TryDo] and [Client.TryLock] do not wait. Locks are not reentrant. [Client.Lead] runs a
// function whenever this process is the leader, and [Client.Every] runs one periodically in one of
// many processes. [Client.Watch] and [Client.Owner] show who owns a mutex. With [Client.Check] a
// resource refuses a former owner.
//
// Two packages build on these methods. Package registry has reentrant locks by key, like Spring's
// RedisLockRegistry. Package contend has the types of Simba.
//
// # Leases and tenures
//
// A tenure is one unbroken ownership of a mutex. Its fencing token is larger than that of every
// earlier tenure of the mutex. A lease is the owner's right to the mutex for a limited time. Each
// renewal begins a new lease of the same tenure.
//
// A lease has two windows: first the TTL window, then the transition window. The owner renews when
// a third of the TTL has passed. In the transition window it still owns the mutex, and may renew.
//
// The name of a mutex has 1 to 255 bytes of UTF-8, without white space, control characters and braces.
// Of names that come from elsewhere use a hash, or url.QueryEscape.
//
// A contender is identified by its id. If it repeats a request, the server recognizes the id, so a
// lost reply does no harm. Two contenders of a mutex must never have the same id at the same time.
// Unless [WithID] sets the id, the Client makes a new one.
//
// # When an ownership ends
//
// The ownership context ends when the Client releases or loses the mutex. A lease counts from before
// its request was sent, and the Client gives it up 1 % before its end, at most 250 ms. So the
// ownership context ends before the server grants the mutex to another contender, unless the clock
// of this process loses more than this margin during the lease.
//
// Only a command that somebody sends can end a lease while the ownership context lasts: SIMBA.BREAK,
// DEL of the mutex's key, or RELEASE with the contender's id. A tenure that lasts for a second or
// longer subscribes to notices of it, and ends at once. A shorter one learns of it by its next
// renewal, and so does one without the right to SUBSCRIBE, or of a Client that owns more mutexes than
// the server accepts channels, 10,000.
//
// After a freeze of the process or the machine, the lease may have ended. Err of an ownership
// context reads the clock, so it reports the loss at once. Err of a context that is derived from it
// (context.WithTimeout, errgroup) may still be nil at the first call. Work that began before the
// freeze continues, so the resource should check the fencing token.
//
// # Connections
//
// A Client has two connections beside the pool of the go-redis client, each opened when it is
// needed. On one, SIMBA.NEXT brings the outcomes of all waits. The other is subscribed to notices,
// for owners and Watch. So waiters hold no connection of the pool.
//
// All types are safe for concurrent use. The Client sends durations in milliseconds. A window that
// is not a whole number of milliseconds is an error.
package client
