package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	judge "github.com/simba-resp/simba-resp/tests/tenures"
)

// direct connects to the store like any other program.
func direct(t testing.TB, store *stores.Server, params string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn(store.Addr)+params)
	noError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func must(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// jvm is a contender of Simba on the JVM, written from its documentation alone. It runs the
// statements of Simba's JdbcMutexOwnerRepository in the same transactions.
type jvm struct {
	db              *sql.DB
	mutex, id       string
	ttl, transition time.Duration
	fenced          bool // of Simba 3.3 or later: it takes tokens
}

// acquire is Simba's acquireAndGetOwner. It reports whether the contender owns the mutex.
func (j jvm) acquire(ctx context.Context) (owns bool, err error) {
	_, owns, err = j.acquireToken(ctx)
	return owns, err
}

// acquireToken is acquire, and also returns the token of a contender that takes tokens.
func (j jvm) acquireToken(ctx context.Context) (token uint64, owns bool, err error) {
	tx, err := j.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, false, err
	}
	defer tx.Rollback()
	acquire, get := seeds.MySQLAcquire, seeds.MySQLGet
	args := []any{j.ttl.Milliseconds(), (j.ttl + j.transition).Milliseconds(), j.id, j.mutex, j.id}
	var owner string
	var version, end, now int64
	into := []any{&owner, &version, &end, &now}
	if j.fenced {
		acquire, get = seeds.MySQLFencedAcquire, seeds.MySQLFencedGet
		args, into = append([]any{j.id}, args...), append(into, &token)
	}
	if _, err := tx.ExecContext(ctx, acquire, args...); err != nil {
		return 0, false, err
	}
	if err := tx.QueryRowContext(ctx, get, j.mutex).Scan(into...); err != nil {
		return 0, false, err
	}
	return token, owner == j.id && end > now, tx.Commit()
}

func (j jvm) release(ctx context.Context) error {
	_, err := j.db.ExecContext(ctx, seeds.MySQLRelease, j.mutex, j.id)
	return err
}

// isBusy reports whether the server asks to repeat a request, because others have changed the mutex
// at each of its attempts. On a slow machine that happens beside contenders that never pause.
func isBusy(err error) bool {
	var unavailable *simba.UnavailableError
	return errors.As(err, &unavailable) && unavailable.Busy
}

// Leases are short, and most owners stop without a release. An owner is sure of its lease for the
// TTL, counted from its request. No two owners are sure at the same time.
func TestJVMAndOwnLeasesExpireForEachOther(t *testing.T) {
	store := serverWithSeedTable(t)
	db := direct(t, store, "")
	const mutex, ttl, took = "short", 40 * time.Millisecond, 3 * time.Second
	must(t, db, seeds.MySQLInit, mutex)
	one, two := serve(t, store.Addr, withoutMigration), serve(t, store.Addr, withoutMigration)

	var list judge.Log
	hold := func(id string, asked time.Duration) (dies bool) {
		s := judge.Tenure{Owner: id, From: judge.Clock(), To: asked + ttl}
		dies = rand.N(4) > 0
		if s.From >= s.To {
			return dies // the lease may have ended
		}
		if !dies {
			s.To = s.From // it releases at once
		}
		s.To -= 3 * time.Millisecond // for clocks that count milliseconds
		list.Add(s)
		return dies
	}
	ctx, cancel := context.WithTimeout(t.Context(), took)
	defer cancel()
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				j := jvm{db: db, mutex: mutex, id: fmt.Sprintf("jvm-%d-%d", i, n), ttl: ttl}
				asked := judge.Clock()
				if owns, err := j.acquire(t.Context()); err == nil && owns && !hold(j.id, asked) {
					if err := j.release(t.Context()); err != nil && errorNumber(err) != errDeadlock {
						t.Errorf("release: %v; want no error", err)
					}
				}
				<-time.After(rand.N(10 * time.Millisecond))
			}
		})
	}
	for i, b := range []*Backend{one, two, one, two} {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				id := fmt.Sprintf("ours-%d-%d", i, n)
				r := request(mutex, id, ttl)
				r.NoQueue = true
				asked := judge.Clock()
				o, _, err := b.Acquire(t.Context(), r)
				if isBusy(err) {
					continue
				}
				if err != nil {
					t.Errorf("ACQUIRE: %v; want no error", err)
					return
				}
				if o.Status == simba.StatusAcquired && !hold(id, asked) {
					if _, _, err := b.Release(t.Context(), simba.ReleaseRequest{Mutex: mutex, Contender: id}); err != nil && !isBusy(err) {
						t.Errorf("RELEASE: %v; want no error", err)
					}
				}
				<-time.After(rand.N(10 * time.Millisecond))
			}
		})
	}
	all.Wait()
	inOrder := list.InOrder()
	for _, wrong := range judge.Overlaps(inOrder) {
		t.Error(wrong)
	}
	changes := map[string]int{}
	last := ""
	for _, s := range inOrder {
		kind, _, _ := strings.Cut(s.Owner, "-")
		changes[last+" to "+kind]++
		last = kind
	}
	t.Log(changes)
	if changes["jvm to ours"] == 0 || changes["ours to jvm"] == 0 {
		t.Errorf("the mutex passed from kind to kind %v times, want both ways", changes)
	}
}

