package zookeeper

import (
	"context"
	"testing"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// A contender that waits on one connection and polls on another becomes the first between two reads
// of the poll. The grant needs the lock of the key, which the poll holds.
func TestAPollDoesNotWaitForTheGrantToItsOwnContender(t *testing.T) {
	srv := stores.ZooKeeper(t)
	b := open(t, Options{Servers: srv.Addr})
	take(t, b, "m", "a", longLease)
	_, w := block(t, b, "m", "b", longLease)
	a, n := b.nodeAt(nodeKey{"m", "a"}), b.nodeAt(nodeKey{"m", "b"})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	unlock, err := b.lockKey(ctx, n.key())
	must(t, err)
	must(t, raw(t, srv.Addr).Delete(n.s.latch("m", a.child), -1)) // the session of another server may end so
	names := []string{a.child, n.child}
	r := simba.AcquireRequest{Mutex: "m", Contender: "b", TTL: longLease}
	if _, done, err := b.stayQueued(ctx, n.s, n, r, nil, names); done || err != nil {
		t.Errorf("the poll returned %t, %v; want that it tries again", done, err)
	}
	if _, done, err := b.refuse(ctx, n.s, r, names, n.child); done || err != nil {
		t.Errorf("the poll with NOQUEUE returned %t, %v; want that it tries again", done, err)
	}
	unlock()
	w.await(t)
}
