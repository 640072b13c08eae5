package zookeeper

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
)

// goodRecords returns records of a node in each of its states.
func goodRecords() []*record {
	now := time.Now()
	n := node{mutex: "größe", contender: "c1", creator: "s1", server: "s2", ttl: simba.MaxTTL, transition: simba.MaxTransition, binding: "s2/7"}
	list := []*record{n.recordLocked(now)} // has no kind; removed below
	for _, k := range []kind{kindAsking, kindOwner, kindBlocked, kindPolling} {
		n.kind, n.acquiredAt, n.listening, n.expiresAt = k, now.UnixMilli(), k == kindPolling, now.Add(5*time.Second)
		list = append(list, n.recordLocked(now))
	}
	n.reservedUntil = now.Add(time.Second)
	over := *list[2]
	over.Over = true
	return append(list[1:], n.recordLocked(now), &over)
}

func TestInvalidLeaseNodeIsRejected(t *testing.T) {
	for _, r := range goodRecords() {
		if got, err := decodeRecord(r.encode()); err != nil || got != *r {
			t.Errorf("decodeRecord of %s: %+v, %v; want the same record", r.encode(), got, err)
		}
	}
	for _, data := range []string{
		"", "null", "{}", "[]", "c1",
		`{"mutex":"m","contender":"a","kind":"owner","ttl":-1}`,
		`{"mutex":"m","contender":"a","kind":"owner","ttl":9223372036854775807}`,
		`{"mutex":"m","contender":"a","kind":"owner","transition":9223372036854775807}`,
		`{"mutex":"m","contender":"a","kind":"owner","acquired":9223372036854775807}`,
		`{"mutex":"m","contender":"a","kind":"polling","lapse":9223372036854775807}`,
		`{"mutex":"m","contender":"a","kind":"polling","turn":-1}`,
		`{"mutex":"m","contender":"a","kind":"king"}`,
		`{"mutex":"m","contender":"","kind":"owner"}`,
		`{"mutex":"../..\u0000","contender":"a","kind":"owner"}`,
	} {
		if r, err := decodeRecord([]byte(data)); !errors.Is(err, errNoRecord) {
			t.Errorf("decodeRecord of %s: %+v, %v; want errNoRecord", data, r, err)
		}
	}
}

// FuzzRecord decodes any data of a lease node. decodeRecord rejects it, or gives windows that a
// client can ask for. Encoded again, the record is the same.
func FuzzRecord(f *testing.F) {
	for _, r := range goodRecords() {
		f.Add(r.encode(), int64(1790000000000))
	}
	f.Fuzz(func(t *testing.T, data []byte, mtime int64) {
		rec, err := decodeRecord(data)
		if err != nil {
			return
		}
		if again, err := decodeRecord(rec.encode()); err != nil || again != rec {
			t.Errorf("record %+v, encoded and decoded: %+v, %v; want the same record", rec, again, err)
		}
		b := &Backend{}
		n := &node{foreign: true, mutex: rec.Mutex, contender: rec.Contender}
		stat := &zk.Stat{Mtime: (mtime&^(-1<<63))%lastInstant + 1}
		b.adoptLocked(n, rec, stat)
		if since := b.clock.latest(n.acquiredAt); since.Before(n.since) { // as in readNode
			n.since = since
		}
		ttl, both := n.left(time.Now())
		if ttl > both || both > simba.MaxTTL+simba.MaxTransition || n.acquiredAt <= 0 {
			t.Errorf("record %s leaves %v of the TTL window and %v of both windows, which began at %d; want them within the limits", data, ttl, both, n.acquiredAt)
		}
		if rec.Over && n.ownsLocked(time.Now()) {
			t.Errorf("record %s is of an ended lease, but ownsLocked returns true", data)
		}
		if rec.Kind == kindPolling {
			if h := b.headLocked(n); h.owned || h.transitionLeft < 0 || h.transitionLeft > simba.MaxTTL {
				t.Errorf("record %s gives the head %+v; want no owner, and a remaining time within the limits",
					data, h)
			}
		}
	})
}
