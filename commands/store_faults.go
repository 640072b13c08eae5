package commands

import (
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
)

// storeFaults logs that the store refuses what the engine needs (simba.MisconfiguredError). Each
// client gets the error, but only an operator can repair the store. Each fault gets one line a
// minute. The next line has the number of replies in between.
type storeFaults struct {
	log *slog.Logger

	mu    sync.Mutex // protects the rest
	known map[string]*storeFault
}

// storeFault is one error text, such as that of a missing table.
type storeFault struct {
	logged time.Time // when its last line was written
	missed int       // replies since
}

const (
	// faultPause is the shortest time between two lines of one fault.
	faultPause = time.Minute
	// maxFaults is how many faults have lines of their own in a minute. The others share one line.
	// Without this limit a client could cause any number of lines, because some errors name a key.
	maxFaults = 16
)

// met records err if it is a refusal of the store.
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

// due reports whether to log a fault, and how many of its replies were not logged.
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
