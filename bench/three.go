package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

const (
	simbaThree     = "simba-resp ×3"
	simbaFollower  = "simba-resp ×3, through a follower"
	zooKeeperThree = "ZooKeeper ×3"
	etcdThree      = "etcd ×3"
)

// threes are the subjects that keep the mutexes on three servers. Each syncs before it replies.
// Clients are connected to the leader, so that no request needs a hop.
var threes = []subject{
	{name: simbaThree, about: "`--cluster` with three members", start: func(tb *testbed) (*site, error) {
		m := startMembers(tb)
		return m.site(m.leader(), m.leader()), nil
	}},
	{name: simbaFollower, about: "the same, but clients connect to a follower", start: func(tb *testbed) (*site, error) {
		m := startMembers(tb)
		leader := m.leader()
		return m.site(leader, m.other(leader)), nil
	}},
	{name: zooKeeperThree, about: "three servers, the lock recipe of Curator's latch", start: func(tb *testbed) (*site, error) {
		e := stores.SyncingEnsemble(tb, 3)
		leader := e.Leader()
		if leader == nil {
			tb.Fatal("no ZooKeeper leads")
		}
		return storeSite(toZooKeeper, leader, e.Servers), nil
	}},
	{name: etcdThree, about: "three members, the lock of its Go client", start: func(tb *testbed) (*site, error) {
		all := stores.EtcdCluster(tb, 3)
		return storeSite(toEtcd, etcdLeader(tb, all), all), nil
	}},
}

// threeClients is how many clients want one mutex of three servers.
const threeClients = 16

// threeComparisons returns the comparisons of three servers in a round.
func threeComparisons(round int) (all []comparison) {
	var names []string
	for _, s := range orderOf(round, threes) {
		names = append(names, s.name)
	}
	for _, l := range []load{{clients: 1}, {clients: manyClients}, {clients: threeClients, hot: true}} {
		all = append(all, comparison{l, names})
	}
	return all
}

func storeSite(to func(addr string) connector, leader *stores.Server, all []*stores.Server) *site {
	p := processes{store: leader.Pid()}
	for _, s := range all {
		if s != leader {
			p.others = append(p.others, s.Pid())
		}
	}
	return &site{connect: to(leader.Addr), processes: p}
}

// members are the three servers of a simba-resp cluster. They implement ensemble.
type members struct {
	tb      *testbed
	all     []*simbatest.Server
	leading *simbatest.Server // at the last restore
}

func startMembers(tb *testbed) *members {
	var names, peers []string
	for _, name := range []string{"a", "b", "c"} {
		names = append(names, name)
		peers = append(peers, fmt.Sprintf("%s=127.0.0.1:%d", name, stores.FreePort(tb)))
	}
	m := &members{tb: tb}
	for _, name := range names {
		s := simbatest.New(tb, "--maxclients", "20000", "--cluster", strings.Join(peers, ","), "--cluster-name", name)
		if tb.program != "" {
			s.Command = []string{tb.program}
		}
		s.Start()
		m.all = append(m.all, s)
	}
	return m
}

func (m *members) site(leader, at *simbatest.Server) *site {
	p := processes{server: leader.Pid()}
	for _, s := range m.all {
		if s != leader {
			p.others = append(p.others, s.Pid())
		}
	}
	return &site{connect: toSimba(at.Addr), addr: at.Addr, program: m.tb.program, processes: p}
}

// other returns a member that does not lead.
func (m *members) other(leader *simbatest.Server) *simbatest.Server {
	return m.all[(slices.Index(m.all, leader)+1)%len(m.all)]
}

var (
	leads    = regexp.MustCompile(`cluster_leader:([abc])\r\n`)
	caughtUp = regexp.MustCompile(`state=voter,reached=1,lag=\d{1,2}\r\n`)
)

// leader waits until all members have the same leader and nearly all records, and returns the leader.
func (m *members) leader() *simbatest.Server {
	var last string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		same := make(map[string]bool)
		for _, s := range m.all {
			last = info(s.Addr)
			if match := leads.FindStringSubmatch(last); match != nil && len(caughtUp.FindAllString(last, -1)) == len(m.all) {
				same[match[1]] = true
			} else {
				same[""] = true
			}
		}
		if len(same) == 1 && !same[""] {
			for name := range same {
				return m.all[name[0]-'a']
			}
		}
	}
	m.tb.Fatalf("the members have no common leader: %s", last)
	return nil
}

// info returns the state of a cluster as one of its members tells it, or why it does not.
func info(addr string) string {
	w, err := dial(addr, time.Second)
	if err != nil {
		return err.Error()
	}
	defer w.close()
	got, err := w.ask(frame("INFO", "cluster"))
	if err != nil {
		return err.Error()
	}
	return string(got[0])
}

func etcdLeader(tb *testbed, all []*stores.Server) *stores.Server {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, s := range all {
			if id, leader, err := etcdStatus(s.Addr); err == nil && id == leader {
				return s
			}
		}
	}
	tb.Fatal("no etcd leads")
	return nil
}

// etcdStatus returns the id of the member at an address, and that of the leader.
func etcdStatus(addr string) (id, leader uint64, err error) {
	client, err := newEtcd(addr)
	if err != nil {
		return 0, 0, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s, err := client.Status(ctx, addr)
	if err != nil {
		return 0, 0, err
	}
	return s.Header.MemberId, s.Leader, nil
}
