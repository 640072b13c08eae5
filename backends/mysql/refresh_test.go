package mysql

import (
	"fmt"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

// The refresh delays no request for its mutex. A busy machine may delay some attempts, but hardly
// ten in a row.
func TestRefreshThatWaitsForASlotDelaysNoRequest(t *testing.T) {
	store := stores.MariaDB(t)
	b := serve(t, store.Addr, func(o *Options) { o.Timeout = patience })
	var took time.Duration
	for try := range 10 {
		if took = releaseWhileARefreshWaits(t, b, fmt.Sprint("m", try)); took <= need.AtMost(refreshTimeout/2) {
			return
		}
	}
	t.Errorf("RELEASE took %v while a refresh waited for a slot, want at most %v", took, refreshTimeout/2)
}

func releaseWhileARefreshWaits(t *testing.T, b *Backend, mutex string) time.Duration {
	t.Helper()
	take(t, b, mutex, "a", long)
	w := block(t, b, mutex, "w", long)
	for range cap(b.refreshSlots) { // slow refreshes of other mutexes take all slots
		b.refreshSlots <- struct{}{}
	}
	await(t, "a refresh is due", func() bool {
		m := b.ref(mutex)
		defer b.unref(m)
		b.mu.Lock()
		defer b.mu.Unlock()
		return m.running
	})
	start := time.Now()
	release(t, b, mutex, "a")
	took := time.Since(start)
	for range cap(b.refreshSlots) {
		<-b.refreshSlots
	}
	w.granted(t)
	return took
}

func TestRefreshOfABusyMutexGivesUpItsSlot(t *testing.T) {
	store := stores.MariaDB(t)
	b := serve(t, store.Addr, func(o *Options) { o.Timeout = patience })
	take(t, b, "m", "a", long)
	w := block(t, b, "m", "w", long)
	m := b.ref("m")
	defer b.unref(m)
	if err := m.lock.lock(t.Context(), false); err != nil { // as a slow request does
		t.Fatalf("lock: %v; want no error", err)
	}
	var took time.Duration
	// A busy machine may delay some attempts, but hardly ten in a row.
	for try := 0; try == 0 || try < 10 && took > need.AtMost(refreshTimeout/2); try++ {
		await(t, "a refresh has a slot", func() bool { return len(b.refreshSlots) > 0 })
		start := time.Now()
		await(t, "the slot is free again", func() bool { return len(b.refreshSlots) == 0 })
		took = time.Since(start)
	}
	if took > need.AtMost(refreshTimeout/2) {
		t.Errorf("the refresh gave up its slot after %v, want at most %v", took, refreshTimeout/2)
	}
	// This ends the lease, as another server would.
	must(t, direct(t, store, ""), "UPDATE simba_mutex SET transition_at = 0")
	m.lock.unlock()
	w.granted(t)
}
