package redis

import (
	"errors"
	"log/slog"
	"math"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// migration moves the slot of a mutex to another master.
type migration struct {
	t        *testing.T
	from, to *redis.Client
	addr     string // of to
	ids      [2]string
	slot     int64
	keys     []string
}

func beginMigration(t *testing.T, cluster *stores.Cluster, mutex, to string) *migration {
	t.Helper()
	m := &migration{t: t, addr: to, keys: keysOf(mutex)}
	m.from = redis.NewClient(&redis.Options{Addr: cluster.Master(m.keys[0]).Addr})
	m.to = redis.NewClient(&redis.Options{Addr: to})
	t.Cleanup(func() { _ = m.from.Close(); _ = m.to.Close() })
	for i, c := range []*redis.Client{m.from, m.to} {
		m.ids[i] = m.do(c, "CLUSTER", "MYID").(string)
	}
	m.slot = m.do(m.from, "CLUSTER", "KEYSLOT", m.keys[0]).(int64)
	m.do(m.to, "CLUSTER", "SETSLOT", m.slot, "IMPORTING", m.ids[0])
	m.do(m.from, "CLUSTER", "SETSLOT", m.slot, "MIGRATING", m.ids[1])
	return m
}

func (m *migration) do(c *redis.Client, args ...any) any {
	m.t.Helper()
	reply, err := c.Do(m.t.Context(), args...).Result()
	if err != nil {
		m.t.Fatalf("%v: %v", args, err)
	}
	return reply
}

func (m *migration) move(keys ...string) {
	m.t.Helper()
	host, port, _ := net.SplitHostPort(m.addr)
	for _, key := range keys {
		m.do(m.from, "MIGRATE", host, port, key, 0, 5000)
	}
}

// end gives the slot to the other master.
func (m *migration) end() {
	m.t.Helper()
	m.move(m.keys[:]...)
	for _, c := range []*redis.Client{m.to, m.from} {
		m.do(c, "CLUSTER", "SETSLOT", m.slot, "NODE", m.ids[1])
	}
}

// ageRecord moves the beginning of the lease in the record, so that the lease has ended there.
func ageRecord(t *testing.T, c *redis.Client, tenure string) {
	t.Helper()
	const script = `local f = { cmsgpack.unpack(redis.call('GET', KEYS[1])) }
		f[4] = f[4] - 3600000
		return redis.call('SET', KEYS[1], cmsgpack.pack(unpack(f)))`
	must(t, c.Eval(t.Context(), script, []string{tenure}).Err())
}

// The slot moves to a node that has slots already, and to a node that has none.
func TestOwnersRenewWhileASlotOfTheClusterMoves(t *testing.T) {
	cluster := stores.RedisCluster(t)
	log, began := new(conformance.Log), time.Now()
	b := openSoon(t, Options{URL: "redis+cluster://" + strings.Join(cluster.Addrs, ","), Options: proxy.Options{Notices: noNotices{}, Logger: slog.New(slog.NewTextHandler(log, nil))}})
	defer b.Close()
	for mutex, to := range map[string]string{"m": other(cluster, "m"), "n": emptyNode(t, cluster)} {
		const lease = 10 * time.Minute
		o, _ := acquire(t, b, mutex, "a", lease, nil)
		waiter := newWaiter()
		_, ticket := acquire(t, b, mutex, "waiter", lease, waiter)
		m := beginMigration(t, cluster, mutex, to)
		ageRecord(t, m.from, m.keys[2])
		renewed := func(when string) {
			t.Helper()
			g, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: mutex, Contender: "a", TTL: lease, Token: o.Token})
			if err != nil || g.Status != simba.StatusRenewed || g.Token != o.Token {
				t.Errorf("%s: GUARD of the owner returns %+v, %v; want renewed with the token %d", when, g, err, o.Token)
			}
			r, _, err := b.Acquire(t.Context(), simba.AcquireRequest{Mutex: mutex, Contender: "a", TTL: lease})
			if err != nil || r.Status != simba.StatusRenewed || r.Token != o.Token {
				t.Errorf("%s: ACQUIRE of the owner returns %+v, %v; want renewed with the token %d", when, r, err, o.Token)
			}
		}
		for _, step := range []struct {
			name string
			keys []string
		}{
			{"before a key moves", nil}, {"the lock has moved", m.keys[:1]}, {"the token has moved", m.keys[6:]}, {"all keys have moved", m.keys[:]},
		} {
			m.move(step.keys...)
			renewed(step.name)
			for who, ask := range map[string]func() error{
				"another contender, which asks for a short lease": func() error {
					_, _, err := b.Acquire(t.Context(), simba.AcquireRequest{Mutex: mutex, Contender: "b", TTL: time.Millisecond})
					return err
				},
				"an old token": func() error {
					_, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: mutex, Contender: "a", TTL: lease, Token: o.Token - 1})
					return err
				},
			} {
				err := ask()
				if lost := (*simba.UnavailableError)(nil); !errors.As(err, &lost) || !strings.Contains(err.Error(), "redis-cli --cluster fix") {
					t.Errorf("%s: %s gets %v; want TRYAGAIN with the advice", step.name, who, err)
				}
			}
		}
		m.end()
		until(t, "the mutex is served again", func() bool { _, _, err := b.Owner(t.Context(), mutex); return err == nil })
		renewed("the slot has moved")
		if !release(t, b, mutex, "a") {
			t.Errorf("the owner of %s could not release it", mutex)
		}
		waiter.await(t)
		if g, err := ticket.End(simba.EndWoken); err != nil || g.Status != simba.StatusAcquired || g.Token <= o.Token {
			t.Errorf("the waiter gets %+v, %v; want acquired with a token above %d", g, err, o.Token)
		}
	}
	if n, most := log.Count("redis-cli --cluster fix"), 1+int(time.Since(began)/slotWarnings); n < 1 || n > most {
		t.Errorf("%d lines of the log name redis-cli --cluster fix; want 1 a minute", n)
	}
}

