package clienttest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/client"
)

// diary is what a contender was told, and when its ownerships ended by its own clock.
type diary struct {
	t     testing.TB
	start time.Time

	mu     sync.Mutex // guards what follows
	lines  []string   // "acquired 1", "released"
	inside bool       // a callback runs
	reigns []*belief
}

// belief is one ownership by the contender's own clock, in time since the world began.
type belief struct {
	token    uint64
	from, to time.Duration // to is -1 as long as it goes on
}

func (w *world) diary() *diary { return &diary{t: w.t, start: w.start} }

func (d *diary) elapsed() time.Duration { return time.Since(d.start) }

func (d *diary) enter() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inside {
		d.t.Error("two callbacks at a time")
	}
	d.inside = true
}

func (d *diary) leave(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inside = false
	d.lines = append(d.lines, line)
}

// begins notes an ownership until its context ends.
func (d *diary) begins(ctx context.Context) {
	s := &belief{token: client.Token(ctx), from: d.elapsed(), to: -1}
	d.mu.Lock()
	d.reigns = append(d.reigns, s)
	d.mu.Unlock()
	context.AfterFunc(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		s.to = d.elapsed()
	})
}

// acquired is an OnAcquired that returns at once.
func (d *diary) acquired(ctx context.Context, s client.State) {
	d.enter()
	d.begins(ctx)
	if client.Token(ctx) == 0 || client.Token(ctx) != s.After.Token {
		d.t.Errorf("acquired with token %d and state %+v", client.Token(ctx), s)
	}
	d.leave(fmt.Sprint("acquired ", client.Token(ctx)))
}

// released is an OnReleased that returns at once.
func (d *diary) released(client.State) {
	d.enter()
	d.mu.Lock()
	if n := len(d.reigns); n == 0 {
		d.t.Error("released before it was acquired")
	}
	d.mu.Unlock()
	d.leave("released")
}

// said is what was called so far.
func (d *diary) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprint(d.lines)
}

// last is the newest ownership; nil = there was none.
func (d *diary) last() *belief {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.reigns) == 0 {
		return nil
	}
	s := *d.reigns[len(d.reigns)-1]
	return &s
}

// neverTwo fails unless each ownership of these diaries has ended, by its holder's own clock, no later
// than another's began by the server.
func (w *world) neverTwo(mutex string, diaries ...*diary) {
	w.t.Helper()
	all := w.tenures(mutex)
	for _, d := range diaries {
		d.mu.Lock()
		for i, s := range d.reigns {
			if i > 0 && d.reigns[i-1].to < 0 {
				w.t.Errorf("an ownership begins before the one with token %d has ended", d.reigns[i-1].token)
			}
			for j, r := range all {
				if r.token != s.token {
					continue
				}
				if s.to >= 0 && j+1 < len(all) && s.to.Truncate(time.Millisecond) > all[j+1].from {
					w.t.Errorf("%s believes in token %d until %v, but %s owns %s since %v", r.id, s.token, s.to, all[j+1].id, mutex, all[j+1].from)
				}
				if s.to < 0 && j+1 < len(all) {
					w.t.Errorf("%s believes in token %d still, but %s owns %s since %v", r.id, s.token, all[j+1].id, mutex, all[j+1].from)
				}
			}
		}
		d.mu.Unlock()
	}
}

// contender is a Contender of a mutex with a diary and a Client of its own.
type contender struct {
	*client.Contender
	*diary
	*guest
	w *world
}

// contend starts a contender for "job", with a lease of 10 s and 2 s unless changed. It is
// stopped with the world at the latest.
func (w *world) contend(id string, changes ...func(*client.ContenderConfig)) *contender {
	w.t.Helper()
	return w.contendOver(w.client(), id, changes...)
}

func (w *world) contendOver(g *guest, id string, changes ...func(*client.ContenderConfig)) *contender {
	w.t.Helper()
	d := w.diary()
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
	c := &contender{Contender: k, diary: d, guest: g, w: w}
	if err := k.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = k.Stop(context.Background()) })
	return c
}

// stop stops it and fails if that goes wrong.
func (c *contender) stop() {
	c.w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := c.Stop(ctx); err != nil {
		c.w.t.Errorf("stop %s: %v", c.ID(), err)
	}
}
