package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// The old primary goes on accepting writes. A server that has seen the new one must not use it, even
// if its URL names the old one first.
func TestOldPrimaryIsRefusedByItsTimeline(t *testing.T) {
	p := stores.NewPostgresPair(t)
	old := p.Primary()
	url := "postgres://postgres@" + old.Addr + "," + p.Other().Addr + "/postgres?sslmode=disable&target_session_attrs=read-write"
	b := serve(t, "", func(o *Options) { o.URL, o.Timeout = url, testTimeout })
	take(t, b, "before", "a", long)
	p.Promote()
	fresh := serve(t, p.Link().Addr(), func(o *Options) { o.Migrate = false })
	take(t, fresh, "after", "a", long)
	// A new connection of b leads to the old primary, which it has no reason to refuse.
	take(t, b, "unfenced", "a", long)
	b.store.timeline.Store(fresh.store.timeline.Load())
	await(t, "the server uses the new primary", func() bool {
		o, _, err := b.Owner(t.Context(), "after")
		return err == nil && o.Owner == "a"
	})
	if o := ownerOf(t, b, "unfenced"); o.Owner != "" {
		t.Errorf("OWNER: %+v; want what the new primary has", o)
	}
	if got := direct(t, old, "SELECT count(*) FROM simba_mutex"); got != "2" {
		t.Errorf("the old primary has %s mutexes, want no new one", got)
	}
	// With the old primary alone, nothing is granted.
	ctx, cancel := context.WithTimeout(t.Context(), serveTimeout)
	defer cancel()
	p.Primary().Stop()
	take := func() error {
		_, _, err := b.Acquire(ctx, request("lost", "a", long))
		return err
	}
	await(t, "the server refuses the old primary", func() bool {
		err := take()
		return err != nil && strings.Contains(err.Error(), errOldTimeline.Error())
	})
}

func TestStandbyAndReadOnlyDatabasesAreRefused(t *testing.T) {
	p := stores.NewPostgresPair(t)
	_, err := Open(t.Context(), options(p.Other().Addr))
	if err == nil || !strings.Contains(err.Error(), "is a standby") || strings.Contains(err.Error(), "\n") {
		t.Errorf("Open on a standby: %v; want that it is a standby", err)
	}
	b := serve(t, p.Link().Addr(), func(o *Options) { o.Timeout = testTimeout })
	token := take(t, b, "m", "a", long).Token
	old := p.Primary()
	p.Failover()
	await(t, "the server uses the new primary", func() bool {
		o, _, err := b.Owner(t.Context(), "m")
		if err != nil && !isUnavailable(err) {
			t.Fatal(err)
		}
		return err == nil && o.Token == token
	})
	if c, err := Open(t.Context(), options(old.Addr)); err == nil {
		_ = c.Close()
		t.Error("Open on a read-only database succeeded")
	} else if !strings.Contains(err.Error(), "default_transaction_read_only is on") {
		t.Errorf("Open on a read-only database: %v; want the setting", err)
	}
	if !errors.Is(b.store.Ping(t.Context()), nil) {
		t.Error("Ping fails on the new primary")
	}
}
