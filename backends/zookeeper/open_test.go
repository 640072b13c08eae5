package zookeeper

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

func TestOpenErrorsAreOneLine(t *testing.T) {
	srv := stores.ZooKeeper(t)
	c := raw(t, srv.Addr)
	must(t, c.AddAuth("digest", []byte("owner:secret")))
	for _, dir := range []string{"/private", "/taken"} {
		if _, err := c.Create(dir, nil, 0, zk.AuthACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer mute.Close()
	n := conformance.NewBroker()
	for name, test := range map[string]struct {
		o    Options
		want string
	}{
		"no servers":         {Options{Options: proxy.Options{Notices: n}}, "invalid zookeeper servers"},
		"an empty element":   {Options{Servers: "a:1,,b:2", Options: proxy.Options{Notices: n}}, "invalid zookeeper servers"},
		"an invalid port":    {Options{Servers: "a:x", Options: proxy.Options{Notices: n}}, `"a:x" is not host:port`},
		"a relative chroot":  {Options{Servers: srv.Addr + "/x/../y", Options: proxy.Options{Notices: n}}, "invalid path"},
		"another scheme":     {Options{Servers: srv.Addr, Auth: "sasl:x:secret", Options: proxy.Options{Notices: n}}, "invalid zookeeper auth"},
		"no password":        {Options{Servers: srv.Addr, Auth: "digest:x", Options: proxy.Options{Notices: n}}, "invalid zookeeper auth"},
		"no listener":        {Options{Servers: "127.0.0.1:1", Options: proxy.Options{Notices: n}}, "cannot connect"},
		"a silent server":    {Options{Servers: mute.Addr().String(), Options: proxy.Options{Notices: n}}, "opens no session"},
		"no chroot":          {Options{Servers: srv.Addr + "/missing", Options: proxy.Options{Notices: n}}, "the chroot /missing does not exist"},
		"no permission":      {Options{Servers: srv.Addr + "/private", Options: proxy.Options{Notices: n}}, "give --zookeeper-auth"},
		"the wrong password": {Options{Servers: srv.Addr + "/taken", Auth: "digest:owner:secrte", Options: proxy.Options{Notices: n}}, "check user and password"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.o.Timeout == 0 && (name == "no listener" || name == "a silent server") {
				// The servers of other cases may answer late on a busy machine.
				test.o.Timeout = time.Second
			}
			b, err := Open(context.Background(), test.o)
			if err == nil {
				b.Close()
				t.Fatal("Open succeeded, want an error")
			}
			if s := err.Error(); !strings.Contains(s, test.want) || strings.Contains(s, "\n") || strings.Contains(s, "secr") {
				t.Errorf("Open: %q; want one line that names the cause, without the password", s)
			}
		})
	}
}

func TestAuthProtectsTheNodes(t *testing.T) {
	srv := stores.ZooKeeper(t)
	b := open(t, Options{Servers: srv.Addr, Auth: "digest:simba:secret"})
	take(t, b, "m", "a", time.Minute)
	c := raw(t, srv.Addr)
	for _, path := range []string{"/simba", "/simba/m", "/simba-leases"} {
		if _, _, err := c.Children(path); err != zk.ErrNoAuth {
			t.Errorf("a client without the password lists %s: %v; want ErrNoAuth", path, err)
		}
	}
	must(t, c.AddAuth("digest", []byte("simba:secret")))
	if names, _, err := c.Children("/simba/m"); err != nil || len(names) != 1 {
		t.Errorf("the nodes that the user lists: %v, %v; want one", names, err)
	}
}

func TestChrootsSeparateMutexes(t *testing.T) {
	srv := stores.ZooKeeper(t)
	c := raw(t, srv.Addr)
	for _, dir := range []string{"/teams", "/teams/a"} {
		create(t, c, dir, "", 0)
	}
	top := open(t, Options{Servers: srv.Addr})
	team := open(t, Options{Servers: srv.Addr + "/teams/a/"})
	take(t, top, "m", "a", time.Minute)
	take(t, team, "m", "b", time.Minute)
	if names, _, err := c.Children("/teams/a/simba/m"); err != nil || len(names) != 1 {
		t.Errorf("the nodes of m below the chroot: %v, %v; want one", names, err)
	}
}
