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
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
	"github.com/simba-resp/simba-resp/tests/tenures"
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

// contest lets two contenders of each kind lead in turn. Ours use the servers. It returns how often each
// has led.
func contest(t *testing.T, j *jvm, changes int64, servers [2]*Backend) map[string]int {
	var list tenures.Log
	var led atomic.Int64
	lead := func(id string, token uint64) {
		from := tenures.Clock()
		time.Sleep(time.Millisecond)
		list.Add(tenures.Tenure{Owner: id, Token: token, From: from, To: tenures.Clock()})
		led.Add(1)
	}
	var all sync.WaitGroup
	for i, b := range servers {
		id := fmt.Sprint("ours-", i+1)
		all.Go(func() {
			for led.Load() < changes {
				w := conformance.NewBlocked()
				out, ticket, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: id, TTL: time.Minute, Waiter: w})
				if err == nil && out.Status == simba.StatusWaiting {
					w.Ticket = ticket
					out = w.Granted(t)
				}
				if err != nil || out.Status != simba.StatusAcquired {
					t.Errorf("ACQUIRE of %s: %+v, %v; want acquired", id, out, err)
					return
				}
				lead(id, out.Token)
				giveUp(t, b, "m", id)
			}
		})
	}
	for _, id := range []string{"jvm-1", "jvm-2"} {
		all.Go(func() {
			for led.Load() < changes {
				j.send("start m %s", id)
				err := j.await(id, "LEADER")
				var token uint64
				if err == nil {
					token, err = j.token(id)
				}
				if err == nil {
					lead(id, token)
					j.send("close %s", id)
					err = j.await(id, "CLOSED")
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	list.NeverTwo(t)
	t.Log(list.Owners())
	return list.Owners()
}

func TestLeaderLatchAndEngineElectOneLeader(t *testing.T) {
	srv := stores.ZooKeeper(t)
	j := startJVM(t, installedCurator(t), srv.Addr)
	said := newBroker(simba.MutexChannel("m"))
	b := open(t, Options{Servers: srv.Addr, Options: proxy.Options{Notices: said}})
	subscribe(t, b, simba.MutexChannel("m"))
	led := contest(t, j, 200, [2]*Backend{b, b})
	for _, id := range []string{"ours-1", "ours-2", "jvm-1", "jvm-2"} {
		ours, n := strings.HasPrefix(id, "ours"), led[id]
		if got := said.Count("simba:{m}", "acquired@@"+id); ours && got != n || got == 0 || n == 0 {
			t.Errorf("%s: %d acquired notices for %d tenures; want one each", id, got, n)
		}
	}
}

func TestLeaderLatchAndEngineSeeEachOther(t *testing.T) {
	srv := stores.ZooKeeper(t)
	j := startJVM(t, installedCurator(t), srv.Addr)
	said := newBroker(simba.MutexChannel("m"))
	b := open(t, Options{Servers: srv.Addr, Options: proxy.Options{Notices: said}})
	subscribe(t, b, simba.MutexChannel("m"))
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
	c := block(t, b, "m", "c", time.Minute)
	j.send("close j")
	c.Granted(t)
}

func TestLeaderLatchOfCuratorAndTwoServersShareAMutex(t *testing.T) {
	srv := stores.ZooKeeper(t)
	j := startJVM(t, curator59(t), srv.Addr)
	servers := [2]*Backend{open(t, Options{Servers: srv.Addr}), open(t, Options{Servers: srv.Addr})}
	const changes = 400
	led := contest(t, j, changes, servers)
	for _, id := range []string{"ours-1", "ours-2", "jvm-1", "jvm-2"} {
		if led[id] < changes/8 {
			t.Errorf("%s led %d times in %d tenures; want at least half of its share", id, led[id], changes)
		}
	}

	// A latch waits behind three handoffs of ours.
	owner, last := "a", take(t, servers[0], "behind", "a", time.Minute).Token
	var waiters []*conformance.Blocked
	for i, id := range []string{"b", "c", "d"} {
		waiters = append(waiters, block(t, servers[(i+1)%2], "behind", id, time.Minute))
	}
	j.send("start behind j")
	await(t, "the latch waits", func() bool {
		q, _, err := servers[0].Queue(ctx, "behind", 10)
		return err == nil && len(q) == 4 && q[3].Contender == "j"
	})
	for i, id := range []string{"b", "c", "d"} {
		giveUp(t, servers[i%2], "behind", owner)
		out := waiters[i].Granted(t)
		if out.Token <= last {
			t.Errorf("the token of %s is %d after %d", id, out.Token, last)
		}
		owner, last = id, out.Token
	}
	giveUp(t, servers[1], "behind", owner)
	must(t, j.await("j", "LEADER"))
	if token, err := j.token("j"); err != nil || token <= last {
		t.Errorf("the token of the latch: %d, %v; want more than %d", token, err, last)
	}
}
