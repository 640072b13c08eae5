// Package members tests what clients see of a cluster of three members, each of them at the address of
// a follower too.
package members

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/need"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }

// retried sends a command until a member that leads replies.
func retried(t *testing.T, s *simbatest.Server, command string, args ...any) simbatest.Record {
	t.Helper()
	var r simbatest.Record
	simbatest.Await(t, command+" gets a reply", func() bool {
		c, err := redis.Dial("tcp", s.Addr, redis.DialReadTimeout(5*time.Second))
		if err != nil {
			return false
		}
		defer c.Close()
		r, err = simbatest.ToRecord(c.Do(command, args...))
		return err == nil
	})
	return r
}

func TestOwnerMayAskThroughAnyMember(t *testing.T) {
	t.Parallel()
	all := simbatest.Members(t)
	var conns []redis.Conn
	for _, s := range all {
		conns = append(conns, simbatest.Conn(t, s))
	}
	token := simbatest.DoRecord(t, conns[1], "SIMBA.ACQUIRE", "job", "alice", 60_000)["token"]
	for i, c := range conns {
		for _, r := range []simbatest.Record{
			simbatest.DoRecord(t, c, "SIMBA.GUARD", "job", "alice", 60_000, "TOKEN", token),
			simbatest.DoRecord(t, c, "SIMBA.ACQUIRE", "job", "alice", 60_000),
		} {
			if r["status"] != "renewed" || r["token"] != token {
				t.Errorf("the owner asks through member %d: %v, want renewed with token %v", i, r, token)
			}
		}
		if r := simbatest.DoRecord(t, c, "SIMBA.ACQUIRE", "job", "bob", 60_000, "NOQUEUE"); r["status"] != "busy" || r["token"] != token {
			t.Errorf("another contender asks through member %d: %v, want busy with token %v", i, r, token)
		}
	}
	simbatest.DoOne(t, conns[2], "SIMBA.RELEASE", "job", "alice", "TOKEN", token)
	if r := simbatest.DoRecord(t, conns[1], "SIMBA.ACQUIRE", "job", "bob", 60_000); r["status"] != "acquired" || r.Number("token") <= token.(int64) {
		t.Errorf("the next owner gets %v, want acquired with a token above %v", r, token)
	}
}

func TestWaitersOfAllMembersStandInOneQueue(t *testing.T) {
	t.Parallel()
	all := simbatest.Members(t)
	c := simbatest.Conn(t, all[2])
	simbatest.DoRecord(t, c, "SIMBA.ACQUIRE", "job", "alice", 600_000)
	var waiters []*simbatest.Waiter
	names := []string{"b", "c", "d", "e"}
	for i, name := range names {
		waiters = append(waiters, simbatest.Wait(t, all[(i+1)%3], "job", name))
	}
	for i, s := range all {
		queue, err := redis.Values(simbatest.Conn(t, s).Do("SIMBA.QUEUE", "job"))
		simbatest.Must(t, err)
		var got []string
		for _, entry := range queue {
			r, err := simbatest.ToRecord(entry, nil)
			simbatest.Must(t, err)
			got = append(got, r.Text("contender"))
		}
		if !slices.Equal(got, names) {
			t.Errorf("QUEUE at member %d: %v, want %v", i, got, names)
		}
	}
	// The waiter reconnects to another member.
	waiters[1].Conn.Close()
	simbatest.AwaitBlocked(t, all[0].Addr, len(names)-1)
	waiters[1] = simbatest.Wait(t, all[0], "job", "c")

	last := int64(0)
	for i, owner := range append([]string{"alice"}, names...) {
		if i > 0 {
			token := waiters[i-1].Granted(t)
			if token <= last {
				t.Errorf("%s gets token %d after %d", owner, token, last)
			}
			last = token
		}
		for _, w := range waiters[i:] {
			select {
			case <-w.Replied:
				t.Fatalf("while %s owns the mutex, a later waiter gets %v, %v", owner, w.Reply, w.Err)
			default:
			}
		}
		simbatest.DoOne(t, simbatest.Conn(t, all[(i+2)%3]), "SIMBA.RELEASE", "job", owner)
	}
}

