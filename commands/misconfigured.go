package commands

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
)

// storeFaults logs that an engine's store refuses what the engine needs
// (simba.MisconfiguredError). Each client gets the error, but only an operator can mend
// the store. One line a minute says so; replies in between are counted by the next line.
type storeFaults struct {
	log *slog.Logger

	mu     sync.Mutex // protects the rest
	logged time.Time  // when the last line was written; zero = never
	missed int        // replies since
}

// faultPause is between two lines.
const faultPause = time.Minute

// met takes note of why a request failed, if the store refuses it.
func (f *storeFaults) met(err error) {
	refusal := (*simba.MisconfiguredError)(nil)
	if !errors.As(err, &refusal) {
		return
	}
	now := time.Now()
	f.mu.Lock()
	quiet := !f.logged.IsZero() && now.Sub(f.logged) < faultPause
	missed := f.missed
	if quiet {
		f.missed++
	} else {
		f.logged, f.missed = now, 0
	}
	f.mu.Unlock()
	if !quiet {
		f.log.Error("the store refuses what the engine needs, until an operator mends it",
			"engine", refusal.Engine, "err", refusal.Err, "unlogged", missed)
	}
}