// A renewal on the JVM increments the version, so the token changes. The server announces no new
// owner.
func TestJVMRenewalIsNoNewTenure(t *testing.T) {
	store := serverWithSeedTable(t)
	db := direct(t, store, "")
	const mutex = "renewed"
	must(t, db, seeds.MySQLInit, mutex)
	n := conformance.NewBroker(simba.MutexChannel(mutex))
	b := serve(t, store.Addr, func(o *Options) { o.Notices, o.Migrate = n, false })
	if _, err := b.Subscribed(t.Context(), simba.MutexChannel(mutex), false); err != nil {
		t.Fatalf("Subscribed: %v; want no error", err)
	}
	j := jvm{db: db, mutex: mutex, id: "jvm", ttl: long}
	var token uint64
	for i := range 3 {
		if owns, err := j.acquire(t.Context()); !owns || err != nil {
			t.Fatalf("acquire: %v, %v; want true", owns, err)
		}
		if o := ownerOf(t, b, mutex); o.Owner != "jvm" || token != 0 && o.Token != token {
			t.Fatalf("OWNER: %+v; want jvm with one token", o)
		} else {
			token = o.Token
		}
		heard := func() int { return n.Count(simba.MutexChannel(mutex), simba.AcquiredNotice("jvm")) }
		await(t, "the tenure is announced", func() bool { return heard() > 0 })
		<-time.After(4 * testPoll) // the server reads the row
		if n := heard(); n != 1 {
			t.Fatalf("after %d renewals the tenure was announced %d times, want once", i, n)
		}
	}
}

// Subscribers of the mutex and of a pattern get the notice, unless a waiter of this server is next.
func TestJVMReleaseIsAnnounced(t *testing.T) {
	for _, fenced := range []bool{false, true} {
		store := serverWithTable(t, seeds.MySQLFencedTable)
		db := direct(t, store, "")
		for _, subscription := range []string{simba.MutexChannel("m"), "simba:*"} {
			pattern := subscription == "simba:*"
			n := conformance.NewBroker(subscription)
			b := serve(t, store.Addr, func(o *Options) { o.Notices, o.Migrate = n, false })
			must(t, db, seeds.MySQLInit, "m")
			j := jvm{db: db, mutex: "m", id: "jvm", ttl: long, fenced: fenced}
			if _, err := b.Subscribed(t.Context(), subscription, pattern); err != nil {
				t.Fatalf("Subscribed: %v; want no error", err)
			}
			heard := func(payload string) int { return n.Count(simba.MutexChannel("m"), payload) }
			tenure := func(n int) {
				t.Helper()
				j.mustAcquire(t)
				await(t, "the tenure is announced", func() bool { return heard("acquired@@jvm") == n })
			}
			tenure(1)
			j.giveUp(t)
			await(t, "the release is announced", func() bool { return heard("released@@jvm") == 1 })

			tenure(2)
			w := block(t, b, "m", "ours", long)
			j.giveUp(t)
			w.Granted(t)
			await(t, "the handoff is announced", func() bool { return heard("acquired@@ours") == 1 })
			expire(t, db, "m")
			await(t, "the lease ends", func() bool {
				return last(t, b, "m").Kind == simba.EventExpired
			})
			<-time.After(4 * testPoll)
			if jvm, ours := heard("released@@jvm"), heard("released@@ours"); jvm != 1 || ours != 0 {
				t.Errorf("fenced %v, %s: releases by jvm are announced %d times and by ours %d times, want 1 and 0", fenced, subscription, jvm, ours)
			}
			if err := b.Close(); err != nil {
				t.Errorf("Close: %v; want no error", err)
			}
		}
	}
}

// last returns the last event of a mutex in the server's history.
func last(t testing.TB, b *Backend, mutex string) (e simba.Event) {
	t.Helper()
	list, _, err := b.History(t.Context(), simba.HistoryRequest{Mutex: mutex, Count: 1})
	noError(t, err)
	if len(list) > 0 {
		e = list[0]
	}
	return e
}
