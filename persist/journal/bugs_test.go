//go:build bugs

package journal

import (
	"testing"

	"github.com/simba-resp/simba-resp/bugs"
)

// The simulation seldom tears a record. TestEveryFlippedBitIsRefusedOrTheTornEnd does
// so, and is red with the bug, too.
func TestSeededBugsTornRecordAccepted(t *testing.T) {
	o, places := damageable(t, false)
	last := places[len(places)-1]
	memory(t, o, last.file)[last.offset+last.size-1] ^= 1
	if got := findsOf(scanDir(&o)); got != "9 records" {
		t.Fatalf("without the bug: %s, want 9 records", got)
	}
	defer bugs.Turn(bugs.None)
	bugs.Turn(bugs.TornRecordAccepted)
	if got := findsOf(scanDir(&o)); got != "10 records" {
		t.Errorf("with the bug: %s, want 10 records", got)
	}
}
