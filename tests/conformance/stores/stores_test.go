package stores

import (
	"bufio"
	"database/sql"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
)

type talk struct {
	t TB
	c net.Conn
	r *bufio.Reader
}

func dial(t TB, addr string) *talk {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &talk{t, c, bufio.NewReader(c)}
}

func (k *talk) send(command string) {
	k.t.Helper()
	if _, err := io.WriteString(k.c, command+"\r\n"); err != nil {
		k.t.Fatal(err)
	}
}

func (k *talk) line(wait time.Duration) (string, error) {
	_ = k.c.SetReadDeadline(time.Now().Add(wait))
	s, err := k.r.ReadString('\n')
	return strings.TrimSpace(s), err
}

func (k *talk) expect(want string) {
	k.t.Helper()
	if got, err := k.line(10 * time.Second); err != nil || got != want {
		k.t.Fatalf("the line received is %q, %v; want %q", got, err, want)
	}
}

func TestRedisKeepsPortAndDataThroughKillAndStop(t *testing.T) {
	s := Redis(t)
	k := dial(t, s.Addr)
	k.send("SET k 1")
	k.expect("+OK")
	for name, end := range map[string]func(){"kill": s.Kill, "stop": s.Stop} {
		end()
		if c, err := net.Dial("tcp", s.Addr); err == nil {
			c.Close()
			t.Fatalf("the server answers after %s", name)
		}
		s.Start()
		k := dial(t, s.Addr)
		k.send("INCR k")
		if got, err := k.line(10 * time.Second); err != nil || !strings.HasPrefix(got, ":") || got == ":1" {
			t.Errorf("INCR after %s: %q, %v; want a number above 1", name, got, err)
		}
	}
}

func TestPausedServerAnswersAfterResume(t *testing.T) {
	s := Redis(t)
	k := dial(t, s.Addr)
	s.Pause()
	k.send("PING")
	if got, err := k.line(100 * time.Millisecond); err == nil {
		t.Fatalf("the paused server answered %q", got)
	}
	s.Resume()
	k.expect("+PONG")
}

func TestMariaDBKeepsItsDatabase(t *testing.T) {
	s := MariaDB(t)
	db, err := sql.Open("mysql", "root@tcp("+s.Addr+")/simba")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE x (a INT) ENGINE=InnoDB"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("INSERT INTO x VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	s.Start()
	var a int
	for range 3 { // the pool has connections to the killed server
		if err = db.QueryRow("SELECT a FROM x").Scan(&a); err == nil {
			break
		}
	}
	if err != nil || a != 7 {
		t.Errorf("SELECT after a crash: %d, %v; want 7", a, err)
	}
}

func TestZooKeeperServesAgainAfterAKill(t *testing.T) {
	s := ZooKeeper(t)
	s.Kill()
	s.Start()
	await(t, "ZooKeeper serves again", func() bool { return answers(s.Addr, "srvr", "standalone") == nil })
}

func TestEnsembleElectsAnotherLeader(t *testing.T) {
	e := ZooKeeperEnsemble(t, 3)
	var old *Server
	await(t, "one of the servers is the leader", func() bool { old = e.Leader(); return old != nil })
	old.Kill()
	await(t, "another server is the leader", func() bool { l := e.Leader(); return l != nil && l != old })
	old.Start()
}

func TestLinkPassesAndRefusesAndHeals(t *testing.T) {
	l := NewLink(t, Redis(t).Addr)
	k := dial(t, l.Addr())
	k.send("PING")
	k.expect("+PONG")
	l.Refuse()
	if got, err := k.line(10 * time.Second); err == nil {
		t.Errorf("an open connection received %q after Refuse", got)
	}
	if c, err := net.Dial("tcp", l.Addr()); err == nil {
		c.Close()
		t.Error("the link accepted a new connection after Refuse")
	}
	l.Heal()
	k = dial(t, l.Addr())
	k.send("PING")
	k.expect("+PONG")
}

