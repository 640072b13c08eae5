package client

import (
	"log/slog"
	"sync"
	"time"
)

// If an outage begins within outageGap after the last one, it is logged only when it has lasted for
// outageGap.
const outageGap = time.Second

// outage logs one warning for all requests that fail while the server does not answer, and one line
// when the server answers again. Safe for concurrent use.
type outage struct {
	log *slog.Logger

	mu     sync.Mutex // guards what follows
	on     bool
	logged bool      // whether the present outage is logged
	began  time.Time // when the present outage began
	ended  time.Time // when the last outage ended
}

// failed notes a request that the server did not answer.
func (o *outage) failed(t *terms, err error) {
	o.mu.Lock()
	if !o.on {
		o.on, o.logged, o.began = true, false, time.Now()
	}
	first := !o.logged && (time.Since(o.ended) >= outageGap || time.Since(o.began) >= outageGap)
	o.logged = o.logged || first
	o.mu.Unlock()
	if first { // not under the lock: a log handler may block
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
