package dropin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

// The windows of a real contender. A machine that is busy must not stand still for so long.
const itselfTTL, itselfTransition = 5 * time.Second, time.Second

// simbaJars returns the class path of a version of Simba's Redis backend, as Ivy resolves it from its
// default repository. Without Ivy the test is skipped, and fails with CI=true.
func simbaJars(t testing.TB, version string) string {
	t.Helper()
	const ivy = "/usr/share/java/ivy.jar"
	java, javac := stores.Need(t, "java", "default-jdk-headless"), stores.Need(t, "javac", "default-jdk-headless")
	if _, err := os.Stat(ivy); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is missing: install ivy", ivy)
		}
		t.Skipf("%s is missing: install ivy", ivy)
	}
	dir := filepath.Join(scratch, "simba-"+version)
	resolve := exec.Command(java, "-Dsimba="+version, "-jar", ivy, "-ivy", filepath.Join("jvm", "ivy.xml"),
		"-confs", "default", "-types", "jar", "bundle", "-retrieve", filepath.Join(dir, "[artifact]-[revision].[ext]"))
	if out, err := resolve.CombinedOutput(); err != nil {
		t.Fatalf("ivy cannot resolve Simba %s: %v\n%s", version, err, out)
	}
	path := filepath.Join(dir, "*") + string(os.PathListSeparator) + dir
	compile := exec.Command(javac, "-cp", path, "-d", dir, filepath.Join("jvm", "SimbaItself.java"))
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	return path
}

// errGone is returned when the process is gone that was to do it.
var errGone = errors.New("the process is gone")

// simbaProcess is a JVM with contenders of Simba's own backend, see jvm/SimbaItself.java.
type simbaProcess struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	gone chan struct{} // closed when it has ended

	mu   sync.Mutex // guards what follows
	said map[string]chan string
}

func startSimba(path, addr string) (*simbaProcess, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	p := &simbaProcess{gone: make(chan struct{}), said: make(map[string]chan string)}
	p.cmd = exec.Command("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path, "SimbaItself",
		host, port, fmt.Sprint(itselfTTL.Milliseconds()), fmt.Sprint(itselfTransition.Milliseconds()))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.gone)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			what, rest, _ := strings.Cut(lines.Text(), " ")
			id, rest, _ := strings.Cut(rest, " ")
			p.sayings(id) <- strings.TrimSpace(what + " " + rest)
		}
		_ = p.cmd.Wait() // it ends by a kill, as a rule
	}()
	return p, nil
}

// sayings are what the process says of a contender.
func (p *simbaProcess) sayings(id string) chan string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.said[id] == nil {
		p.said[id] = make(chan string, 10_000)
	}
	return p.said[id]
}

// kill ends the process as a crash does, and returns when it is gone.
func (p *simbaProcess) kill() {
	_ = p.cmd.Process.Kill() // fails only if it is gone already
	<-p.gone
}

func (p *simbaProcess) says(format string, args ...any) {
	fmt.Fprintf(p.in, format+"\n", args...) // fails if it is gone, which hears notices
}

// hears waits until the process says that of a contender, and passes over other words.
func (p *simbaProcess) hears(ctx context.Context, id, what string) error {
	for {
		select {
		case got := <-p.sayings(id):
			if got == what {
				return nil
			}
			if strings.HasPrefix(got, "FAILED") {
				return errors.New(id + ": " + got)
			}
		case <-p.gone:
			return errGone
		case <-ctx.Done():
			return fmt.Errorf("Simba does not say %s of %s: %w", what, id, ctx.Err())
		}
	}
}

// simbaItself is a contender of Simba's own backend, in a process of its own. It starts another
// process, with another id, in place of one that was killed.
type simbaItself struct {
	path, addr, mutex, name string

	mu     sync.Mutex // guards what follows
	p      *simbaProcess
	id     string // in that process
	kills  int
	doomed bool // it is to be killed as the owner

	// What follows is its own goroutine's.
	owner *simbaProcess // that of its last tenure
	turns int
}

// token implements fenced: these versions take no token.
func (k *simbaItself) token() uint64 { return 0 }

// killedAsOwner implements mortal.
func (k *simbaItself) killedAsOwner() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.p != k.owner
}

// alive returns the process, which it starts if there is none, and the contender's id in it.
func (k *simbaItself) alive(ctx context.Context) (p *simbaProcess, id string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.p == nil {
		if p, err = startSimba(k.path, k.addr); err != nil {
			return nil, "", err
		}
		k.p, k.id = p, fmt.Sprint(k.name, "-", k.kills)
		if err := p.hears(ctx, "0", "READY"); err != nil {
			return nil, "", err
		}
	}
	return k.p, k.id, nil
}

