package zookeeper

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

// patience is how long a test waits for an event that must happen.
const patience = need.Hang

var ctx = context.Background()

// longLease is the longest lease of the default session timeout.
const longLease = DefaultSessionTimeout / 2

// The calls that every test uses.
var (
	take      = conformance.Take
	giveUp    = conformance.Release
	block     = conformance.Block
	renew     = conformance.Renew
	await     = need.Await
	newBroker = conformance.NewBroker
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func guardOf(mutex, contender string, ttl time.Duration) simba.GuardRequest {
	return simba.GuardRequest{Mutex: mutex, Contender: contender, TTL: ttl}
}

// apart starts a ZooKeeper and two servers. A link leads from the far one to the ZooKeeper.
func apart(t testing.TB, far, near Options) (srv *stores.Server, link *stores.Link, _, _ *Backend) {
	t.Helper()
	srv = stores.ZooKeeper(t)
	link = stores.NewLink(t, srv.Addr)
	far.Servers, near.Servers = link.Addr(), srv.Addr
	return srv, link, open(t, far), open(t, near)
}

// subscribe tells a server of a subscription of one of its clients.
func subscribe(t testing.TB, b *Backend, channel string) {
	t.Helper()
	_, err := b.Subscribed(ctx, channel, strings.HasSuffix(channel, "*"))
	must(t, err)
}

// ownerAgain waits until a server is connected again, and returns the tenure.
func ownerAgain(t testing.TB, b *Backend, mutex string) (o simba.Tenure) {
	t.Helper()
	await(t, "the server is back", func() (ok bool) {
		var err error
		o, _, err = b.Owner(ctx, mutex)
		return err == nil
	})
	return o
}

func open(t testing.TB, o Options) *Backend {
	t.Helper()
	if o.Notices == nil {
		o.Notices = conformance.NewBroker()
	}
	b := openSoon(t, o)
	t.Cleanup(func() { b.Close() })
	return b
}

func openSoon(t testing.TB, o Options) *Backend {
	t.Helper()
	return conformance.OpenSoon(t, func() (*Backend, error) { return Open(ctx, o) })
}

func acquire(t testing.TB, b *Backend, mutex, contender string, ttl time.Duration) simba.Outcome {
	t.Helper()
	out, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: ttl})
	if err != nil {
		t.Fatalf("ACQUIRE of %s for %s: %v", contender, mutex, err)
	}
	return out
}

func unavailable(t testing.TB, err error) {
	t.Helper()
	var u *simba.UnavailableError
	if !errors.As(err, &u) || u.Engine != "zookeeper" {
		t.Errorf("the error is %v; want an UnavailableError of zookeeper", err)
	}
}

// leases returns the lease nodes, without the markers and inboxes of sessions next to them.
func leases(t testing.TB, c *zk.Conn) []string {
	t.Helper()
	names, _, err := c.Children("/simba-leases")
	must(t, err)
	return slices.DeleteFunc(names, func(name string) bool {
		return strings.HasPrefix(name, "session-") || strings.HasPrefix(name, "inbox-")
	})
}

type silentLogger struct{}

func (silentLogger) Printf(string, ...any) {}

// raw connects to the ensemble without the engine.
func raw(t testing.TB, addr string) *zk.Conn {
	t.Helper()
	c, _, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogger(silentLogger{}))
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

func create(t testing.TB, c *zk.Conn, path, data string, flags int32) {
	t.Helper()
	_, err := c.Create(path, []byte(data), flags, zk.WorldACL(zk.PermAll))
	must(t, err)
}
