package chaos

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// The engine cluster has three members of a cluster, on one machine. A member reaches each other one
// through a link of its own, so a fault can hit one direction between two members. The clock of one
// member alone cannot be changed.

// cluster has the members of a world, in the order of world.servers.
type cluster struct {
	t       *testing.T
	servers []*simbatest.Server
	dirs    []string
	links   [][]*stores.Link // the connections that member i opens to member j are those of links[i][j]
}

// member is the process of a member, which must not end by itself.
type member struct {
	*simbatest.Server
	t *testing.T
}

func (m member) Kill() {
	select {
	case <-m.Exited():
		m.t.Errorf("a member has ended by itself:\n%s", m.Log())
	default:
	}
	m.Server.Kill()
}

func openCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t}
	for range simbatest.MemberNames {
		c.dirs = append(c.dirs, memory(t))
		c.links = append(c.links, make([]*stores.Link, len(simbatest.MemberNames)))
	}
	c.servers = simbatest.NewMembers(t, func(i, j int, addr string) string {
		c.links[i][j] = stores.NewLink(t, addr)
		return c.links[i][j].Addr()
	}, func(i int) []string { return []string{"--data-dir", c.dirs[i] + "/data", "--history", "1000000"} })
	for _, s := range c.servers {
		s.Start()
	}
	c.awaitLeader()
	return c
}

func (c *cluster) awaitLeader() (leader int) {
	c.t.Helper()
	simbatest.Await(c.t, "a member leads", func() bool { leader = simbatest.Leader(c.servers); return leader >= 0 })
	return leader
}

// awaitOther waits until another member than the former leader leads.
func (c *cluster) awaitOther(former int) (leader int) {
	c.t.Helper()
	var rest []*simbatest.Server
	for _, i := range c.others(former) {
		rest = append(rest, c.servers[i])
	}
	simbatest.Await(c.t, "another member leads", func() bool {
		leader = simbatest.Leader(rest)
		return leader >= 0 && leader != former
	})
	return leader
}

// probes is how many clients ask a former leader in one fault.
const probes = 20

// probe connects clients to the leader. When another member leads, ask acquires mutexes there, and then
// these clients ask the former leader who owns them. It may reply, but not that nobody does. The caller
// calls judge when the former leader is reachable again.
func (c *cluster) probe(leader int) (ask, judge func()) {
	c.t.Helper()
	var conns []redis.Conn
	for range probes {
		conn, err := redis.Dial("tcp", c.servers[leader].Addr, redis.DialReadTimeout(replyTimeout))
		simbatest.Must(c.t, err)
		_, _ = conn.Do("PING") // so that a member passes the connection on, or serves it
		conns = append(conns, conn)
	}
	var clients sync.WaitGroup
	ask = func() {
		other, err := redis.Dial("tcp", c.servers[c.awaitOther(leader)].Addr, redis.DialReadTimeout(replyTimeout))
		if err != nil {
			return // the leader has changed again
		}
		defer other.Close()
		for i, conn := range conns {
			mutex := fmt.Sprintf("probe-%d-%d", now(), i)
			if r, err := simbatest.ToRecord(other.Do("SIMBA.ACQUIRE", mutex, "probe", 60_000)); err != nil || r["status"] != "acquired" {
				continue
			}
			_ = conn.Send("SIMBA.OWNER", mutex)
			if conn.Flush() != nil {
				continue
			}
			clients.Go(func() {
				if reply, err := conn.Receive(); err == nil && reply == nil {
					c.t.Errorf("the former leader %d replies that nobody owns %s, which another leader has granted before", leader, mutex)
				}
			})
		}
	}
	return ask, func() {
		clients.Wait()
		for _, conn := range conns {
			conn.Close()
		}
	}
}

func (c *cluster) others(member int) (all []int) {
	for i := range c.servers {
		if i != member {
			all = append(all, i)
		}
	}
	return all
}

// from returns the links that a member has opened, and to returns those that lead to it.
func (c *cluster) from(member int) (all []*stores.Link) {
	for _, i := range c.others(member) {
		all = append(all, c.links[member][i])
	}
	return all
}

