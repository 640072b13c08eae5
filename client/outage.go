package client

import (
	"log/slog"
	"sync"
	"time"
)

// outageGap is how long the server must have answered before a failed request begins another
// outage. An outage that begins sooner is logged when it has lasted as long.
const outageGap = time.Second

// outage logs once that the server does not answer, whatever request fails, and once that it
// answers again. Safe for concurrent use.
type outage struct {
	log *slog.Logger

	mu     sync.Mutex // guards what follows
	on     bool
	logged bool // the outage that is on
	began  time.Time
	ended  time.Time // when the last one ended
}

// failed notes a request that the server did not answer.
func (o *outage) failed(t terms, err error) {
	o.mu.Lock()
	if !o.on {
		o.on, o.logged, o.began = true, false, time.Now()
	}
	first := !o.logged && (time.Since(o.ended) >= outageGap || time.Since(o.began) >= outageGap)
	o.logged = o.logged || first
	o.mu.Unlock()
	if first { // not under the lock: a logger may hang
		o.log.Warn("the server does not answer; logged once for all contenders", "mutex", t.mutex, "contender", t.id, "err", err)
	} else {
		o.log.Debug("the server does not answer", "mutex", t.mutex, "contender", t.id, "err", err)
	}
}

// answered notes a request that the server answered.
func (o *outage) answered() {
	o.mu.Lock()
	logged, lasted := o.on && o.logged, time.Since(o.began)
	if o.on {
		o.on, o.ended = false, time.Now()
	}
	o.mu.Unlock()
	if logged {
		o.log.Info("the server answers again", "after", lasted.Round(time.Millisecond))
	}
}
