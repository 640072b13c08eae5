package monitor

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/simba-resp/simba-resp"
)

const (
	// A probe reads the owner of probeMutex, which need not exist.
	probeMutex = "simba-resp:health"
	// probeTimeout bounds a probe if the store does not bound it.
	probeTimeout = 5 * time.Second
	// probeWait is how long a request waits for a probe. Prometheus waits for 10 s by default.
	probeWait = 8 * time.Second
	// probeAge is how long later requests share the result of a probe, so that they cannot overload
	// the store.
	probeAge = time.Second
)

var (
	errNoProbe  = errors.New("no answer in time")
	errNoLeader = errors.New("the cluster has no leader")
)

// prober checks whether the store answers. Requests share a probe that is running. Of a cluster, only
// the leader asks its store; for another member it suffices that there is a leader. A prober is safe
// for concurrent use.
type prober struct {
	backend simba.Backend
	cluster func() Cluster
	life    context.Context // ends when close is called
	end     context.CancelFunc

	probes singleflight.Group // runs probe, once at a time; protects the rest
	err    error              // of the last probe
	ended  time.Time          // when it ended
}

func newProber(s *Sources) *prober {
	p := &prober{backend: s.Backend, cluster: s.cluster}
	p.life, p.end = context.WithCancel(context.Background())
	return p
}

// check returns nil if the store answers, else an error that says why it does not.
func (p *prober) check(ctx context.Context) error {
	switch c := p.cluster(); {
	case !c.HasLeader:
		return errNoLeader
	case !c.Serves:
		return nil
	}
	select {
	case r := <-p.probes.DoChan("", p.probe):
		return r.Err
	case <-ctx.Done():
		return errNoProbe
	}
}

// probe reads the owner of a mutex, and waits until all changes so far are durable. So with the
// engine embedded, the disk must answer too. It passes Stats().Seq to Commit, because the Seq from
// Owner covers only the changes of few mutexes.
func (p *prober) probe() (_ any, err error) {
	switch {
	case p.life.Err() != nil:
		return nil, simba.ErrStopped
	case time.Since(p.ended) < probeAge:
		return nil, p.err
	}
	ctx, cancel := context.WithTimeout(p.life, probeTimeout)
	defer cancel()
	_, seq, err := p.backend.Owner(ctx, probeMutex)
	if err == nil {
		err = p.backend.Commit(max(seq, p.backend.Stats().Seq))
	}
	p.err, p.ended = err, time.Now()
	return nil, err
}

// close cancels the running probe and waits for its end. Later probes do not ask the store.
func (p *prober) close() {
	p.end()
	_, _, _ = p.probes.Do("", p.probe) // nothing depends on the result
}