// kill kills the process, if there is one.
func (k *simbaItself) kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.p != nil {
		k.p.kill()
		k.p = nil
		k.kills++
	}
}

// doom has the process killed when its contender has the mutex next.
func (k *simbaItself) doom() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.doomed = true
}

func (k *simbaItself) isDoomed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	was := k.doomed
	k.doomed = false
	return was
}

func (k *simbaItself) acquire(ctx context.Context) (string, error) {
	for {
		p, id, err := k.alive(ctx)
		if err != nil {
			return "", err
		}
		k.turns++
		p.says("start %s %s %d", id, k.mutex, k.turns)
		if err = p.hears(ctx, id, fmt.Sprint("ACQUIRED ", k.turns)); errors.Is(err, errGone) {
			continue
		}
		if k.owner = p; err == nil && k.isDoomed() {
			k.kill()
		}
		return id, err
	}
}

func (k *simbaItself) release(ctx context.Context) error {
	p, id, err := k.alive(ctx)
	if err != nil || p != k.owner {
		return err // it was killed as the owner: its lease ends by itself
	}
	p.says("stop %s", id)
	if err = p.hears(ctx, id, "STOPPED"); errors.Is(err, errGone) {
		return nil
	}
	return err
}

// TestSimbaItselfTakesTurnsWithOurs has two JVMs with Simba's own Redis backend and two of ours want one
// mutex, and kills JVMs, as owners and as waiters. Both versions are deaf on Redis by themselves: they listen
// on channels on which their scripts do not publish.
func TestSimbaItselfTakesTurnsWithOurs(t *testing.T) {
	for _, version := range []string{"2.9.5", "2.5.0"} {
		t.Run(version, func(t *testing.T) {
			path := simbaJars(t, version)
			for _, engine := range []string{"redis", "embedded"} {
				t.Run(engine, func(t *testing.T) {
					at := newSite(t, engine, 2)
					t.Run("turns", func(t *testing.T) { contendWithSimbaItself(newContestAt(t, at, "turns"), path) })
					t.Run("a renewal keeps the token", func(t *testing.T) { simbaItselfRenews(newContestAt(t, at, "renewed"), path) })
				})
			}
		})
	}
}

func contendWithSimbaItself(c *contest, path string) {
	t := c.t
	const changes, kills, pause, least = 300, 6, 20 * time.Millisecond, 10
	var theirs []*simbaItself
	var want []contender
	for i := range 2 {
		k := &simbaItself{path: path, addr: c.at.store, mutex: c.mutex, name: fmt.Sprint("jvm", i)}
		t.Cleanup(k.kill)
		if _, _, err := k.alive(t.Context()); err != nil {
			t.Fatal(err)
		}
		theirs, want = append(theirs, k), append(want, k)
	}
	end, killed := time.Now().Add(3*time.Minute), 0
	c.mix(want, pause, func() bool {
		if next := (killed + 1) * changes / (kills + 1); killed < kills && c.noted.enough(next, 4) {
			if k := theirs[killed%2]; killed/2%2 == 0 {
				k.doom()
			} else {
				k.kill()
			}
			killed++
		}
		took := c.noted.tookOver()
		fair := took[theirs[0].name] >= least && took[theirs[1].name] >= least
		return time.Now().After(end) || fair && c.noted.enough(changes, 4) || c.noted.enough(2*changes, 1)
	})
	c.inAllDirections()
	took := c.noted.tookOver()
	t.Logf("took over from another: %v; %d kills", took, killed)
	for _, k := range theirs {
		if took[k.name] < least {
			c.noted.breaks(turnsCome, "%s took over %d times", k.name, took[k.name])
		}
	}
	c.noted.more = []string{allWays}
	c.end()
}

// tookOver returns how often each took over from another, by its name without the number of its process.
func (l *tenures) tookOver() map[string]int {
	took := make(map[string]int)
	all := l.inOrder()
	for i := 1; i < len(all); i++ {
		name, _, _ := strings.Cut(all[i].owner, "-")
		if before, _, _ := strings.Cut(all[i-1].owner, "-"); before != name {
			took[name]++
		}
	}
	return took
}

// simbaItselfRenews has a contender of Simba's own own the mutex for three of its leases.
func simbaItselfRenews(c *contest, path string) {
	t := c.t
	k := &simbaItself{path: path, addr: c.at.store, mutex: c.mutex, name: "jvm"}
	t.Cleanup(k.kill)
	owner, err := k.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first, err := c.look(t.Context(), k, owner)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(3 * (itselfTTL + itselfTransition)); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if token, err := c.look(t.Context(), k, owner); err != nil || token != first {
			t.Fatalf("after %d it has %d, %v", first, token, err)
		}
	}
	if err := k.release(t.Context()); err != nil {
		t.Error(err)
	}
	c.noted.tell(t)
}
