package client

import (
	"context"
	"log/slog"
	"time"

	"github.com/simba-resp/simba-resp/client/internal/contend"
)

// init sets the variables of package contend, which packages worker and registry use.
func init() {
	contend.Start = func(client any, cfg contend.Config) (contend.Run, error) {
		return startRun(client.(*Client), cfg)
	}
	contend.Timeout = func(client any) time.Duration { return client.(*Client).timeout }
	contend.ErrNoAnswer, contend.ErrClientClosed = errNoAnswer, errClientClosed
	contend.Trace = func(contender any, h contend.Hooks) { contender.(*Contender).trace = h }
	contend.Stopping = func(contender any) bool {
		r := contender.(*Contender).lastRun()
		return r == nil || r.stopping()
	}
	contend.ResignForTTL = func(contender any) { contender.(*Contender).resign(resignForTTL) }
	contend.BeginWork = func(contender any, ownership context.Context) func(error) {
		k := contender.(*Contender)
		return k.c.beginWork(k.terms, ownership)
	}
	contend.Logger = func(contender any) *slog.Logger {
		k := contender.(*Contender)
		return k.c.log.With("mutex", k.terms.mutex, "contender", k.terms.id)
	}
}

// tracedRun implements contend.Run.
type tracedRun struct{ *contenderRun }

func (t tracedRun) Stop()                     { t.stop() }
func (t tracedRun) Renew()                    { t.askNow() }
func (t tracedRun) Stopping() <-chan struct{} { return t.quit }
func (t tracedRun) Done() <-chan struct{}     { return t.done }
func (t tracedRun) Gone() <-chan struct{}     { return t.gone }
func (t tracedRun) Err() error                { return t.err }

// startRun starts a contender that renews its lease only when Renew is called.
func startRun(c *Client, cfg contend.Config) (contend.Run, error) {
	r := c.newContenderRun(context.Background(), terms{mutex: cfg.Mutex, id: cfg.ID, ttl: cfg.TTL, defaultTTL: cfg.DefaultTTL}, stepsFor(cfg.Hooks))
	r.manual, r.once, r.noQueue, r.every = true, cfg.Once, cfg.NoQueue, cfg.Every
	if err := r.begin(); err != nil {
		return nil, err
	}
	return tracedRun{r}, nil
}

// stepsFor returns steps for a contenderRun. The steps call the functions of h.
func stepsFor(h contend.Hooks) steps {
	own := steps{
		asking: h.Asking, renewed: h.Renewed, failed: h.Failed, releasing: h.Releasing, ended: h.Ended,
		acquired: func(*ownership, State) {}, lost: func(*ownership, State) {},
	}
	if h.Acquired != nil {
		own.acquired = func(o *ownership, _ State) { h.Acquired(o) }
	}
	if h.Lost != nil {
		own.lost = func(*ownership, State) { h.Lost() }
	}
	if h.Waiting != nil {
		own.waiting = func(Owner) { h.Waiting() }
	}
	return own
}
