package zookeeper

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// otherUsersACL gives all rights to the user "other" only.
var otherUsersACL = zk.DigestACL(zk.PermAll, "other", "secret")

// operator connects as the user "other", which keeps its rights when a test takes rights away.
func operator(t testing.TB, addr string) *zk.Conn {
	t.Helper()
	c := raw(t, addr)
	must(t, c.AddAuth("digest", []byte("other:secret")))
	return c
}

func setACL(t testing.TB, c *zk.Conn, path string, acl []zk.ACL) {
	t.Helper()
	if _, err := c.SetACL(path, acl, -1); err != nil {
		t.Fatalf("set the ACL of %s: %v", path, err)
	}
}

// freeACL gives everybody all rights to the node of a mutex, if the node still exists. ZooKeeper
// deletes it a second after its last child.
func freeACL(t testing.TB, c *zk.Conn, path string) {
	t.Helper()
	if _, err := c.SetACL(path, zk.WorldACL(zk.PermAll), -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatalf("set the ACL of %s: %v", path, err)
	}
}

// without returns an ACL that gives everybody all but some rights. The user "other" has all.
func without(rights int32) []zk.ACL {
	return append(zk.WorldACL(zk.PermAll&^rights), otherUsersACL...)
}

func mustBeMisconfigured(t testing.TB, what string, err error, names string) {
	t.Helper()
	var refusal *simba.MisconfiguredError
	if !errors.As(err, &refusal) || refusal.Engine != "zookeeper" || !strings.Contains(err.Error(), names) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %v, want a misconfigured error that names %q", what, err, names)
	}
}

func ask(b *Backend, mutex, contender string) (simba.Outcome, error) {
	out, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: longLease})
	return out, err
}

// mustRenewByAllCommands checks that a can renew its lease of m by GUARD and ACQUIRE at both
// servers.
func mustRenewByAllCommands(t *testing.T, one, two *Backend, a simba.Outcome) {
	t.Helper()
	for name, b := range map[string]*Backend{"its server": one, "another server": two} {
		for range 2 {
			if out, err := b.Guard(ctx, guardOf("m", "a", longLease)); err != nil || out.Status != simba.StatusRenewed || out.Token != a.Token {
				t.Errorf("GUARD through %s: %+v, %v; want renewed with the same token", name, out, err)
			}
			if out, err := ask(b, "m", "a"); err != nil || out.Status != simba.StatusRenewed || out.Token != a.Token {
				t.Errorf("ACQUIRE through %s: %+v, %v; want renewed with the same token", name, out, err)
			}
		}
	}
}

func TestUsedUpQuotaIsMisconfiguredAndOwnersRenew(t *testing.T) {
	for name, limits := range map[string]string{
		"nodes": "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=1",
		"bytes": "count=-1,bytes=-1=;byteHardLimit=1;countHardLimit=-1",
	} {
		t.Run(name, func(t *testing.T) {
			srv := stores.ZooKeeper(t, "enforceQuota=true")
			one, two := open(t, Options{Servers: srv.Addr, Options: proxy.Options{Timeout: patience}}), open(t, Options{Servers: srv.Addr})
			a := take(t, one, "m", "a", longLease)
			o := operator(t, srv.Addr)
			const quota = "/zookeeper/quota/simba"
			for _, node := range []struct{ path, data string }{
				{quota, ""},
				{quota + "/zookeeper_limits", limits},
				{quota + "/zookeeper_stats", "count=3,bytes=1"},
			} {
				create(t, o, node.path, node.data, 0)
			}
			began := time.Now()
			_, err := ask(one, "m", "b")
			mustBeMisconfigured(t, "ACQUIRE", err, "setquota")
			if took := time.Since(began); took > patience/2 {
				t.Errorf("ACQUIRE was refused after %v; want less than %v", took, patience/2)
			}
			_, _, err = one.Acquire(t.Context(), simba.AcquireRequest{Mutex: "m", Contender: "c", TTL: longLease, Waiter: conformance.NewBlocked()})
			mustBeMisconfigured(t, "ACQUIRE WAIT", err, "QuotaExceeded (-125)")
			mustRenewByAllCommands(t, one, two, a)
		})
	}
}

