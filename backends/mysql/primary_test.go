package mysql

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// openOnPair opens a server that reaches the primary through the pair's link.
func openOnPair(t testing.TB, p *stores.MariaDBPair) *Backend {
	t.Helper()
	return serve(t, "", func(o *Options) { o.DSN, o.Poll = p.DSN(p.Link().Addr()), time.Hour })
}

func TestReadOnlyServerAnswersNoRead(t *testing.T) {
	p := stores.NewMariaDBPair(t)
	b := openOnPair(t, p)
	token := take(t, b, "held", "a", long).Token
	db := direct(t, p.Primary(), "")
	must(t, db, "SET GLOBAL read_only = ON")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	reads := map[string]func() error{
		"check":                    func() error { _, _, err := b.Check(ctx, "held", token); return err },
		"owner":                    func() error { _, _, err := b.Owner(ctx, "held"); return err },
		"owner of an unused mutex": func() error { _, _, err := b.Owner(ctx, "never used"); return err },
		"scan":                     func() error { _, _, err := b.Scan(ctx, simba.ScanRequest{}); return err },
		"subscribe":                func() error { _, err := b.Subscribed(ctx, simba.MutexChannel("held"), false); return err },
		"psubscribe":               func() error { _, err := b.Subscribed(ctx, "*", true); return err },
		"clock":                    func() error { return unavailable(b.store.Ping(ctx)) },
		"read with a lock": func() error {
			_, err := b.store.Read(ctx, "held", true)
			return unavailable(err)
		},
		"acquire by another": func() error { _, _, err := b.Acquire(ctx, request("held", "b", long)); return err },
		"guard": func() error {
			_, err := b.Guard(ctx, simba.GuardRequest{Mutex: "held", Contender: "a", TTL: long})
			return err
		},
		"guard by another": func() error {
			_, err := b.Guard(ctx, simba.GuardRequest{Mutex: "held", Contender: "b", TTL: long})
			return err
		},
	}
	for name, read := range reads {
		if err := read(); !isUnavailable(err) {
			t.Errorf("%s on a read-only server: %v; want an UnavailableError", name, err)
		}
	}
	must(t, db, "SET GLOBAL read_only = OFF")
	for name, read := range reads {
		await(t, name+" succeeds when the server accepts writes again", func() bool { return read() == nil })
	}
}

// The database refuses writes to the table, as a reader of Amazon Aurora does. When it has
// restarted as a primary, requests succeed again.
func TestInnoDBReadOnlyServerIsNoPrimary(t *testing.T) {
	store := stores.MariaDB(t)
	b := serve(t, store.Addr, func(o *Options) { o.Poll = time.Hour })
	take(t, b, "m", "a", long)
	requests := map[string]func() error{
		"GUARD": func() error {
			_, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: "m", Contender: "a", TTL: long})
			return err
		},
		"ACQUIRE": func() error { _, _, err := b.Acquire(t.Context(), request("m", "a", long)); return err },
		"OWNER":   func() error { _, _, err := b.Owner(t.Context(), "m"); return err },
	}
	store.Stop()
	store.StartWith("--innodb-read-only")
	for name, r := range requests {
		await(t, name+" is refused by a read-only server", func() bool {
			err := r()
			if !isUnavailable(err) {
				t.Fatalf("%s on a read-only server: %v; want an UnavailableError", name, err)
			}
			unavailable := (*simba.UnavailableError)(nil)
			return errors.As(err, &unavailable) && isReadOnly(unavailable.Err)
		})
		if n := b.store.db.Stats().Idle; n > 2 { // those of the last request and of the check
			t.Errorf("%s: %d idle connections to the server are kept, want at most 2", name, n)
		}
	}
	if _, err := Open(t.Context(), Options{DSN: dsn(store.Addr), Options: proxy.Options{Notices: conformance.NewBroker()}}); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("Open with a read-only server: %v; want an error that says so", err)
	}
	store.Stop()
	store.Start()
	for name, r := range requests {
		await(t, name+" succeeds again", func() bool { return r() == nil })
	}
}

