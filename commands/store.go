package commands

import (
	"errors"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
)

// store is the backend, which keeps the mutexes, and what is known about it.
type store struct {
	backend  simba.Backend
	keyspace simba.Keyspace // the backend if it is a Keyspace, else nil
	faults   storeFaults
	waits    atomic.Int64 // requests that wait via a waiter
}

// waitBytes is about the memory of such a request, without the backend's.
const waitBytes = 512

// outage counts the time that the commands of one batch have lost to a store that does not answer.
// The server sends the replies of a batch together. So a pipeline of a hundred commands must not
// wait for a hundred timeouts. After a fast failure the next command still calls the store, because
// it may reach another node. A refusal (simba.MisconfiguredError) does not count, because the store
// has answered.
type outage struct {
	err  error         // the last error of the store
	lost time.Duration // time that failed commands took
}

// outageLimit is the lost time after which the next commands of the batch do not call the store.
const outageLimit = time.Second

// met adds the time of a command to the lost time, if its error is one of the store.
func (o *outage) met(err error, took time.Duration) {
	if lost, ok := errors.AsType[*simba.UnavailableError](err); ok {
		o.err, o.lost = lost, o.lost+took
	}
}

func (o *outage) over() bool { return o.lost >= outageLimit }

// storeFaults logs that the store refuses what the engine needs (simba.MisconfiguredError). Clients
// get the error as a reply, but only an operator can repair the store. Each fault is logged at most
// once a minute.
type storeFaults struct {
	log *slog.Logger

	mu     sync.Mutex           // protects the rest
	logged map[string]time.Time // the faults of the last minute
	missed int                  // replies since the last line whose fault was not logged
}

const (
	// faultPause is the shortest time between two log lines about one fault.
	faultPause = time.Minute
	// maxFaults is how many different faults are logged in a minute. Without this limit a client
	// could cause any number of lines, because some errors name a key.
	maxFaults = 16
)

// met counts a refusal of the store, and may log it. It ignores other errors.
func (f *storeFaults) met(err error) {
	refusal, ok := errors.AsType[*simba.MisconfiguredError](err)
	if !ok {
		return
	}
	if missed, due := f.due(refusal.Err.Error(), time.Now()); due {
		f.log.Error("the store refuses what the engine needs, until an operator mends it",
			"engine", refusal.Engine, "err", refusal.Err, "unlogged", missed)
	}
}

// due reports whether to log a fault now, and how many replies were not logged since the last line.
func (f *storeFaults) due(text string, now time.Time) (missed int, due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.logged, func(_ string, at time.Time) bool { return now.Sub(at) >= faultPause })
	if _, recent := f.logged[text]; recent || len(f.logged) >= maxFaults {
		f.missed++
		return 0, false
	}
	if f.logged == nil {
		f.logged = make(map[string]time.Time)
	}
	f.logged[text] = now
	missed, f.missed = f.missed, 0
	return missed, true
}

// dataset returns the memory of the engine's mutexes and of the waits for them, in bytes.
func (s *store) dataset() uint64 {
	if s.keyspace == nil {
		return 0
	}
	return uint64(max(0, s.keyspace.Bytes()+s.waits.Load()*waitBytes))
}
