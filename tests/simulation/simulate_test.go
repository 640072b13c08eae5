// Package simulation runs whole servers, one for each seed: connections, commands, engine and
// store. The disk is slow, hangs, fails and crashes. Clients come and go. Time is fake, and the
// schedule sets the wall clock. The seed decides everything, so a failing run can be repeated.
//
//	schedule → clients → net.Pipe → resp → commands → engine → persist → disk
//	    │         │
//	    └──→ model ──→ judge: was each reply right, in time, and durable?
//
// The model implements the rules a second time, in the plainest way. It sees the requests of
// clients and the ends of connections, and nothing of the server.
package simulation

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp/tests/need"
)

// patience limits the real time of a run. A run needs less than a hundredth of it.
const patience = need.Hang

// stream is the second seed of each run's random generator.
const stream = 20240229

// simulate runs one seed in a synctest bubble of its own and returns the report. The run ends at
// the first violation. simulate is safe for concurrent use.
func simulate(t *testing.T, seed uint64) *report {
	t.Helper()
	return simulateWith(t, seed, func(*config) {})
}

// simulateWith runs one seed like simulate, after change has modified the configuration.
func simulateWith(t *testing.T, seed uint64, change func(*config)) *report {
	t.Helper()
	done := make(chan *report, 1)
	go func() { done <- bubble(t, seed, change) }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case r := <-done:
		return r
	case <-timer.C:
		return &report{seed: seed, counts: map[string]int{}, violations: []violation{
			{ruleLiveness, fmt.Sprintf("the run has not ended after %v", patience)},
		}}
	}
}

func bubble(t *testing.T, seed uint64, change func(*config)) (r *report) {
	r = &report{seed: seed, counts: map[string]int{}}
	defer func() {
		if p := recover(); p != nil {
			rule := ruleLiveness
			if s := fmt.Sprint(p); s == "deadlock: main bubble goroutine has exited but blocked goroutines remain" {
				rule = ruleNothingLeft
			}
			r.violations = append(r.violations, violation{rule, fmt.Sprintf("%v\n%s", p, debug.Stack())})
		}
	}()
	synctest.Test(t, func(*testing.T) {
		// Fake time begins in 2000, and a new store refuses clocks before 2026.
		time.Sleep(time.Until(time.Date(2027, time.January, 1, 0, 0, 0, 0, time.UTC)))
		rng := rand.New(rand.NewPCG(seed, stream))
		w := &world{config: draw(rng), rng: rng, report: r, start: time.Now(), lulls: newLulls()}
		change(&w.config)
		go w.lulls.watch()
		defer w.lulls.stop()
		w.events = map[uint64]string{}
		w.model = &model{w: w, window: w.window, grace: w.grace}
		for i := range w.mutexes {
			w.model.mutexes = append(w.model.mutexes, &mutex{m: w.model, name: fmt.Sprintf("m%d", i+1)})
		}
		r.config = w.config.String()
		time.Sleep(time.Millisecond) // the code takes the instant 0 for "never"
		w.run()
		r.log = w.log()
	})
	return r
}

// log returns the text of the lines in order of time. It sorts lines of one instant by wire, then
// by mutex.
func (w *world) log() []string {
	slices.SortStableFunc(w.lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.wire, b.wire), cmp.Compare(a.of, b.of))
	})
	text := make([]string, len(w.lines))
	for i, l := range w.lines {
		text[i] = l.text
	}
	return text
}
