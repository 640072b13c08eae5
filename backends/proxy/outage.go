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

	mu     sync.Mutex // protects the rest
	since  time.Time  // start of the first request that failed after the last answer; zero = none
	failed time.Time  // when that request failed
	engine string     // whose store does not answer, once the log has a line; "" = no line
}

// note takes the result of a request that began at that time.
func (o *outage) note(began time.Time, err error) {
	unavailable, misconfigured := (*simba.UnavailableError)(nil), (*simba.MisconfiguredError)(nil)
	switch {
	case err == nil, errors.As(err, &misconfigured): // a refusal is an answer
		if engine, away := o.end(); engine != "" {
			o.log.Info("the store answers again", "engine", engine, "away", away.Round(time.Millisecond))
		}
	case errors.Is(err, context.Canceled): // the client has disconnected
	case errors.As(err, &unavailable):
		if o.goesOn(began, unavailable.Engine) {
			o.log.Warn("the store does not answer", "engine", unavailable.Engine, "err", unavailable.Err)
		}
	}
}

// goesOn counts a failed request. It reports whether to log the outage now.
func (o *outage) goesOn(began time.Time, engine string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		o.since, o.failed = began, time.Now()
	}
	if o.engine != "" || time.Since(o.failed) < outageAfter {
		return false
	}
	o.engine = engine
	return true
}

// end ends the outage. It returns the engine and how long the outage took, if the log has a line.
func (o *outage) end() (engine string, away time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	engine, away = o.engine, time.Since(o.since)
	o.since, o.engine = time.Time{}, ""
	return engine, away
}
