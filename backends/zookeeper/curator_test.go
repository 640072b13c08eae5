package zookeeper

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

// jvm is a process that runs testdata/Contender.java: contenders of Curator's LeaderLatch.
type jvm struct {
	t   testing.TB
	in  io.WriteCloser
	mu  sync.Mutex // guards the fields below
	out map[string]chan string
}

// installedCurator returns the jars of Debian's Curator. Without it, installedCurator skips the test,
// or fails it with CI=true.
func installedCurator(t testing.TB) (jars string) {
	t.Helper()
	var list []string
	for _, name := range []string{
		"curator-framework", "curator-client", "curator-recipes", "zookeeper", "zookeeper-jute", "guava", "slf4j-api", "slf4j-nop",
		"netty-all", "netty-buffer", "netty-common", "netty-handler", "netty-transport",
	} {
		jar := filepath.Join("/usr/share/java", name+".jar")
		need.File(t, jar, "libcurator-recipes-java")
		list = append(list, jar)
	}
	return strings.Join(list, string(os.PathListSeparator))
}

// curator59 returns the jars of testdata/curator.xml. Ivy downloads them from its default repository.
// Without Ivy, curator59 skips the test, or fails it with CI=true.
func curator59(t testing.TB) (jars string) {
	t.Helper()
	const ivy = "/usr/share/java/ivy.jar"
	java, dir := need.Program(t, "java", "default-jdk-headless"), t.TempDir()
	need.File(t, ivy, "ivy")
	resolve := exec.Command(java, "-jar", ivy, "-ivy", "testdata/curator.xml", "-confs", "default", "-types", "jar", "bundle",
		"-retrieve", filepath.Join(dir, "[artifact]-[revision](-[classifier]).[ext]"))
	if out, err := resolve.CombinedOutput(); err != nil {
		t.Fatalf("Ivy cannot resolve testdata/curator.xml: %v\n%s", err, out)
	}
	return filepath.Join(dir, "*")
}

// startJVM compiles the Java program and starts it with the jars of a Curator.
func startJVM(t testing.TB, jars, servers string) *jvm {
	t.Helper()
	javac := need.Program(t, "javac", "default-jdk-headless")
	dir := t.TempDir()
	path := jars + string(os.PathListSeparator) + dir
	if out, err := exec.Command(javac, "-cp", path, "-d", dir, "testdata/Contender.java").CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	cmd := exec.Command("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path, "Contender", servers)
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	j := &jvm{t: t, in: in, out: make(map[string]chan string)}
	ready := j.events("")
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			what, rest, _ := strings.Cut(lines.Text(), " ")
			id, rest, _ := strings.Cut(rest, " ")
			j.events(id) <- strings.TrimSpace(what + " " + rest)
		}
	}()
	t.Cleanup(func() {
		in.Close() // the process ends with its input
		<-read
		if err := cmd.Wait(); err != nil {
			t.Errorf("java: %v", err)
		}
	})
	if got := <-ready; got != "READY" {
		t.Fatalf("the JVM's first line is %q, want READY", got)
	}
	return j
}

func (j *jvm) events(id string) chan string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.out[id] == nil {
		j.out[id] = make(chan string, 1000)
	}
	return j.out[id]
}

func (j *jvm) send(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintf(j.in, format+"\n", args...)
}

// await waits until the JVM sends this report about a contender. It ignores other reports.
func (j *jvm) await(id, report string) error {
	_, err := j.next(id, report)
	return err
}

// next waits for a report about a contender that begins with these words, and returns the rest.
func (j *jvm) next(id, words string) (rest string, err error) {
	deadline := time.After(patience)
	for {
		select {
		case got := <-j.events(id):
			if rest, ok := strings.CutPrefix(got, words); ok {
				return strings.TrimSpace(rest), nil
			}
		case <-deadline:
			return "", fmt.Errorf("the JVM did not report %q about %s within %v", words, id, patience)
		}
	}
}

// token returns the token of a leader on the JVM, as Simba reads it: the czxid of its node.
func (j *jvm) token(id string) (uint64, error) {
	j.send("token %s", id)
	text, err := j.next(id, "TOKEN ")
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(text, 10, 64)
}

// exclusiveResource may be used by one contender at a time.
type exclusiveResource struct {
	user    atomic.Pointer[string]
	changes atomic.Int64
}

