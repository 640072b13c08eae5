package mysql

import (
	"fmt"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

// TestALookThatWaitsForItsTurnHoldsUpNoRequest for its mutex. A busy machine may hold one up; but
// hardly each time.
func TestALookThatWaitsForItsTurnHoldsUpNoRequest(t *testing.T) {
	store := stores.MariaDB(t)
	b := serve(t, store.Addr, func(o *Options) { o.Timeout = patience })
	var took time.Duration
	for try := range 3 {
		if took = releaseWhileALookWaits(t, b, fmt.Sprint("m", try)); took <= lookTimeout/2 {
			return
		}
	}
	t.Errorf("a RELEASE took %v", took)
}

// releaseWhileALookWaits returns how long the RELEASE takes.
func releaseWhileALookWaits(t *testing.T, b *Backend, mutex string) time.Duration {
	t.Helper()
	take(t, b, mutex, "a", long)
	w := block(t, b, mutex, "w", long)
	for range cap(b.looking) { // so many looks at other mutexes take long
		b.looking <- struct{}{}
	}
	await(t, "a look is due", func() bool {
		l := b.hold(mutex)
		defer b.drop(l)
		b.mu.Lock()
		defer b.mu.Unlock()
		return l.awake
	})
	start := time.Now()
	release(t, b, mutex, "a")
	took := time.Since(start)
	for range cap(b.looking) {
		<-b.looking
	}
	w.granted(t)
	return took
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
	var took time.Duration
	// A busy machine may hold one up; but hardly each time.
	for try := 0; try == 0 || try < 3 && took > lookTimeout/2; try++ {
		await(t, "a look has its turn", func() bool { return len(b.looking) > 0 })
		start := time.Now()
		await(t, "it has it no more", func() bool { return len(b.looking) == 0 })
		took = time.Since(start)
	}
	if took > lookTimeout/2 {
		t.Errorf("it took %v", took)
	}
	must(t, direct(t, store, ""), "UPDATE simba_mutex SET transition_at = 0") // by another server
	l.gate.leave()
	w.granted(t)
}