func (c *cluster) to(member int) (all []*stores.Link) {
	for _, i := range c.others(member) {
		all = append(all, c.links[i][member])
	}
	return all
}

func (c *cluster) around(member int) []*stores.Link { return append(c.from(member), c.to(member)...) }

// command sends SIMBA.CLUSTER to the leader. It may fail, since the leader may change meanwhile.
func (c *cluster) command(args ...any) {
	conn, err := redis.Dial("tcp", c.servers[c.awaitLeader()].Addr, redis.DialReadTimeout(replyTimeout))
	if err != nil {
		return
	}
	defer conn.Close()
	if reply, err := conn.Do("SIMBA.CLUSTER", args...); err != nil {
		c.t.Logf("SIMBA.CLUSTER %v: %v, %v", args, reply, err)
	}
}

// lose replaces a member by one with an empty directory.
func (c *cluster) lose(member int, pause time.Duration) {
	c.t.Helper()
	c.servers[member].Kill()
	simbatest.Must(c.t, os.RemoveAll(c.dirs[member]+"/data"))
	time.Sleep(pause)
	c.servers[member].Start()
}

// fill fills the disk of a member for a while, with a file system of its own for the data directory.
func (c *cluster) fill(member int, length time.Duration) {
	c.t.Helper()
	s, dir := c.servers[member], c.dirs[member]+"/data"
	s.Kill()
	disk := c.dirs[member] + "/disk"
	simbatest.Must(c.t, os.MkdirAll(disk, 0o755))
	simbatest.Must(c.t, unix.Mount("tmpfs", disk, "tmpfs", 0, "size=256m"))
	defer func() {
		simbatest.Must(c.t, os.Remove(dir))
		simbatest.Must(c.t, os.CopyFS(dir, os.DirFS(disk+"/data")))
		simbatest.Must(c.t, unix.Unmount(disk, unix.MNT_DETACH))
		s.Start()
	}()
	simbatest.Must(c.t, os.CopyFS(disk+"/data", os.DirFS(dir)))
	simbatest.Must(c.t, os.RemoveAll(dir))
	simbatest.Must(c.t, os.Symlink(disk+"/data", dir))
	s.Start()
	time.Sleep(length / 2)
	c.occupy(filepath.Join(disk, "ballast"))
	c.writeUntilItEnds(s)
	simbatest.Must(c.t, os.Remove(filepath.Join(disk, "ballast")))
}

// writeUntilItEnds makes the leader write, until a member whose disk is full has ended. The journal has
// some megabytes of free space in its files.
func (c *cluster) writeUntilItEnds(s *simbatest.Server) {
	c.t.Helper()
	name := strings.Repeat("x", 100)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		conn, err := redis.Dial("tcp", c.servers[c.awaitLeader()].Addr, redis.DialReadTimeout(replyTimeout))
		for i := 0; err == nil; i++ {
			_ = conn.Send("SIMBA.ACQUIRE", fmt.Sprintf("fill-%d-%s", i, name), name, 1000)
			if i%500 == 0 {
				_, err = conn.Do("") // receives all replies
			}
			select {
			case <-s.Exited():
				conn.Close()
				return
			default:
			}
		}
		if conn != nil {
			conn.Close()
		}
	}
	c.t.Errorf("a member with a full disk has not ended within %v", patience)
}

// occupy writes a file until the file system is full.
func (c *cluster) occupy(path string) {
	f, err := os.Create(path)
	simbatest.Must(c.t, err)
	defer f.Close()
	for part := make([]byte, 64<<10); len(part) > 0; {
		if _, err := f.Write(part); err != nil {
			part = part[:len(part)/2]
		}
	}
}

func blackholedAll(links []*stores.Link, length time.Duration, meanwhile ...func()) {
	for _, l := range links {
		l.Blackhole()
		defer l.Heal()
	}
	for _, do := range meanwhile {
		do()
	}
	time.Sleep(length)
}

