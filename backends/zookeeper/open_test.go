package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/backends/zookeeper"
)

func TestOpenErrorsAreOneLine(t *testing.T) {
	srv := stores.ZooKeeper(t)
	c := raw(t, srv.Addr)
	if err := c.AddAuth("digest", []byte("owner:secret")); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/private", "/taken"} {
		if _, err := c.Create(dir, nil, 0, zk.AuthACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	n := newRecordedNotices()
	for name, test := range map[string]struct {
		o    zookeeper.Options
		want string
	}{
		"no notices":         {zookeeper.Options{Servers: srv.Addr}, "notices are missing"},
		"no servers":         {zookeeper.Options{Notices: n}, "invalid zookeeper servers"},
		"an empty element":   {zookeeper.Options{Notices: n, Servers: "a:1,,b:2"}, "invalid zookeeper servers"},
		"an invalid port":    {zookeeper.Options{Notices: n, Servers: "a:x"}, `"a:x" is not host:port`},
		"a relative chroot":  {zookeeper.Options{Notices: n, Servers: "a:1/x/../y"}, "is relative"},
		"another scheme":     {zookeeper.Options{Notices: n, Servers: srv.Addr, Auth: "sasl:x:secret"}, "invalid zookeeper auth"},
		"no password":        {zookeeper.Options{Notices: n, Servers: srv.Addr, Auth: "digest:x"}, "invalid zookeeper auth"},
		"a negative timeout": {zookeeper.Options{Notices: n, Servers: srv.Addr, Timeout: -1}, "must not be negative"},
		"no listener":        {zookeeper.Options{Notices: n, Servers: "127.0.0.1:1"}, "cannot connect"},
		"a silent server":    {zookeeper.Options{Notices: n, Servers: mute.Addr().String()}, "opens no session within"},
		"no chroot":          {zookeeper.Options{Notices: n, Servers: srv.Addr + "/missing"}, "the chroot /missing does not exist"},
		"no permission":      {zookeeper.Options{Notices: n, Servers: srv.Addr + "/private"}, "give --zookeeper-auth"},
		"the wrong password": {zookeeper.Options{Notices: n, Servers: srv.Addr + "/taken", Auth: "digest:owner:secrte"}, "check user and password"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.o.Timeout == 0 && (name == "no listener" || name == "a silent server") {
				// The servers of other cases may answer late on a busy machine.
				test.o.Timeout = time.Second
			}
			b, err := zookeeper.Open(context.Background(), test.o)
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
	b := open(t, zookeeper.Options{Servers: srv.Addr, Auth: "digest:simba:secret"})
	take(t, b, "m", "a", time.Minute)
	c := raw(t, srv.Addr)
	for _, path := range []string{"/simba", "/simba/m", "/simba-leases"} {
		if _, _, err := c.Children(path); err != zk.ErrNoAuth {
			t.Errorf("a client without the password lists %s: %v; want ErrNoAuth", path, err)
		}
	}
	if err := c.AddAuth("digest", []byte("simba:secret")); err != nil {
		t.Fatal(err)
	}
	if names, _, err := c.Children("/simba/m"); err != nil || len(names) != 1 {
		t.Errorf("the nodes that the user lists: %v, %v; want one", names, err)
	}
}

func TestChrootsSeparateMutexes(t *testing.T) {
	srv := stores.ZooKeeper(t)
	c := raw(t, srv.Addr)
	for _, dir := range []string{"/teams", "/teams/a"} {
		if _, err := c.Create(dir, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	top := open(t, zookeeper.Options{Servers: srv.Addr})
	team := open(t, zookeeper.Options{Servers: srv.Addr + "/teams/a/"})
	take(t, top, "m", "a", time.Minute)
	take(t, team, "m", "b", time.Minute)
	if names, _, err := c.Children("/teams/a/simba/m"); err != nil || len(names) != 1 {
		t.Errorf("the nodes of m below the chroot: %v, %v; want one", names, err)
	}
}

func TestCloseEndsAllGoroutines(t *testing.T) {
	srv := stores.ZooKeeper(t)
	for _, held := range []bool{false, true} {
		before := goleak.IgnoreCurrent()
		b := open(t, zookeeper.Options{Servers: srv.Addr, SessionTimeout: 2 * time.Second})
		m := fmt.Sprint("held-", held)
		take(t, b, m, "a", time.Minute)
		ticket, _ := block(t, b, m, "b", time.Minute)
		if !held {
			giveUp(t, b, m, "a")
			giveUp(t, b, m, "b")
		}
		for range 2 {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := ticket.End(simba.EndWoken); !errors.Is(err, simba.ErrStopped) {
			t.Errorf("the end of a wait after Close: %v; want ErrStopped", err)
		}
		if _, _, err := b.Owner(context.Background(), m); !errors.Is(err, simba.ErrStopped) {
			t.Errorf("OWNER after Close: %v; want ErrStopped", err)
		}
		goleak.VerifyNone(t, before)
	}
}

func TestLeaseSurvivesCloseButWaitersDoNot(t *testing.T) {
	srv := stores.ZooKeeper(t)
	one := open(t, zookeeper.Options{Servers: srv.Addr, SessionTimeout: 8 * time.Second})
	two := open(t, zookeeper.Options{Servers: srv.Addr})
	a := take(t, one, "m", "a", 5*time.Second)
	block(t, one, "m", "b", time.Minute)
	one.Close()
	if o, _, err := two.Owner(context.Background(), "m"); err != nil || o.Owner != "a" || o.Token != a.Token {
		t.Errorf("OWNER at the other server: %+v, %v; want a with the same token", o, err)
	}
	if q, _, err := two.Queue(context.Background(), "m", 10); err != nil || len(q) != 0 {
		t.Errorf("QUEUE at the other server: %+v, %v; want nothing", q, err)
	}
}