// The nodes tell each other of a moved slot, but the server learns of it by MOVED.
func TestRequestFollowsTheMasterThatMovedNames(t *testing.T) {
	cluster := stores.RedisCluster(t)
	b := openSoon(t, Options{URL: "redis+cluster://" + strings.Join(cluster.Addrs, ","), Options: proxy.Options{Notices: noNotices{}}})
	defer b.Close()
	fastest, moved := time.Duration(math.MaxInt64), 0
	for i := range 100 {
		if moved == 5 {
			break
		}
		mutex := strconv.Itoa(i)
		acquire(t, b, mutex, "a", time.Minute, nil) // the node knows the script
		release(t, b, mutex, "a")
		m := beginMigration(t, cluster, mutex, other(cluster, mutex))
		m.move(m.keys...)
		before := movedErrors(t, m.from)
		m.end()
		began := time.Now()
		acquire(t, b, mutex, "a", time.Minute, nil)
		if took := time.Since(began); movedErrors(t, m.from) > before { // else the server knew the new master
			fastest = min(fastest, took)
			moved++
		}
	}
	if moved == 0 || fastest >= redialPause {
		t.Errorf("the fastest of %d requests after MOVED took %v; want one without the pause of %v", moved, fastest, redialPause)
	}
}

// movedErrors returns how many requests a node has answered by MOVED.
func movedErrors(t *testing.T, c *redis.Client) int {
	t.Helper()
	info, err := c.InfoMap(t.Context(), "errorstats").Result()
	must(t, err)
	for _, fields := range info {
		if text, ok := strings.CutPrefix(fields["errorstat_MOVED"], "count="); ok {
			n, err := strconv.Atoi(text)
			must(t, err)
			return n
		}
	}
	return 0
}

// emptyNode adds a master without slots to the cluster.
func emptyNode(t *testing.T, cluster *stores.Cluster) string {
	t.Helper()
	s := stores.Redis(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "1000")
	c, first := redis.NewClient(&redis.Options{Addr: s.Addr}), redis.NewClient(&redis.Options{Addr: cluster.Addrs[0]})
	defer c.Close()
	defer first.Close()
	host, port, _ := net.SplitHostPort(s.Addr)
	must(t, first.ClusterMeet(t.Context(), host, port).Err())
	for _, addr := range cluster.Addrs {
		until(t, "all nodes know each other", func() bool {
			n := redis.NewClient(&redis.Options{Addr: addr})
			defer n.Close()
			return strings.Contains(n.ClusterNodes(t.Context()).Val(), ":"+port+"@") &&
				strings.Contains(c.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
		})
	}
	return s.Addr
}

// other returns the address of a master that does not have the slot of a mutex.
func other(cluster *stores.Cluster, mutex string) string {
	from := cluster.Master(keysOf(mutex)[0]).Addr
	for _, addr := range cluster.Addrs[:3] {
		if addr != from {
			return addr
		}
	}
	return ""
}

// keysOf returns the keys of a mutex.
func keysOf(mutex string) (keys []string) {
	for _, suffix := range suffixes {
		keys = append(keys, simba.MutexChannel(mutex)+suffix)
	}
	return keys
}
