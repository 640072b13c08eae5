package client

import (
	"log/slog"
	"sync"
	"time"
)

// outageApart is how long a server must have answered before what fails is another outage, or how
// long an outage must last that follows sooner.
const outageApart = time.Second

// outage has the log told once that the server does not answer, whoever meets it, and once that it
// answers again. Safe for concurrent use.
type outage struct {
	log *slog.Logger

	mu    sync.Mutex // guards what follows
	on    bool
	said  bool // of the one that is on
	began time.Time
	ended time.Time // when the last one did
}

// met notes a request that failed since the server could not be asked.
func (o *outage) met(t terms, err error) {
	o.mu.Lock()
	if !o.on {
		o.on, o.said, o.began = true, false, time.Now()
	}
	say := !o.said && (time.Since(o.ended) >= outageApart || time.Since(o.began) >= outageApart)
	o.said = o.said || say
	o.mu.Unlock()
	if say { // not under the lock: a logger may hang
		o.log.Warn("cannot ask the server; this is said once for all contenders", "mutex", t.mutex, "contender", t.id, "err", err)
	} else {
		o.log.Debug("cannot ask the server", "mutex", t.mutex, "contender", t.id, "err", err)
	}
}

// answered notes a request that was answered.
func (o *outage) answered() {
	o.mu.Lock()
	say, lasted := o.on && o.said, time.Since(o.began)
	if o.on {
		o.on, o.ended = false, time.Now()
	}
	o.mu.Unlock()
	if say {
		o.log.Info("the server answers again", "after", lasted.Round(time.Millisecond))
	}
}
