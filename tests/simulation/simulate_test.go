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
	"runtime"
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
	return within(patience, seed, ruleLiveness, func() *report { return bubble(t, seed, change) })
}

// within returns the report of a run, or one with a violation if the run takes too long.
func within(limit time.Duration, seed uint64, rule string, run func() *report) *report {
	done := make(chan *report, 1)
	go func() { done <- run() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case r := <-done:
		return r
	case <-timer.C:
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return &report{seed: seed, counts: map[string]int{}, violations: []violation{
			{rule, fmt.Sprintf("the run has not ended after %v\n%s", limit, stacks)},
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
		r.log = inOrder(w.lines)
	})
	return r
}

// inOrder returns the text of the lines in order of time. It sorts lines of one instant by wire, then
// by mutex.
func inOrder(lines []line) (text []string) {
	slices.SortStableFunc(lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.wire, b.wire), cmp.Compare(a.of, b.of))
	})
	for _, l := range lines {
		text = append(text, l.text)
	}
	return text
}