func TestNoticesAndReservationsHoldAtAllMembers(t *testing.T) {
	t.Parallel()
	all := simbatest.Members(t)
	var subs []*simbatest.Subscriber
	for _, s := range all {
		subs = append(subs, simbatest.Subscribe(t, s, "SUBSCRIBE", "simba:{job}", "simba-events:{job}", "simba:{job}:bob"))
	}
	simbatest.DoRecord(t, simbatest.Conn(t, all[1]), "SIMBA.ACQUIRE", "job", "alice", 600_000)
	if r := simbatest.DoRecord(t, simbatest.Conn(t, all[2]), "SIMBA.ACQUIRE", "job", "bob", 600_000); r["status"] != "queued" {
		t.Fatalf("bob gets %v, want queued", r)
	}
	simbatest.DoOne(t, simbatest.Conn(t, all[0]), "SIMBA.RELEASE", "job", "alice")
	for _, sub := range subs {
		sub.Receive("simba:{job}", "acquired@@alice")
		sub.Receive("simba:{job}:bob", "released@@")
		sub.Receive("simba-events:{job}", `{"seq"`)
	}
	for i, s := range all {
		if r := simbatest.DoRecord(t, simbatest.Conn(t, s), "SIMBA.ACQUIRE", "job", "carol", 600_000, "NOQUEUE"); r["status"] == "acquired" {
			t.Errorf("carol gets the mutex at member %d while it is reserved for bob: %v", i, r)
		}
	}
	if r := simbatest.DoRecord(t, simbatest.Conn(t, all[1]), "SIMBA.ACQUIRE", "job", "bob", 600_000); r["status"] != "acquired" {
		t.Errorf("bob gets %v, want acquired", r)
	}
}

func TestSessionThroughAFollowerEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	all := simbatest.Members(t)
	c := simbatest.Conn(t, all[1])
	simbatest.DoRecord(t, c, "SIMBA.ACQUIRE", "job", "alice", 600_000, "SESSION")
	bob := simbatest.Wait(t, all[2], "job", "bob")
	c.Close()
	bob.Granted(t)
}

// The lease must neither end with the leader nor with a follower, nor with all of them. A waiter's
// connection ends with the leader.
func TestLeaseOutlivesEveryMember(t *testing.T) {
	t.Parallel()
	all := simbatest.Members(t)
	r := simbatest.DoRecord(t, simbatest.Conn(t, all[1]), "SIMBA.ACQUIRE", "job", "alice", 600_000)
	bob := simbatest.Wait(t, all[1], "job", "bob")
	all[0].Kill()
	select {
	case <-bob.Replied:
		if bob.Err == nil {
			t.Errorf("bob gets the reply %v after the leader has ended", bob.Reply)
		}
	case <-time.After(need.Hang):
		t.Fatal("the waiter's connection does not end with the leader")
	}
	check := func(when string, s *simbatest.Server) {
		t.Helper()
		if now := retried(t, s, "SIMBA.GUARD", "job", "alice", 600_000); now["status"] != "renewed" || now["token"] != r["token"] {
			t.Errorf("%s, GUARD of the owner: %v, want renewed with token %v", when, now, r["token"])
		}
		if now := retried(t, s, "SIMBA.ACQUIRE", "job", "carol", 600_000, "NOQUEUE"); now["status"] != "busy" {
			t.Errorf("%s, ACQUIRE of another contender: %v, want busy", when, now)
		}
	}
	check("after the leader's end", all[1])
	all[0].Start()
	check("through the new follower", all[0])
	for _, s := range all {
		s.Kill()
	}
	for _, s := range all {
		s.Start()
	}
	check("after the end of all members", all[2])
	dave := simbatest.Wait(t, all[0], "job", "dave") // the waiters of the dead leader delay nobody
	simbatest.DoOne(t, simbatest.Conn(t, all[1]), "SIMBA.RELEASE", "job", "alice")
	dave.Granted(t)
}

