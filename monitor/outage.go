package monitor

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
)

// outageAfter is how long all requests must fail before the outage is logged. One slow request or a
// short failover is not logged.
const outageAfter = time.Second

// outage logs when the store stops answering, and when it answers again. It learns this from the
// results of requests and health checks. Only the field log must be set.
type outage struct {
	log *slog.Logger

	mu       sync.Mutex // guards the fields below, and the order of log lines
	answered time.Time  // when the store answered last
	since    time.Time  // when the first request that failed after answered began; zero = none
	failed   time.Time  // when that first request failed
	engine   string     // the engine in the log line of this outage; "" = not logged
}

// note records the result of a request, which began at the given time.
func (o *outage) note(began time.Time, err error) {
	unavailable, _ := errors.AsType[*simba.UnavailableError](err)
	switch {
	case err == nil, errors.As(err, new(*simba.MisconfiguredError)): // a refusal is an answer
		o.end()
	case errors.Is(err, context.Canceled): // the client has disconnected
	case unavailable != nil && !unavailable.Busy:
		o.goesOn(began, unavailable)
	}
}

// goesOn records a failed request. It logs the outage once requests have failed for outageAfter.
func (o *outage) goesOn(began time.Time, err *simba.UnavailableError) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if began.Before(o.answered) {
		return // the store has answered since this request began
	}
	if o.since.IsZero() {
		o.since, o.failed = began, time.Now()
	}
	if o.engine == "" && time.Since(o.failed) >= outageAfter {
		o.engine = err.Engine
		o.log.Warn("the store does not answer", "engine", err.Engine, "err", err.Err)
	}
}

// end records that the store has answered. If the outage was logged, end logs that it is over.
func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.engine != "" {
		o.log.Info("the store answers again", "engine", o.engine, "away", time.Since(o.since).Round(time.Millisecond))
	}
	o.answered, o.since, o.engine = time.Now(), time.Time{}, ""
}
