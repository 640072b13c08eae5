package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
)

const (
	// checkInterval is the longest time between two checks of a store.
	checkInterval = time.Minute
	// checkPause is the shortest time between two checks. It is also the time from a check that
	// failed, or that found a refused setting, to the next one.
	checkPause = time.Second
)

// Fault is a setting of the store that breaks or weakens a promise of the engine.
type Fault struct {
	Setting string // its name in the store; "" = the engine cannot read the settings
	Text    string // one line: what is wrong, where, and what to do
	Refused bool   // no tenure may begin; otherwise the engine only warns
}

func (f Fault) Error() string { return f.Text }

// Refused returns a refused Fault.
func Refused(setting, format string, args ...any) []Fault {
	return []Fault{{Setting: setting, Text: fmt.Sprintf(format, args...), Refused: true}}
}

// OneLine returns the text of an error without line breaks.
func OneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// Incomplete is the error of a check that could not check a part of the store. The faults that such
// a check returns include those that an earlier check has found in that part.
type Incomplete struct{ Err error }

func (e Incomplete) Error() string { return e.Err.Error() }

func (e Incomplete) Unwrap() error { return e.Err }

// count reports whether the faults count that a check has returned with err.
func count(err error) bool { return err == nil || errors.As(err, new(Incomplete)) }

// Texts returns the faults as texts for an operator.
func Texts(faults []Fault) (texts []string) {
	for _, f := range faults {
		text := f.Text
		if f.Refused {
			text += "; until then no new tenure begins"
		}
		texts = append(texts, text)
	}
	return texts
}

// Checks checks the store of an engine: at the start, after each call of Again, and every minute.
// While the result has a refused Fault, the engine must begin no tenure. Safe for concurrent use.
type Checks struct {
	// Repaired is called when tenures may begin again. Set it before Run; nil = nothing is called.
	Repaired func()

	engine string
	log    *slog.Logger
	check  func(context.Context) ([]Fault, error)
	again  chan struct{} // capacity 1

	// Used by Run only.
	failing time.Time // when the first check failed after the last complete one; zero = none
	warned  bool      // the log says that the checks fail

	mu      sync.Mutex // guards the fields below
	faults  []Fault
	refusal error
}

// NewChecks returns the Checks of an engine. The function check must bound its own time. Its faults
// count unless it returns an error that is not Incomplete.
func NewChecks(engine string, log *slog.Logger, check func(context.Context) ([]Fault, error)) *Checks {
	return &Checks{engine: engine, log: log, check: check, again: make(chan struct{}, 1)}
}

// Start makes the first check. It returns an error if the store is refused or cannot be checked.
// It logs the other faults as warnings.
func (c *Checks) Start(ctx context.Context) error {
	faults, err := c.check(ctx)
	if refused := refusedOf(faults); refused != nil && count(err) {
		return refused
	}
	if err == nil {
		c.set(slog.LevelWarn, faults)
	}
	return err
}

// refusedOf returns the first refused fault, or nil.
func refusedOf(faults []Fault) error {
	for _, f := range faults {
		if f.Refused {
			return f
		}
	}
	return nil
}

// Run makes the later checks until ctx ends. If a check refuses the store, Run ends all waits.
func (c *Checks) Run(ctx context.Context, waiters *Waiters) {
	for wait := checkInterval; ; {
		if !Sleep(ctx, checkPause, nil) || !Sleep(ctx, wait-checkPause, c.again) {
			return
		}
		before := c.Refusal()
		faults, err := c.check(ctx)
		if ctx.Err() != nil {
			return
		}
		c.logFailure(err)
		if count(err) {
			c.set(slog.LevelError, faults)
		}
		wait = checkInterval
		refusal := c.Refusal()
		if refusal != nil {
			waiters.FailAll(refusal)
		} else if before != nil && c.Repaired != nil {
			c.Repaired()
		}
		if err != nil || refusal != nil {
			wait = checkPause
		}
	}
}

// logFailure logs that no check has been complete for checkInterval, and that a check is complete
// again.
func (c *Checks) logFailure(err error) {
	if err == nil {
		if c.warned {
			c.log.Info("the settings of the store can be checked again", "engine", c.engine,
				"after", time.Since(c.failing).Round(time.Millisecond))
		}
		c.failing, c.warned = time.Time{}, false
		return
	}
	if c.failing.IsZero() {
		c.failing = time.Now()
	}
	c.log.Debug("cannot check the store", "engine", c.engine, "err", err)
	if !c.warned && time.Since(c.failing) >= checkInterval {
		c.warned = true
		c.log.Warn("cannot check the settings of the store: a setting that becomes unsafe goes unnoticed", "engine", c.engine, "err", err)
	}
}

// Sleep waits for d, or for an element of wake. It returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
		return false
	}
	return true
}

// Wake puts an element into a channel that has room for one, unless it has one.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Again makes Run check soon. The engine calls it for each new connection to a node of the store.
func (c *Checks) Again() { Wake(c.again) }

// set stores a result, and logs what has changed.
func (c *Checks) set(level slog.Level, faults []Fault) {
	refusal := refusedOf(faults)
	if refusal != nil {
		refusal = &simba.MisconfiguredError{Engine: c.engine, Err: refusal}
	}
	c.mu.Lock()
	before := c.faults
	c.faults, c.refusal = faults, refusal
	c.mu.Unlock()
	for _, f := range faults {
		if !slices.Contains(before, f) {
			c.logFault(level, f)
		}
	}
	for _, f := range before {
		if !slices.Contains(faults, f) {
			c.log.Info("a setting of the store is no longer at fault", "engine", c.engine, "setting", f.Setting, "was", f.Text)
		}
	}
}

func (c *Checks) logFault(level slog.Level, f Fault) {
	message := "a setting of the store weakens the engine's promises"
	switch {
	case f.Refused:
		message = "a setting of the store is refused: no new tenure begins until an operator corrects it"
	case f.Setting == "":
		level, message = slog.LevelWarn, "cannot read the settings of the store"
	}
	c.log.Log(context.Background(), level, message, "engine", c.engine, "setting", f.Setting, "why", f.Text)
}

// Refusal returns the *simba.MisconfiguredError for requests that would begin a tenure; nil = they
// may.
func (c *Checks) Refusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refusal
}

// Faults returns the faults that the last complete check has found, without unreadable settings.
func (c *Checks) Faults() []Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.faults), func(f Fault) bool { return f.Setting == "" })
}