func TestWithoutAMajorityNothingIsGranted(t *testing.T) {
	t.Parallel()
	all := simbatest.Members(t)
	r := simbatest.DoRecord(t, simbatest.Conn(t, all[0]), "SIMBA.ACQUIRE", "job", "alice", 600_000)
	all[1].Kill()
	all[2].Kill()
	began := time.Now()
	// A request of before the cluster notices gets no reply, since its connection ends.
	for {
		c, err := redis.Dial("tcp", all[0].Addr, redis.DialReadTimeout(need.Hang))
		simbatest.Must(t, err)
		reply, err := c.Do("SIMBA.ACQUIRE", "other", "bob", 1000)
		c.Close()
		if err == nil {
			t.Fatalf("without a majority, ACQUIRE gets %v", reply)
		}
		if strings.HasPrefix(err.Error(), "TRYAGAIN ") {
			break
		}
	}
	t.Logf("TRYAGAIN after %v", time.Since(began))
	if out := simbatest.Output(t, simbatest.Binary(t), "cluster", "status", "--url", all[0].Addr); !strings.Contains(out, "TRYAGAIN the cluster has no leader") {
		t.Errorf("without a majority, cluster status says %s", out)
	}
	all[1].Start()
	if now := retried(t, all[1], "SIMBA.GUARD", "job", "alice", 600_000); now["status"] != "renewed" || now["token"] != r["token"] {
		t.Errorf("when a majority runs again, GUARD of the owner: %v, want renewed with token %v", now, r["token"])
	}
}

// nextFormat builds a server whose format of records is one higher, and returns its path.
func nextFormat(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	simbatest.Must(t, err)
	source := filepath.Join(root, "persist/record.go")
	text, err := os.ReadFile(source)
	simbatest.Must(t, err)
	const now, next = "const RecordFormat = 1\n", "const RecordFormat = 2\n"
	if !strings.Contains(string(text), now) {
		t.Fatalf("%s lacks %q", source, now)
	}
	dir := t.TempDir()
	changed, overlay, program := filepath.Join(dir, "record.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "simba-resp")
	simbatest.Must(t, os.WriteFile(changed, []byte(strings.ReplaceAll(string(text), now, next)), 0o600))
	simbatest.Must(t, os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace":{%q:%q}}`, source, changed), 0o600))
	cmd := exec.Command("go", "build", "-overlay", overlay, "-o", program, "./cmd/simba-resp")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return program
}

// Of members of different versions, each one can read what any of them writes.
func TestLeaderWritesTheFormatThatAllMembersRead(t *testing.T) {
	t.Parallel()
	newer := nextFormat(t)
	all := simbatest.Members(t) // the first one leads
	format := func() int64 { return retried(t, all[0], "SIMBA.CLUSTER", "STATUS").Number("format") }
	lead := func(s *simbatest.Server) {
		simbatest.Await(t, "another member leads", func() bool {
			status := retried(t, all[0], "SIMBA.CLUSTER", "STATUS")
			if status["name"] == s.Member() {
				return true
			}
			if c, err := redis.Dial("tcp", all[0].Addr); err == nil {
				_, _ = c.Do("SIMBA.CLUSTER", "TRANSFER", s.Member()) // it may end before its reply
				c.Close()
			}
			return false
		})
	}
	upgrade := func(s *simbatest.Server) {
		s.Stop()
		s.Command = []string{newer}
		s.Start()
	}
	upgrade(all[2])
	lead(all[2])
	owner := retried(t, all[2], "SIMBA.ACQUIRE", "job", "alice", 600_000)
	if f := format(); owner["status"] != "acquired" || f != 1 {
		t.Errorf("while two members read only format 1, the leader writes format %d, and replies %v", f, owner)
	}
	upgrade(all[0])
	upgrade(all[1])
	simbatest.Await(t, "the leader writes the next format", func() bool {
		lead(all[1]) // it asks the others at once
		retried(t, all[1], "SIMBA.GUARD", "job", "alice", 600_000)
		return format() == 2
	})
	retried(t, all[1], "SIMBA.GUARD", "job", "alice", 600_000) // so the log of this member has that format

	all[1].Stop()
	lead(all[0])
	retried(t, all[0], "SIMBA.GUARD", "job", "alice", 600_000)
	all[1].Command = nil
	if all[1].StartOrEnd() || !strings.Contains(all[1].Output(), "format 2; this one reads up to 1") {
		t.Errorf("a server of format 1 must refuse records of format 2, but logs:\n%s", all[1].Output())
	}
	if r := retried(t, all[0], "SIMBA.ACQUIRE", "job", "bob", 600_000, "NOQUEUE"); r["status"] != "busy" || r["token"] != owner["token"] {
		t.Errorf("after all upgrades the mutex is %v, want that of %v", r, owner)
	}
}