func TestLinkBlackholeDelaysUntilHeal(t *testing.T) {
	l := NewLink(t, Redis(t).Addr)
	k := dial(t, l.Addr())
	l.Blackhole()
	late := dial(t, l.Addr())
	for _, c := range []*talk{k, late} {
		c.send("PING")
		if got, err := c.line(50 * time.Millisecond); err == nil {
			t.Errorf("the link passed the reply %q during Blackhole", got)
		}
	}
	l.Heal()
	k.expect("+PONG")
	late.expect("+PONG")
}

func TestLinkDropReplyToDropsOneReply(t *testing.T) {
	s := Redis(t)
	l := NewLink(t, s.Addr)
	other, k := dial(t, l.Addr()), dial(t, l.Addr())
	lost := l.DropReplyTo("mine")
	other.send("SET other 1")
	other.expect("+OK")
	k.send("SET mine 1")
	if got, err := k.line(10 * time.Second); err == nil {
		t.Errorf("the link passed the reply %q, want none", got)
	}
	<-lost
	other.send("GET mine")
	other.expect("$1")
	other.expect("1")
}

func TestLinkDropRepliesDropsAllAndHealResetsAffectedConnections(t *testing.T) {
	l := NewLink(t, Redis(t).Addr)
	idle, k := dial(t, l.Addr()), dial(t, l.Addr())
	idle.send("PING")
	idle.expect("+PONG")
	l.DropReplies()
	k.send("SET k 1")
	if got, err := k.line(50 * time.Millisecond); err == nil {
		t.Errorf("the link passed the reply %q, want none", got)
	}
	l.Heal()
	if got, err := k.line(10 * time.Second); err == nil {
		t.Errorf("a connection whose reply was dropped received %q after Heal, want a reset", got)
	}
	idle.send("GET k")
	idle.expect("$1")
}

func TestLinkDropRepliesFromARequestOn(t *testing.T) {
	l := NewLink(t, Redis(t).Addr)
	k, other := dial(t, l.Addr()), dial(t, l.Addr())
	begun := l.DropRepliesFrom("mine")
	k.send("SET before 1")
	k.expect("+OK")
	k.send("SET mine 1")
	<-begun
	other.send("GET mine")
	for _, c := range []*talk{k, other} {
		if got, err := c.line(50 * time.Millisecond); err == nil {
			t.Errorf("the link passed the reply %q, want none", got)
		}
	}
	l.Heal()
	k = dial(t, l.Addr())
	k.send("GET mine")
	k.expect("$1")
}

func TestLinkBlackholesFromARequestOn(t *testing.T) {
	l := NewLink(t, Redis(t).Addr)
	k, other := dial(t, l.Addr()), dial(t, l.Addr())
	begun := l.BlackholeFrom("mine")
	k.send("SET before 1")
	k.expect("+OK")
	k.send("GET mine")
	<-begun
	other.send("GET before")
	for _, c := range []*talk{k, other} {
		if got, err := c.line(50 * time.Millisecond); err == nil {
			t.Errorf("the link passed the reply %q, want none", got)
		}
	}
	past := dial(t, l.target)
	past.send("SET mine 1")
	past.expect("+OK")
	l.Heal()
	k.expect("$1")
	k.expect("1")
	other.expect("$1")
}

func TestLinkStallsTheConnectionOfARequest(t *testing.T) {
	l := NewLink(t, Redis(t).Addr)
	k, other := dial(t, l.Addr()), dial(t, l.Addr())
	dropped, stalled := l.DropReplyTo("before"), l.StallFrom("SET MINE")
	other.send("GET before")
	<-dropped
	k.send("set mine 1")
	<-stalled
	other = dial(t, l.Addr())
	other.send("GET mine")
	other.expect("$-1")
	if got, err := k.line(50 * time.Millisecond); err == nil {
		t.Errorf("the link passed the reply %q, want none", got)
	}
	l.Heal()
	k.expect("+OK")
}

