package mysql

import (
	"errors"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

func TestLockedRowIsReportedAndDelaysNoOtherMutex(t *testing.T) {
	store := stores.MariaDB(t)
	b := serve(t, store.Addr, nil)
	take(t, b, "hot", "a", long)
	tx := lockRow(t, direct(t, store, ""), "hot")
	defer tx.Rollback()
	_, err := b.store.Renew(deadline(t), "hot", &proxy.Lease{Owner: "a", TTL: long, Since: time.Now()})
	var locked proxy.NotDone
	if !errors.As(err, &locked) || !locked.Locked {
		t.Errorf("Renew of a locked row: %v; want that it is locked", err)
	}
	take(t, b, "other", "b", long)
	if o := ownerOf(t, b, "hot"); o.Owner != "a" {
		t.Errorf("OWNER of a locked row: %+v; want a", o)
	}
	noError(t, tx.Rollback())
	release(t, b, "hot", "a")
}

// A renewal checks the lease before it commits. A slow commit may end after the lease that it
// renews. Until then, other transactions still read the old windows.
func TestEndIsNotReportedWhileARenewalCommits(t *testing.T) {
	store := stores.MariaDB(t)
	b := serve(t, store.Addr, func(*Options) {})
	db := direct(t, store, "")
	for name, owned := range map[string]func(token uint64) bool{
		"OWNER": func(uint64) bool { return ownerOf(t, b, "OWNER").Owner == "a" },
		"CHECK": func(token uint64) bool {
			valid, _, err := b.Check(t.Context(), "CHECK", token)
			return valid && err == nil
		},
		"BREAK": func(uint64) bool {
			broken, _, err := b.Break(t.Context(), "BREAK", "test")
			return broken && err == nil
		},
	} {
		o := take(t, b, name, "a", 200*time.Millisecond)
		tx, err := db.Begin()
		noError(t, err)
		defer tx.Rollback()
		const hour = " + 3600000"
		if _, err := tx.Exec("UPDATE simba_mutex SET ttl_at = ttl_at"+hour+", transition_at = transition_at"+hour+" WHERE mutex = ?", name); err != nil {
			t.Fatalf("Exec: %v; want no error", err)
		}
		for ended := false; !ended; {
			noError(t, db.QueryRow("SELECT transition_at < "+dbNow+" FROM simba_mutex WHERE mutex = ?", name).Scan(&ended))
		}
		reply := make(chan bool)
		go func() { reply <- owned(o.Token) }()
		select {
		case <-reply:
			t.Errorf("%s replied before the renewal had committed", name)
			continue
		case <-time.After(100 * time.Millisecond): // time for a premature reply
		}
		noError(t, tx.Commit())
		if !<-reply {
			t.Errorf("%s reported the end of a lease that was renewed in time", name)
		}
	}
}
