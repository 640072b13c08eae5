package proxy

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
)

// outageAfter is how long all requests must fail before the log has a line. So neither one slow
// request nor a short failover causes lines.
const outageAfter = time.Second

// outage logs when the store stops answering, and when it answers again. It learns that from
// requests and probes. The zero value with a log is ready to use.
type outage struct {
	log *slog.Logger

	mu       sync.Mutex // protects the rest, and the order of the lines
	answered time.Time  // when the store answered last
	since    time.Time  // start of the first request that failed after that; zero = none
	failed   time.Time  // when that request failed
	engine   string     // whose store does not answer, once the log has a line; "" = no line
}

// note takes the result of a request that began at that time.
func (o *outage) note(began time.Time, err error) {
	unavailable, misconfigured := (*simba.UnavailableError)(nil), (*simba.MisconfiguredError)(nil)
	switch {
	case err == nil, errors.As(err, &misconfigured): // a refusal is an answer
		o.end()
	case errors.Is(err, context.Canceled): // the client has disconnected
	case errors.As(err, &unavailable) && !unavailable.Busy:
		o.goesOn(began, unavailable)
	}
}

// goesOn counts a failed request. It logs the outage when that has taken outageAfter.
func (o *outage) goesOn(began time.Time, err *simba.UnavailableError) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if began.Before(o.answered) {
		return // the outage of this request is over
	}
	if o.since.IsZero() {
		o.since, o.failed = began, time.Now()
	}
	if o.engine == "" && time.Since(o.failed) >= outageAfter {
		o.engine = err.Engine
		o.log.Warn("the store does not answer", "engine", err.Engine, "err", err.Err)
	}
}

// end ends the outage, if there is one. It logs that if the log has a line on its begin.
func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.engine != "" {
		o.log.Info("the store answers again", "engine", o.engine, "away", time.Since(o.since).Round(time.Millisecond))
	}
	o.answered, o.since, o.engine = time.Now(), time.Time{}, ""
}