// Reads fail on a read-only server even if the user may write there.
func TestReadOnlyBypassIsWarnedOf(t *testing.T) {
	p := stores.NewMariaDBPair(t)
	warnings := func(dsn string) (*Backend, string) {
		var log bytes.Buffer
		b := serve(t, "", func(o *Options) { o.DSN, o.Logger = dsn, slog.New(slog.NewTextHandler(&log, nil)) })
		return b, log.String()
	}
	if _, log := warnings(p.DSN(p.Link().Addr())); strings.Contains(log, "read_only") {
		t.Errorf("Open warns of a user who may not write to a read_only server:\n%s", log)
	}
	root, log := warnings("root@tcp(" + p.Link().Addr() + ")/simba")
	if !strings.Contains(log, "may write to a server that is read_only (") {
		t.Errorf("the warning of the rights of root is missing:\n%s", log)
	}
	db := direct(t, p.Primary(), "")
	must(t, db, "CREATE USER super")
	must(t, db, "GRANT SUPER ON *.* TO super")
	must(t, db, "GRANT ALL PRIVILEGES ON simba.* TO super")
	if _, log := warnings("super@tcp(" + p.Link().Addr() + ")/simba"); !strings.Contains(log, "read_only (SUPER)") {
		t.Errorf("the warning of the rights of super is missing:\n%s", log)
	}
	take(t, root, "m", "a", long)
	must(t, db, "SET GLOBAL read_only = ON")
	if _, _, err := root.Owner(t.Context(), "m"); !isUnavailable(err) {
		t.Errorf("OWNER of root on a read-only server: %v; want an UnavailableError", err)
	}
}

// Through failovers in both directions, a read shows at least the writes that were acknowledged
// before it was sent.
func TestReadsAreNeverOlderThanAcknowledgedWrites(t *testing.T) {
	p := stores.NewMariaDBPair(t)
	writer := openOnPair(t, p)
	readers := []*Backend{openOnPair(t, p), openOnPair(t, p)}
	var mu sync.Mutex
	var acknowledged uint64 // the token of the last acknowledged tenure
	stop := make(chan struct{})
	running := func() bool {
		select {
		case <-stop:
			return false
		default:
			return true
		}
	}
	var all sync.WaitGroup
	all.Go(func() {
		for running() {
			o, _, err := writer.Acquire(t.Context(), request("m", "w", long))
			if err != nil {
				continue
			}
			mu.Lock()
			acknowledged = o.Token
			mu.Unlock()
			_, _, _ = writer.Release(t.Context(), simba.ReleaseRequest{Mutex: "m", Contender: "w"})
		}
	})
	answers := 0
	for _, r := range readers {
		all.Go(func() {
			for running() {
				mu.Lock()
				before := acknowledged
				mu.Unlock()
				s, err := r.store.Read(deadline(t), "m", false)
				if err != nil {
					continue
				}
				mu.Lock()
				answers++
				mu.Unlock()
				if s.Token < before {
					t.Errorf("a read shows token %d after token %d was acknowledged", s.Token, before)
					return
				}
			}
		})
	}
	for range 3 {
		time.Sleep(200 * time.Millisecond) // time for some load
		p.Failover()
		time.Sleep(200 * time.Millisecond)
		p.Rejoin()
	}
	close(stop)
	all.Wait()
	if answers == 0 || acknowledged == 0 {
		t.Errorf("%d reads were answered, and the last acknowledged token is %d; want both above 0", answers, acknowledged)
	}
}

func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func TestReadOnlyValuesThatAllowWrites(t *testing.T) {
	for value, off := range map[string]bool{
		"0": true, "OFF": true, "off": true, "": true,
		"1": false, "ON": false, "NO_LOCK": false, "NO_LOCK_NO_ADMIN": false, "2": false,
	} {
		if isOff(value) != off {
			t.Errorf("isOff(%q) is %v, want %v", value, !off, off)
		}
	}
}
