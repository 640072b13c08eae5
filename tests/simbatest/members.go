package simbatest

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// MemberNames are the names of the members of a cluster, in order.
const MemberNames = "abc"

// NewMembers returns three members of a cluster that do not run yet, with further flags for each. reach
// returns the address by which member i reaches member j, which listens at addr; nil = addr.
func NewMembers(t stores.TB, reach func(i, j int, addr string) string, flags func(i int) []string) (all []*Server) {
	t.Helper()
	var addrs []string
	for range MemberNames {
		addrs = append(addrs, fmt.Sprintf("127.0.0.1:%d", stores.FreePort(t)))
	}
	for i := range MemberNames {
		var peers []string
		for j, addr := range addrs {
			if i != j && reach != nil {
				addr = reach(i, j, addr)
			}
			peers = append(peers, MemberNames[j:j+1]+"="+addr)
		}
		args := []string{"--cluster", strings.Join(peers, ","), "--cluster-name", MemberNames[i : i+1]}
		if flags != nil {
			args = append(args, flags(i)...)
		}
		all = append(all, New(t, args...))
	}
	return all
}

// Members starts three members of a cluster. The first one that it returns leads.
func Members(t stores.TB) (all []*Server) {
	t.Helper()
	all = NewMembers(t, nil, nil)
	for _, s := range all {
		s.Start()
	}
	leader := 0
	Await(t, "each member serves its clients", func() bool {
		leader = Leader(all)
		for _, s := range all {
			if Leader([]*Server{s}) < 0 {
				return false
			}
		}
		return leader >= 0
	})
	all[0], all[leader] = all[leader], all[0]
	return all
}

// SentinelMembers starts three members that answer clients of Sentinel, and returns the addresses for
// these.
func SentinelMembers(t stores.TB) (all []*Server, sentinels []string) {
	t.Helper()
	var addrs, announced []string
	for i := range MemberNames {
		addrs = append(addrs, fmt.Sprintf("127.0.0.1:%d", stores.FreePort(t)))
		sentinels = append(sentinels, fmt.Sprintf("127.0.0.1:%d", stores.FreePort(t)))
		announced = append(announced, MemberNames[i:i+1]+"="+addrs[i])
	}
	all = NewMembers(t, nil, func(i int) []string {
		return []string{"--addr", addrs[i], "--cluster-sentinel-addr", sentinels[i], "--cluster-announce", strings.Join(announced, ",")}
	})
	for i, s := range all {
		s.Addr = addrs[i]
		s.Start()
	}
	return all, sentinels
}

// Member returns the name of a server among the members of its cluster.
func (s *Server) Member() string { return s.args[slices.Index(s.args, "--cluster-name")+1] }

var leaderField = regexp.MustCompile(`(?m)^cluster_leader:(\w+)`)

// Leader returns the number in MemberNames of the leader, as the first of some members says that answers
// in time. It returns -1 if none does.
func Leader(members []*Server) int {
	for _, s := range members {
		c := goredis.NewClient(&goredis.Options{Addr: s.Addr, MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: time.Second})
		info, err := c.Info(context.Background(), "cluster").Result()
		c.Close()
		if match := leaderField.FindStringSubmatch(info); err == nil && match != nil {
			return strings.Index(MemberNames, match[1])
		}
	}
	return -1
}
