package zookeeper

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// awaitFault cuts the connections, so that the server checks the ensemble, until the check has, or
// no longer has, a fault.
func awaitFault(t *testing.T, b *Backend, l *stores.Link, setting string, want bool) {
	t.Helper()
	l.Reset()
	await(t, fmt.Sprintf("the check has the fault %s: %v", setting, want), func() bool {
		return want == slices.ContainsFunc(b.Faults(), func(f proxy.Fault) bool { return f.Setting == setting })
	})
}

func TestMissingRightIsFoundAtANewConnection(t *testing.T) {
	srv := stores.ZooKeeper(t)
	link, log := stores.NewLink(t, srv.Addr), new(conformance.Log)
	b := open(t, Options{Servers: link.Addr(), Options: proxy.Options{Timeout: patience, Logger: slog.New(slog.NewTextHandler(log, nil))}})
	a := take(t, b, "m", "a", time.Minute)
	o := operator(t, srv.Addr)
	paths := []string{"/", "/simba", "/simba/m", "/simba-leases"}
	for _, path := range paths {
		setACL(t, o, path, without(zk.PermCreate))
	}
	awaitFault(t, b, link, "acl", true)
	_, err := ask(b, "m", "b")
	mustBeMisconfigured(t, "ACQUIRE of b", err, "/simba-leases")
	_, err = ask(b, "new", "b")
	mustBeMisconfigured(t, "ACQUIRE of b for another mutex", err, "/simba-leases")
	mustRenewByAllCommands(t, b, b, a) // another server creates a request node
	awaitFault(t, b, link, "acl", true)
	if n := log.Count("level=ERROR"); n != 1 || log.Count("setting=acl") != 1 {
		t.Errorf("the log has %d errors, want one that names the setting acl", n)
	}
	for _, path := range paths {
		setACL(t, o, path, zk.WorldACL(zk.PermAll))
	}
	awaitFault(t, b, link, "acl", false)
	if _, err := ask(b, "m2", "b"); err != nil {
		t.Errorf("ACQUIRE after the repair: %v; want acquired", err)
	}
}

func TestShorterSessionTimeoutIsAFault(t *testing.T) {
	srv := stores.ZooKeeper(t, "maxSessionTimeout=5000")
	link := stores.NewLink(t, srv.Addr)
	b := open(t, Options{Servers: link.Addr(), Options: proxy.Options{Timeout: patience}})
	awaitFault(t, b, link, "maxSessionTimeout", true)
}
