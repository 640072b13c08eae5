package clienttest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/contend"
	"github.com/simba-resp/simba-resp/tests/tenures"
)

// recorder records the callbacks of a contender. It also records the contender's ownerships by the
// contender's clock.
type recorder struct {
	t     testing.TB
	start time.Time

	mu     sync.Mutex // guards the fields below
	lines  []string   // "acquired 1", "released"
	inside bool       // a callback runs
	spans  []*ownedSpan
}

// ownedSpan is one ownership. Its times count from the start of the world.
type ownedSpan struct {
	token    uint64
	from, to time.Duration // to is -1 while the ownership lasts
}

func (w *world) recorder() *recorder { return &recorder{t: w.t, start: w.start} }

func (d *recorder) elapsed() time.Duration { return time.Since(d.start) }

func (d *recorder) enter() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inside {
		d.t.Error("two callbacks run at a time")
	}
	d.inside = true
}

func (d *recorder) leave(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inside = false
	d.lines = append(d.lines, line)
}

// begins records an ownership until its context ends.
func (d *recorder) begins(ctx context.Context) {
	s := &ownedSpan{token: client.Token(ctx), from: d.elapsed(), to: -1}
	d.mu.Lock()
	d.spans = append(d.spans, s)
	d.mu.Unlock()
	context.AfterFunc(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		s.to = d.elapsed()
	})
}

// acquired is an OnAcquired that returns at once.
func (d *recorder) acquired(ctx context.Context) {
	d.enter()
	d.begins(ctx)
	if client.Token(ctx) == 0 {
		d.t.Error("the ownership context has no token")
	}
	d.leave(fmt.Sprint("acquired ", client.Token(ctx)))
}

// released is an OnReleased that returns at once.
func (d *recorder) released() {
	d.enter()
	d.mu.Lock()
	if n := len(d.spans); n == 0 {
		d.t.Error("OnReleased is called before OnAcquired")
	}
	d.mu.Unlock()
	d.leave("released")
}

// callbacks returns all callbacks so far.
func (d *recorder) callbacks() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprint(d.lines)
}

// last returns the newest ownership; nil = none.
func (d *recorder) last() *ownedSpan {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.spans) == 0 {
		return nil
	}
	s := *d.spans[len(d.spans)-1]
	return &s
}

// neverTwo fails the test unless each recorded ownership ended before the server's next tenure
// began. The server's times are whole milliseconds.
func (w *world) neverTwo(mutex string, recorders ...*recorder) {
	w.t.Helper()
	all := w.tenures(mutex)
	for _, d := range recorders {
		d.mu.Lock()
		for _, s := range d.spans {
			own := tenures.Tenure{Owner: "the contender, by its clock,", Token: s.token, From: s.from, To: s.to.Truncate(time.Millisecond) - 1}
			if s.to < 0 {
				own.To = w.elapsed()
			}
			i := slices.IndexFunc(all, func(t tenures.Tenure) bool { return t.Token == s.token })
			if i >= 0 && i+1 < len(all) {
				for _, wrong := range tenures.Overlaps([]tenures.Tenure{own, all[i+1]}) {
					w.t.Error(mutex, ": ", wrong)
				}
			}
		}
		d.mu.Unlock()
	}
}

// contender is a Contender with its own recorder and Client.
type contender struct {
	*contend.Contender
	*recorder
	*testClient
	w  *world
	id string
}

// contend starts a contender for "job" with a TTL of 10 s and a transition window of 2 s. The end
// of the test stops the contender.
func (w *world) contend(id string, o ...client.Option) *contender {
	w.t.Helper()
	return w.contendOver(w.client(), id, o...)
}

func (w *world) contendOver(g *testClient, id string, o ...client.Option) *contender {
	w.t.Helper()
	d := w.recorder()
	return w.contendWith(g, d, id, d.acquired, d.released, o...)
}

// lease sets both windows of a lease.
func lease(ttl, transition time.Duration) []client.Option {
	return []client.Option{client.WithTTL(ttl), client.WithTransition(transition)}
}

func (w *world) contendWith(g *testClient, d *recorder, id string, onAcquired func(context.Context), onReleased func(), o ...client.Option) *contender {
	w.t.Helper()
	return w.contendAfter(0, g, d, id, onAcquired, onReleased, o...)
}

func (w *world) contendAfter(delay time.Duration, g *testClient, d *recorder, id string, onAcquired func(context.Context), onReleased func(), o ...client.Option) *contender {
	w.t.Helper()
	o = append([]client.Option{client.WithID(id), client.WithTTL(10 * time.Second), client.WithTransition(2 * time.Second)}, o...)
	k, err := contend.New(g.Client, "job", delay, onAcquired, onReleased, o...)
	must(w.t, err)
	c := &contender{Contender: k, recorder: d, testClient: g, w: w, id: id}
	must(w.t, k.Start())
	w.t.Cleanup(func() { _ = k.Stop(context.Background()) })
	return c
}

func (c *contender) stop() {
	c.w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := c.Stop(ctx); err != nil {
		c.w.t.Errorf("Stop of %s returns %v", c.id, err)
	}
}
