// Package simulation runs whole servers, one a seed: the wire, the commands, the engine and its
// store on a disk that is slow, hangs, fails and crashes, with clients that come and go, in fake
// time and with clocks that are set. The seed decides everything, so what one run has found, the
// next one finds again.
//
//	schedule → clients → net.Pipe → resp → commands → engine → persist → disk
//	    │         │                                                      (crashable, slow, failing)
//	    └──→ model ──→ judge: was everybody told what had to be, at the instant, and was it durable?
//
// The model is the design told a second time, in the plainest way. It sees what clients send, and
// what becomes of their connections, and nothing of the server.
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
)

// patience is how long a run may take by a real clock: none takes a hundredth of it.
const patience = 2 * time.Minute

// stream is the one of the generator's that seeds choose from.
const stream = 20240229

// simulate runs one seed in a bubble of its own and returns what it saw. It ends at the first
// violation, which it reports and does not judge. Several may run at a time.
func simulate(t *testing.T, seed uint64) *report {
	t.Helper()
	return simulateWith(t, seed, func(*config) {})
}

// simulateWith is simulate with what the seed has decided changed.
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
		time.Sleep(time.Millisecond) // nothing happens at the instant 0
		w.run()
		r.log = w.log()
	})
	return r
}

// log is the lines in order of time; what happened at one instant has no order but that of each wire.
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