// memberFaults are the faults of the engine cluster alone.
var memberFaults = []fault{
	{name: "leader killed", ofLeader: true, inject: onLeader(func(w *world, leader int, length time.Duration, _ *rand.Rand) {
		w.servers[leader].Kill()
		time.Sleep(length)
		w.servers[leader].Start()
	})},
	{name: "leader killed, back at once", ofLeader: true, inject: onLeader(func(w *world, leader int, _ time.Duration, _ *rand.Rand) {
		w.servers[leader].Kill()
		w.servers[leader].Start()
	})},
	{name: "each member killed in turn", ofLeader: true, inject: onLeader(func(w *world, leader int, length time.Duration, rng *rand.Rand) {
		for _, i := range rng.Perm(len(w.servers)) {
			w.servers[i].Kill()
			time.Sleep(length / 4)
			w.servers[i].Start()
			time.Sleep(time.Duration(rng.Int64N(int64(length))))
		}
	})},
	{name: "all members killed", ofLeader: true, inject: onLeader(func(w *world, _ int, length time.Duration, rng *rand.Rand) {
		for _, s := range w.servers {
			s.Kill()
		}
		time.Sleep(length / 4)
		for _, i := range rng.Perm(len(w.servers)) {
			w.servers[i].Start()
		}
	})},
	{name: "both followers killed", ofLeader: true, inject: onLeader(func(w *world, leader int, length time.Duration, _ *rand.Rand) {
		for _, i := range w.cluster.others(leader) {
			w.servers[i].Kill()
			defer w.servers[i].Start()
		}
		time.Sleep(2 * length)
	})},
	{name: "leader stopped", ofLeader: true, inject: onLeader(func(w *world, leader int, length time.Duration, rng *rand.Rand) {
		if *duration > 0 { // from 1 to 60 s
			length = time.Duration(float64(time.Second) * math.Pow(60, rng.Float64()))
		}
		stopped(w.servers[leader], length)
	})},
	{name: "leader stopped until another one leads", ofLeader: true, inject: onLeader(func(w *world, leader int, _ time.Duration, rng *rand.Rand) {
		ask, judge := w.cluster.probe(leader)
		defer judge()
		w.servers[leader].Pause()
		defer w.servers[leader].Resume()
		ask()
		time.Sleep(time.Duration(rng.Int64N(int64(300 * time.Millisecond)))) // clients still wait for a reply
	})},
	{name: "a follower stopped", ofLeader: true, inject: onLeader(func(w *world, leader int, length time.Duration, rng *rand.Rand) {
		stopped(w.servers[w.cluster.others(leader)[rng.IntN(2)]], 2*length)
	})},
	{name: "both followers stopped", ofLeader: true, inject: onLeader(func(w *world, leader int, length time.Duration, _ *rand.Rand) {
		for _, i := range w.cluster.others(leader) {
			w.servers[i].Pause()
			defer w.servers[i].Resume()
		}
		time.Sleep(2 * length)
	})},
	{name: "all members stopped", ofLeader: true, inject: onLeader(func(w *world, _ int, length time.Duration, _ *rand.Rand) {
		for _, s := range w.servers {
			s.Pause()
			defer s.Resume()
		}
		time.Sleep(length)
	})},
	{name: "leader cut off", ofLeader: true, inject: onLeader(func(w *world, leader int, length time.Duration, _ *rand.Rand) {
		ask, judge := w.cluster.probe(leader)
		defer judge()
		blackholedAll(w.cluster.around(leader), 3*length, ask)
	})},
	{name: "a follower cut off", ofLeader: true, inject: onLeader(func(w *world, leader int, length time.Duration, rng *rand.Rand) {
		blackholedAll(w.cluster.around(w.cluster.others(leader)[rng.IntN(2)]), 3*length)
	})},
	{name: "nothing of the leader arrives", ofLeader: true, inject: onLeader(func(w *world, leader int, length time.Duration, _ *rand.Rand) {
		ask, judge := w.cluster.probe(leader)
		defer judge()
		blackholedAll(w.cluster.from(leader), 3*length, ask)
	})},
	{name: "nothing arrives at the leader", ofLeader: true, inject: onLeader(func(w *world, leader int, length time.Duration, _ *rand.Rand) {
		blackholedAll(w.cluster.to(leader), 3*length)
	})},
	{name: "the leader and one follower apart", ofLeader: true, inject: onLeader(func(w *world, leader int, length time.Duration, rng *rand.Rand) {
		i := w.cluster.others(leader)[rng.IntN(2)]
		blackholedAll([]*stores.Link{w.cluster.links[leader][i], w.cluster.links[i][leader]}, 3*length)
	})},
	{name: "connections of members reset", ofLeader: true, inject: onLeader(func(w *world, leader int, length time.Duration, _ *rand.Rand) {
		for range 3 {
			for _, l := range w.cluster.around(leader) {
				l.Reset()
			}
			time.Sleep(length / 3)
		}
	})},
	{name: "members hear late", ofLeader: true, inject: onLeader(func(w *world, leader int, length time.Duration, rng *rand.Rand) {
		for _, l := range w.cluster.around(leader) {
			l.Delay(time.Duration(rng.Int64N(int64(300 * time.Millisecond))))
			defer l.Heal()
		}
		time.Sleep(3 * length)
	})},
	{name: "members hear seconds late", ofLeader: true, inject: onLeader(func(w *world, leader int, length time.Duration, rng *rand.Rand) {
		for _, l := range w.cluster.around(leader) {
			l.Delay(time.Second + time.Duration(rng.Int64N(int64(2*time.Second))))
			defer l.Heal()
		}
		time.Sleep(4 * length)
	})},
	{name: "leader restarted in order", ofLeader: true, inject: onLeader(func(w *world, leader int, _ time.Duration, _ *rand.Rand) {
		w.cluster.servers[leader].Stop()
		w.servers[leader].Start()
	})},
	{name: "all members restarted in order", ofLeader: true, inject: onLeader(func(w *world, _ int, length time.Duration, _ *rand.Rand) {
		for _, s := range w.cluster.servers {
			s.Stop()
			time.Sleep(length / 4)
			s.Start()
			w.cluster.awaitLeader()
		}
	})},
	{name: "leadership handed over", ofLeader: true, inject: onLeader(func(w *world, _ int, length time.Duration, rng *rand.Rand) {
		for range 3 {
			w.cluster.command("TRANSFER")
			time.Sleep(time.Duration(rng.Int64N(int64(length))))
		}
	})},
	{name: "a follower removed, and back with an empty disk", ofLeader: true, inject: onLeader(func(w *world, leader int, length time.Duration, rng *rand.Rand) {
		i := w.cluster.others(leader)[rng.IntN(2)]
		w.cluster.command("REMOVE", simbatest.MemberNames[i:i+1])
		w.cluster.lose(i, length)
	})},
	{name: "disk of a follower lost", ofLeader: true, inject: onLeader(func(w *world, leader int, length time.Duration, rng *rand.Rand) {
		w.cluster.lose(w.cluster.others(leader)[rng.IntN(2)], length)
	})},
	{name: "disk of the leader lost", ofLeader: true, inject: onLeader(func(w *world, leader int, length time.Duration, _ *rand.Rand) {
		w.cluster.lose(leader, length)
	})},
	{name: "disk of a follower full", asRoot: true, ofLeader: true, inject: onLeader(func(w *world, leader int, length time.Duration, rng *rand.Rand) {
		w.cluster.fill(w.cluster.others(leader)[rng.IntN(2)], length)
	})},
	{name: "disk of the leader full", asRoot: true, ofLeader: true, inject: onLeader(func(w *world, leader int, length time.Duration, rng *rand.Rand) {
		w.cluster.fill(leader, length)
	})},
}

// onLeader returns the function inject of a fault that depends on who leads.
func onLeader(inject func(w *world, leader int, length time.Duration, rng *rand.Rand)) func(*world, int, time.Duration, *rand.Rand) []int {
	return func(w *world, _ int, length time.Duration, rng *rand.Rand) []int {
		inject(w, w.cluster.awaitLeader(), length, rng)
		return nil
	}
}
