package clienttest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/client"
)

// recorder records the callbacks of a contender, and the ownerships by its own clock.
type recorder struct {
	t     testing.TB
	start time.Time

	mu     sync.Mutex // guards what follows
	lines  []string   // "acquired 1", "released"
	inside bool       // a callback runs
	spans  []*ownedSpan
}

// ownedSpan is one ownership by the contender's clock. Its times count from the start of the world.
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
		d.t.Error("two callbacks at a time")
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
func (d *recorder) acquired(ctx context.Context, s client.State) {
	d.enter()
	d.begins(ctx)
	if client.Token(ctx) == 0 || client.Token(ctx) != s.After.Token {
		d.t.Errorf("acquired with token %d and state %+v", client.Token(ctx), s)
	}
	d.leave(fmt.Sprint("acquired ", client.Token(ctx)))
}

// released is an OnReleased that returns at once.
func (d *recorder) released(client.State) {
	d.enter()
	d.mu.Lock()
	if n := len(d.spans); n == 0 {
		d.t.Error("released before it was acquired")
	}
	d.mu.Unlock()
	d.leave("released")
}

// drain returns the callbacks since the last drain.
func (d *recorder) drain() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprint(d.lines)
}

// last returns the newest ownership; nil if there was none.
func (d *recorder) last() *ownedSpan {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.spans) == 0 {
		return nil
	}
	s := *d.spans[len(d.spans)-1]
	return &s
}

// neverTwo fails unless each ownership of the recorders ended before the next tenure began. The end
// counts by the owner's clock, the beginning of the next tenure by the server's.
func (w *world) neverTwo(mutex string, recorders ...*recorder) {
	w.t.Helper()
	all := w.tenures(mutex)
	for _, d := range recorders {
		d.mu.Lock()
		for i, s := range d.spans {
			if i > 0 && d.spans[i-1].to < 0 {
				w.t.Errorf("an ownership begins before the one with token %d has ended", d.spans[i-1].token)
			}
			for j, r := range all {
				if r.token != s.token {
					continue
				}
				if s.to >= 0 && j+1 < len(all) && s.to.Truncate(time.Millisecond) > all[j+1].from {
					w.t.Errorf("%s is the owner with token %d until %v, but %s owns %s since %v", r.id, s.token, s.to, all[j+1].id, mutex, all[j+1].from)
				}
				if s.to < 0 && j+1 < len(all) {
					w.t.Errorf("%s is still the owner with token %d, but %s owns %s since %v", r.id, s.token, all[j+1].id, mutex, all[j+1].from)
				}
			}
		}
		d.mu.Unlock()
	}
}

// contender is a Contender of a mutex with a recorder and a Client of its own.
type contender struct {
	*client.Contender
	*recorder
	*testClient
	w *world
}

// contend starts a contender for "job". Unless changes set another lease, the TTL is 10 s and the
// transition window 2 s. The contender is stopped when the test ends.
func (w *world) contend(id string, changes ...func(*client.ContenderConfig)) *contender {
	w.t.Helper()
	return w.contendOver(w.client(), id, changes...)
}

func (w *world) contendOver(g *testClient, id string, changes ...func(*client.ContenderConfig)) *contender {
	w.t.Helper()
	d := w.recorder()
	cfg := client.ContenderConfig{
		Mutex: "job", ID: id, TTL: 10 * time.Second, Transition: 2 * time.Second,
		OnAcquired: d.acquired, OnReleased: d.released,
	}
	for _, change := range changes {
		change(&cfg)
	}
	k, err := g.NewContender(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	c := &contender{Contender: k, recorder: d, testClient: g, w: w}
	if err := k.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = k.Stop(context.Background()) })
	return c
}

// stop stops the contender. It fails the test if Stop returns an error.
func (c *contender) stop() {
	c.w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := c.Stop(ctx); err != nil {
		c.w.t.Errorf("stop %s: %v", c.ID(), err)
	}
}