func TestEveryCommandNamesAMissingPermission(t *testing.T) {
	srv := stores.ZooKeeper(t)
	b := open(t, Options{Servers: srv.Addr})
	take(t, b, "m", "a", longLease)
	o := operator(t, srv.Addr)
	setACL(t, o, "/simba/m", otherUsersACL)
	for name, question := range map[string]func() error{
		"ACQUIRE": func() error { _, err := ask(b, "m", "b"); return err },
		"ACQUIRE WAIT": func() error {
			_, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "c", TTL: longLease, Waiter: conformance.NewBlocked()})
			return err
		},
		"RELEASE": func() error {
			_, _, err := b.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "a"})
			return err
		},
		"OWNER": func() error { _, _, err := b.Owner(ctx, "m"); return err },
		"CHECK": func() error { _, _, err := b.Check(ctx, "m", 1); return err },
		"QUEUE": func() error { _, _, err := b.Queue(ctx, "m", 10); return err },
		"BREAK": func() error { _, _, err := b.Break(ctx, "m", ""); return err },
		"SCAN":  func() error { _, _, err := b.Scan(ctx, simba.ScanRequest{}); return err },
	} {
		mustBeMisconfigured(t, name, question(), "no permission (NoAuth)")
	}
	if names, _, err := o.Children("/simba/m"); err != nil || len(names) != 1 {
		t.Errorf("the nodes below the mutex: %v, %v; want only the owner's", names, err)
	}
	setACL(t, o, "/simba/m", zk.WorldACL(zk.PermAll))
	giveUp(t, b, "m", "a")
}

func TestForeignEphemeralNodeIsNamedAndKept(t *testing.T) {
	srv := stores.ZooKeeper(t)
	b := open(t, Options{Servers: srv.Addr})
	take(t, b, "other", "x", longLease) // ZooKeeper deletes /simba while it is empty
	o := operator(t, srv.Addr)
	create(t, o, "/simba/m", "theirs", zk.FlagEphemeral)
	_, err := ask(b, "m", "a")
	mustBeMisconfigured(t, "acquire", err, "ephemeral")
	if data, _, err := o.Get("/simba/m"); err != nil || string(data) != "theirs" {
		t.Errorf("the other program's node holds %q, %v; want it unchanged", data, err)
	}
	must(t, o.Delete("/simba/m", -1))
	take(t, b, "m", "a", longLease)
}

func TestDeletedChrootIsNamedAndServesAgainWhenRecreated(t *testing.T) {
	srv := stores.ZooKeeper(t)
	o := operator(t, srv.Addr)
	make := func() {
		t.Helper()
		create(t, o, "/locks", "", 0)
	}
	make()
	b := open(t, Options{Servers: srv.Addr + "/locks", Options: proxy.Options{Timeout: patience}})
	take(t, b, "m", "a", longLease)
	await(t, "the chroot is deleted", func() bool { // the server keeps creating nodes in it
		deleteAll(o, "/locks")
		_, _, err := o.Get("/locks")
		return errors.Is(err, zk.ErrNoNode)
	})
	began := time.Now()
	_, err := ask(b, "n", "b")
	mustBeMisconfigured(t, "acquire", err, "the chroot /locks does not exist")
	if took := time.Since(began); took > patience/2 {
		t.Errorf("ACQUIRE was refused after %v; want less than %v", took, patience/2)
	}
	make()
	take(t, b, "n", "b", longLease)
	await(t, "the sessions' markers are there again", func() bool {
		names, _, err := o.Children("/locks/simba-leases")
		markers := 0
		for _, name := range names {
			if strings.HasPrefix(name, "session-") {
				markers++
			}
		}
		return err == nil && markers == sessions
	})
}

func deleteAll(c *zk.Conn, path string) {
	names, _, _ := c.Children(path)
	for _, name := range names {
		deleteAll(c, path+"/"+name)
	}
	_ = c.Delete(path, -1)
}

