package commands

import (
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
)

// storeFaults logs that the store refuses what the engine needs (simba.MisconfiguredError). Clients
// get the error as a reply, but only an operator can repair the store. Each fault is logged at most
// once a minute. The next line reports how many replies with this fault were not logged.
type storeFaults struct {
	log *slog.Logger

	mu    sync.Mutex // protects the rest
	known map[string]*storeFault
}

type storeFault struct {
	logged time.Time // when the fault was last logged
	missed int       // replies with the fault since then
}

const (
	// faultPause is the shortest time between two log lines about one fault.
	faultPause = time.Minute
	// maxFaults is how many different faults are logged in a minute. Further faults share one line.
	// Without this limit a client could cause any number of lines, because some errors name a key.
	maxFaults = 16
)

// met counts a refusal of the store, and may log it. It ignores other errors.
func (f *storeFaults) met(err error) {
	refusal := (*simba.MisconfiguredError)(nil)
	if !errors.As(err, &refusal) {
		return
	}
	if missed, due := f.due(refusal.Err.Error(), time.Now()); due {
		f.log.Error("the store refuses what the engine needs, until an operator mends it",
			"engine", refusal.Engine, "err", refusal.Err, "unlogged", missed)
	}
}

// due reports whether to log a fault now, and how many replies with this fault were not logged.
func (f *storeFaults) due(text string, now time.Time) (missed int, due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.known[text]
	if known == nil && len(f.known) >= maxFaults {
		maps.DeleteFunc(f.known, func(_ string, old *storeFault) bool { return now.Sub(old.logged) >= faultPause })
		if len(f.known) >= maxFaults {
			text = ""
			known = f.known[text]
		}
	}
	if known != nil && now.Sub(known.logged) < faultPause {
		known.missed++
		return 0, false
	}
	if known != nil {
		missed = known.missed
	}
	if f.known == nil {
		f.known = make(map[string]*storeFault)
	}
	f.known[text] = &storeFault{logged: now}
	return missed, true
}