func (r *exclusiveResource) use(t *testing.T, who string) {
	if !r.user.CompareAndSwap(nil, &who) {
		t.Errorf("%s leads while %s still leads", who, *r.user.Load())
		return
	}
	r.changes.Add(1)
	<-time.After(time.Millisecond)
	r.user.Store(nil)
}

func TestLeaderLatchAndEngineElectOneLeader(t *testing.T) {
	srv := stores.ZooKeeper(t)
	j := startJVM(t, installedCurator(t), srv.Addr)
	said := conformance.NewBroker(simba.MutexChannel("m"))
	b := open(t, Options{Servers: srv.Addr, Notices: said})
	if _, err := b.Subscribed(ctx, simba.MutexChannel("m"), false); err != nil {
		t.Fatal(err)
	}
	const changes = 200
	var shared exclusiveResource
	tenures := make(map[string]*atomic.Int64)
	var all sync.WaitGroup
	for _, id := range []string{"ours-1", "ours-2"} {
		tenures[id] = new(atomic.Int64)
		all.Go(func() {
			for shared.changes.Load() < changes {
				w := newWaiter()
				out, ticket, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: id, TTL: time.Minute, Waiter: w})
				if err == nil && out.Status == simba.StatusWaiting {
					w.await(t)
					out, err = ticket.End(simba.EndWoken)
				}
				if err != nil || out.Status != simba.StatusAcquired {
					t.Errorf("the end of %s's wait: %+v, %v; want acquired", id, out, err)
					return
				}
				tenures[id].Add(1)
				shared.use(t, id)
				giveUp(t, b, "m", id)
			}
		})
	}
	for _, id := range []string{"jvm-1", "jvm-2"} {
		tenures[id] = new(atomic.Int64)
		all.Go(func() {
			for shared.changes.Load() < changes {
				j.send("start m %s", id)
				if err := j.await(id, "LEADER"); err != nil {
					t.Error(err)
					return
				}
				tenures[id].Add(1)
				shared.use(t, id)
				j.send("close %s", id)
				if err := j.await(id, "CLOSED"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	for id, n := range tenures {
		t.Logf("%s: %d tenures", id, n.Load())
		if n.Load() == 0 {
			t.Errorf("%s never led", id)
		}
		ours := strings.HasPrefix(id, "ours")
		if got := said.Count("simba:{m}", "acquired@@"+id); ours && int64(got) != n.Load() || got == 0 {
			t.Errorf("%s: %d acquired notices for %d tenures; want one each", id, got, n.Load())
		}
	}
}

func TestLeaderLatchAndEngineSeeEachOther(t *testing.T) {
	srv := stores.ZooKeeper(t)
	j := startJVM(t, installedCurator(t), srv.Addr)
	said := conformance.NewBroker(simba.MutexChannel("m"))
	b := open(t, Options{Servers: srv.Addr, Notices: said})
	if _, err := b.Subscribed(ctx, simba.MutexChannel("m"), false); err != nil {
		t.Fatal(err)
	}
	take(t, b, "m", "a", time.Minute)
	j.send("start m j")
	await(t, "the JVM waits", func() bool {
		q, _, err := b.Queue(ctx, "m", 10)
		return err == nil && len(q) == 1 && q[0].Contender == "j"
	})
	j.send("leader j")
	j.send("participants j")
	for _, want := range []string{"OWNER a", "PARTICIPANTS a,j"} {
		if err := j.await("j", want); err != nil {
			t.Error(err)
		}
	}
	giveUp(t, b, "m", "a")
	must(t, j.await("j", "LEADER"))
	owner, _, err := b.Owner(ctx, "m")
	if err != nil || owner.Owner != "j" || owner.Token == 0 || owner.Transition <= 0 {
		t.Errorf("OWNER: %+v, %v; want the JVM's contender j with a token", owner, err)
	}
	await(t, "the tenure of j is announced", func() bool { return said.Count("simba:{m}", "acquired@@j") == 1 })
	if ok, _, err := b.Check(ctx, "m", owner.Token); err != nil || !ok {
		t.Errorf("CHECK of j's token: %v, %v; want true", ok, err)
	}
	if ok, _, err := b.Break(ctx, "m", "test"); ok || !errors.Is(err, simba.ErrNotServed) {
		t.Errorf("BREAK of the JVM's tenure: %v, %v; want ErrNotServed", ok, err)
	}
	_, woken := block(t, b, "m", "c", time.Minute)
	j.send("close j")
	woken.await(t)
}

// tokens checks that the tokens of a mutex's tenures grow.
type tokens struct {
	mu   sync.Mutex // guards last
	last uint64
}

func (l *tokens) add(t *testing.T, who string, token uint64) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if token <= l.last {
		t.Errorf("%s leads with token %d after a tenure with token %d; want a larger one", who, token, l.last)
	}
	l.last = token
}

func TestLeaderLatchOfCuratorWakesBehindHandoffs(t *testing.T) {
	srv := stores.ZooKeeper(t)
	j := startJVM(t, curator59(t), srv.Addr)
	servers := []*Backend{open(t, Options{Servers: srv.Addr}), open(t, Options{Servers: srv.Addr})}
	var seen tokens
	seen.add(t, "a", take(t, servers[0], "m", "a", time.Minute).Token)
	type wait struct {
		server *Backend
		ticket simba.Ticket
		woken  waiter
	}
	waits := make(map[string]wait)
	for i, id := range []string{"b", "c", "d"} {
		b := servers[(i+1)%2]
		ticket, woken := block(t, b, "m", id, time.Minute)
		waits[id] = wait{b, ticket, woken}
	}
	j.send("start m j")
	await(t, "the latch waits behind b, c and d", func() bool {
		q, _, err := servers[0].Queue(ctx, "m", 10)
		return err == nil && len(q) == 4 && q[3].Contender == "j"
	})
	giveUp(t, servers[0], "m", "a")
	for _, id := range []string{"b", "c", "d"} {
		w := waits[id]
		w.woken.await(t)
		out, err := w.ticket.End(simba.EndWoken)
		if err != nil || out.Status != simba.StatusAcquired {
			t.Fatalf("the end of %s's wait: %+v, %v; want acquired", id, out, err)
		}
		seen.add(t, id, out.Token)
		giveUp(t, w.server, "m", id)
	}
	must(t, j.await("j", "LEADER"))
	token, err := j.token("j")
	must(t, err)
	seen.add(t, "j", token)
	for i, b := range servers {
		if owner, _, err := b.Owner(ctx, "m"); err != nil || owner.Owner != "j" || owner.Token != token {
			t.Errorf("OWNER at server %d: %+v, %v; want j with token %d", i, owner, err, token)
		}
	}
}

func TestLeaderLatchOfCuratorAndTwoServersShareAMutex(t *testing.T) {
	srv := stores.ZooKeeper(t)
	j := startJVM(t, curator59(t), srv.Addr)
	const changes = 400
	var shared exclusiveResource
	var seen tokens
	lead := func(id string, token uint64, tenures *int64) {
		seen.add(t, id, token)
		*tenures++
		shared.use(t, id)
	}
	ids := []string{"ours-1", "ours-2", "jvm-1", "jvm-2"}
	tenures := make([]int64, len(ids))
	var all sync.WaitGroup
	for i, id := range ids[:2] {
		b := open(t, Options{Servers: srv.Addr})
		all.Go(func() {
			for shared.changes.Load() < changes {
				w := newWaiter()
				out, ticket, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: id, TTL: time.Minute, Waiter: w})
				if err == nil && out.Status == simba.StatusWaiting {
					w.await(t)
					out, err = ticket.End(simba.EndWoken)
				}
				if err != nil || out.Status != simba.StatusAcquired {
					t.Errorf("the end of %s's wait: %+v, %v; want acquired", id, out, err)
					return
				}
				lead(id, out.Token, &tenures[i])
				giveUp(t, b, "m", id)
			}
		})
	}
	for i, id := range ids[2:] {
		all.Go(func() {
			for shared.changes.Load() < changes {
				j.send("start m %s", id)
				err := j.await(id, "LEADER")
				var token uint64
				if err == nil {
					token, err = j.token(id)
				}
				if err != nil {
					t.Error(err)
					return
				}
				lead(id, token, &tenures[2+i])
				j.send("close %s", id)
				if err := j.await(id, "CLOSED"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	for i, id := range ids {
		t.Logf("%s: %d tenures", id, tenures[i])
		if tenures[i] < changes/8 {
			t.Errorf("%s led %d times in %d tenures; want at least half of its share", id, tenures[i], changes)
		}
	}
}