func TestLinkDelaysBothWaysAndResets(t *testing.T) {
	l := NewLink(t, Redis(t).Addr)
	k := dial(t, l.Addr())
	const d = 50 * time.Millisecond
	l.Delay(d)
	sent := time.Now()
	k.send("PING")
	k.expect("+PONG")
	if took := time.Since(sent); took < 2*d {
		t.Errorf("the reply came after %v, want at least %v", took, 2*d)
	}
	l.Reset()
	if got, err := k.line(10 * time.Second); err == nil {
		t.Errorf("a connection received %q after Reset, want a reset", got)
	}
	dial(t, l.Addr())
}

func TestClusterReplacesAMasterThatDied(t *testing.T) {
	c := RedisCluster(t)
	old := c.Master("k")
	if old == nil {
		t.Fatal("Master found no node that serves the key k")
	}
	old.Kill()
	await(t, "the replica takes over", func() bool { return c.Master("k") != nil })
	old.Start()
	await(t, "the old master follows", func() bool { return replyContains(old.Addr, "INFO replication", "role:slave") })
}

func TestSentinelsReplaceAPrimaryThatDied(t *testing.T) {
	s := RedisSentinel(t)
	t.Cleanup(func() {
		for _, w := range s.Sentinels {
			if t.Failed() {
				t.Logf("%s:\n%s", w.Addr, tail(w.Log(), 30))
			}
		}
	})
	old := s.Primary()
	old.Kill()
	await(t, "the replica takes over", func() bool { return s.Primary() != nil })
	primary := s.Primary().Addr
	// Otherwise a sentinel may still treat the old primary as the current one after its restart.
	await(t, "every sentinel names the new primary", func() bool {
		return !slices.ContainsFunc(s.SentinelAddrs, func(addr string) bool {
			return !replyContains(addr, "INFO sentinel", "address="+primary)
		})
	})
	s.Hold(t) // otherwise the sentinels may promote the old primary after its restart
	old.Start()
	await(t, "the old primary follows", func() bool { return replyContains(old.Addr, "INFO replication", "role:slave") })
}

func TestRedisPairFailsOverUnderLoadWithoutLosingAWrite(t *testing.T) {
	p := NewRedisPair(t)
	acknowledged := make(chan int)
	stop := make(chan struct{})
	go func() { // writes 1, 2, 3, … and reports the last
		n := 0
		defer func() { acknowledged <- n }()
		for c := (net.Conn)(nil); ; {
			select {
			case <-stop:
				return
			default:
			}
			if c == nil {
				var err error
				if c, err = net.Dial("tcp", p.Link().Addr()); err != nil {
					continue
				}
			}
			k := &talk{t, c, bufio.NewReader(c)}
			if _, err := io.WriteString(c, "SET n "+strconv.Itoa(n+1)+"\r\n"); err != nil {
				c.Close()
				c = nil
				continue
			}
			if got, err := k.line(10 * time.Second); err != nil || got != "+OK" {
				c.Close()
				c = nil
				continue
			}
			n++
		}
	}()
	for range 5 {
		time.Sleep(50 * time.Millisecond) // time for some load
		k := dial(t, p.Link().Addr())
		k.send("PING")
		k.expect("+PONG")
		p.Failover()
		k.send("SET k 1")
		if got, _ := k.line(10 * time.Second); !strings.HasPrefix(got, "-READONLY") {
			t.Errorf("SET on a connection to the old primary: %q; want READONLY", got)
		}
		k = dial(t, p.Link().Addr())
		k.send("SET k 1")
		k.expect("+OK")
		p.Rejoin()
	}
	close(stop)
	n := <-acknowledged
	got, err := ask(p.Link().Addr(), "GET n")
	if found, _ := strconv.Atoi(got); err != nil || found < n || n == 0 {
		t.Errorf("GET n: %q, %v; want at least %d, the last acknowledged write", got, err, n)
	}
}
