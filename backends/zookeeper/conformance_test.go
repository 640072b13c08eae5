package zookeeper

import (
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

const (
	suiteTimeout = time.Second
	// outageSession is the session timeout of servers whose sessions may end in an outage. Other
	// servers have the default, so that each can renew the leases of another.
	outageSession = 8 * time.Second
)

func opener(servers string) conformance.Opener {
	return func(t testing.TB, n simba.Notices, timeout time.Duration) conformance.Backend {
		t.Helper()
		o := Options{Servers: servers, Options: proxy.Options{Notices: n, Timeout: timeout}}
		if timeout == suiteTimeout {
			o.SessionTimeout = outageSession
		}
		return openSoon(t, o)
	}
}

func TestConformance(t *testing.T) {
	srv := stores.ZooKeeper(t)
	link := stores.NewLink(t, srv.Addr)
	conformance.Run(t, conformance.Engine{
		Name: "zookeeper", Open: opener(link.Addr()), Direct: opener(srv.Addr), Link: link,
		Shared: true, Timeout: suiteTimeout,
		Harm: func(t testing.TB, mutex string) func() {
			o := operator(t, srv.Addr)
			setACL(t, o, "/simba/"+mutex, otherUsersACL)
			return func() { freeACL(t, o, "/simba/"+mutex) }
		},
	})
}

func TestConformanceOfAnEnsemble(t *testing.T) {
	e := stores.ZooKeeperEnsemble(t, 3)
	conformance.Run(t, conformance.Engine{
		Name: "zookeeper-ensemble", Open: opener(e.Connect()), Shared: true, Timeout: suiteTimeout,
	})
}

// When the ensemble elects a new leader, the sessions and their leases live on.
func TestKillingTheLeaderNeverMakesTwoOwners(t *testing.T) {
	e := stores.ZooKeeperEnsemble(t, 3)
	conformance.Hammer(t, conformance.Engine{
		Name: "zookeeper-ensemble", Open: opener(e.Connect()), Shared: true, Timeout: suiteTimeout,
	}, 12*time.Second, 4*time.Second, func() {
		if leader := e.Leader(); leader != nil {
			leader.Kill()
			leader.Start()
		}
	})
}