// The server loses a session and has no right to create the marker of the next one.
func TestWaitersGetTheReasonForNoSession(t *testing.T) {
	srv := stores.ZooKeeper(t)
	link := stores.NewLink(t, srv.Addr)
	b := open(t, Options{Servers: link.Addr(), SessionTimeout: 2 * time.Second, Options: proxy.Options{Timeout: time.Second}})
	other := open(t, Options{Servers: srv.Addr})
	take(t, other, "m", "a", longLease)
	w := block(t, b, "m", "w", longLease)
	o := operator(t, srv.Addr)
	link.Refuse()
	await(t, "the sessions are lost", func() bool {
		names, _, err := o.Children("/simba/m")
		return err == nil && len(names) == 1
	})
	pause() // until the server too has given the sessions up
	setACL(t, o, "/simba-leases", without(zk.PermCreate))
	link.Heal()
	mustBeRefused(t, w)
	_, err := ask(b, "m", "c")
	mustBeMisconfigured(t, "acquire", err, "no permission")
	setACL(t, o, "/simba-leases", zk.WorldACL(zk.PermAll))
	await(t, "requests succeed again", func() bool { out, err := ask(b, "m", "c"); return err == nil && out.Owner == "a" })
	w = block(t, b, "m", "w", longLease)
	giveUp(t, other, "m", "a")
	w.Granted(t)
}

func pause() { <-time.After(time.Second) }

// mustBeRefused waits until a wait ends for want of a permission.
func mustBeRefused(t *testing.T, w *conformance.Blocked) {
	t.Helper()
	<-w.Woken
	_, err := w.Ticket.End(simba.EndWoken)
	mustBeMisconfigured(t, "the wait", err, "no permission")
}

// To be granted a mutex, a waiter needs the right to read the queue. The grant itself changes no node.
// If a client may not read a node, the ensemble drops the client's watch and sends no event.
func TestWaiterGetsTheMissingPermission(t *testing.T) {
	srv := stores.ZooKeeper(t)
	one, two := open(t, Options{Servers: srv.Addr}), open(t, Options{Servers: srv.Addr})
	o := operator(t, srv.Addr)
	released := func(mutex string) *conformance.Blocked {
		take(t, one, mutex, "a", longLease)
		w := block(t, two, mutex, "w", longLease)
		pause() // until the server watches the queue
		setACL(t, o, "/simba/"+mutex, without(zk.PermRead))
		giveUp(t, one, mutex, "a")
		return w
	}
	mustBeRefused(t, released("m"))
	freeACL(t, o, "/simba/m")
	await(t, "x acquires the mutex", func() bool { out, err := ask(two, "m", "x"); return err == nil && out.Owner == "x" })
	w := block(t, two, "m", "y", longLease)
	giveUp(t, two, "m", "x")
	w.Granted(t)

	w = released("n")
	setACL(t, o, "/simba/n", zk.WorldACL(zk.PermAll)) // at once
	w.Granted(t)
}

// The request fails after it has created a node. That node must not count as the owner's.
func TestFailedRequestLeavesNoEntry(t *testing.T) {
	srv := stores.ZooKeeper(t)
	b := open(t, Options{Servers: srv.Addr})
	o := operator(t, srv.Addr)
	a := take(t, b, "m", "a", longLease)
	for _, w := range []simba.Waiter{nil, conformance.NewBlocked()} {
		setACL(t, o, "/simba/m", without(zk.PermRead))
		_, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "x", TTL: longLease, Waiter: w})
		mustBeMisconfigured(t, "ACQUIRE without the right to read", err, "no permission")
		setACL(t, o, "/simba/m", zk.WorldACL(zk.PermAll))
		if out := acquire(t, b, "m", "x", longLease); out.Status != simba.StatusQueued || out.Token != a.Token {
			t.Errorf("ACQUIRE after the repair: %+v; want queued behind a", out)
		}
		if ok, _, err := b.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "x"}); ok || err != nil {
			t.Errorf("RELEASE of the waiter: %v, %v; want false", ok, err)
		}
	}
}
