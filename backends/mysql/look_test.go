package mysql

import (
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

// TestALookThatWaitsForItsTurnHoldsUpNoRequest for its mutex.
func TestALookThatWaitsForItsTurnHoldsUpNoRequest(t *testing.T) {
	store := stores.MariaDB(t)
	b := serve(t, store.Addr, func(o *Options) { o.Timeout = patience })
	take(t, b, "m", "a", long)
	block(t, b, "m", "w", long)
	for range cap(b.looking) { // so many looks at other mutexes take long
		b.looking <- struct{}{}
	}
	await(t, "a look is due", func() bool {
		l := b.hold("m")
		defer b.drop(l)
		b.mu.Lock()
		defer b.mu.Unlock()
		return l.awake
	})
	start := time.Now()
	release(t, b, "m", "a")
	if took := time.Since(start); took > lookTimeout/2 {
		t.Errorf("a RELEASE took %v", took)
	}
	for range cap(b.looking) {
		<-b.looking
	}
}

// TestALookAtABusyMutexLeavesItsTurnToOthers, and comes again.
func TestALookAtABusyMutexLeavesItsTurnToOthers(t *testing.T) {
	store := stores.MariaDB(t)
	b := serve(t, store.Addr, func(o *Options) { o.Timeout = patience })
	take(t, b, "m", "a", long)
	w := block(t, b, "m", "w", long)
	l := b.hold("m")
	defer b.drop(l)
	if err := l.gate.enter(t.Context(), false); err != nil { // as a request does that takes long
		t.Fatal(err)
	}
	await(t, "a look has its turn", func() bool { return len(b.looking) > 0 })
	start := time.Now()
	await(t, "it has it no more", func() bool { return len(b.looking) == 0 })
	if took := time.Since(start); took > lookTimeout/2 {
		t.Errorf("it took %v", took)
	}
	must(t, direct(t, store, ""), "UPDATE simba_mutex SET transition_at = 0") // by another server
	l.gate.leave()
	w.granted(t)
}
