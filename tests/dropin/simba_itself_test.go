package dropin

import (
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
	"sync/atomic"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/need"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// Contenders with the JVM library Simba use these windows. They are longer than any pause of a busy
// machine.
const itselfTTL, itselfTransition = 5 * time.Second, time.Second

// simbaJars returns the class path of SimbaItself with a version of Simba's Redis backend.
func simbaJars(t testing.TB, version string) string {
	t.Helper()
	return jars(t, "simba-"+version, "ivy.xml", "SimbaItself.java", "-Dsimba="+version)
}

// jars compiles a program of jvm/ into a folder of scratch, and returns its class path. Ivy downloads
// what the program needs from its default repository. Without Ivy, jars skips the test, or fails it
// with CI=true.
func jars(t testing.TB, folder, needs, program string, options ...string) string {
	t.Helper()
	const ivy = "/usr/share/java/ivy.jar"
	java, javac := need.Program(t, "java", "default-jdk-headless"), need.Program(t, "javac", "default-jdk-headless")
	need.File(t, ivy, "ivy")
	dir := filepath.Join(scratch, folder)
	resolve := exec.Command(java, append(options, "-jar", ivy, "-ivy", filepath.Join("jvm", needs),
		"-confs", "default", "-types", "jar", "bundle", "-retrieve", filepath.Join(dir, "[artifact]-[revision].[ext]"))...)
	if out, err := resolve.CombinedOutput(); err != nil {
		t.Fatalf("Ivy cannot resolve jvm/%s: %v\n%s", needs, err, out)
	}
	path := filepath.Join(dir, "*") + string(os.PathListSeparator) + dir
	compile := exec.Command(javac, "-cp", path, "-d", dir, filepath.Join("jvm", program))
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	return path
}

var errGone = errors.New("the JVM has ended")

// simbaProcess is a JVM with contenders of Simba's own Redis backend: see jvm/SimbaItself.java.
type simbaProcess struct {
	*simbatest.Process
	in io.Writer
}

func startSimba(t testing.TB, path, addr string) *simbaProcess {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	simbatest.Must(t, err)
	cmd := exec.Command("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path, "SimbaItself",
		host, port, fmt.Sprint(itselfTTL.Milliseconds()), fmt.Sprint(itselfTransition.Milliseconds()))
	in, err := cmd.StdinPipe()
	simbatest.Must(t, err)
	return &simbaProcess{simbatest.RunCmd(t, cmd), in}
}

func (p *simbaProcess) send(format string, args ...any) {
	fmt.Fprintf(p.in, format+"\n", args...) // after an error, await returns errGone
}

// await waits until the process prints a line.
func (p *simbaProcess) await(ctx context.Context, format string, args ...any) error {
	for line := fmt.Sprintf("\n"+format+"\n", args...); ; {
		out := "\n" + p.Output() + "\n"
		switch {
		case strings.Contains(out, line):
			return nil
		case strings.Contains(out, "FAILED "):
			return errors.New(out)
		}
		select {
		case <-p.Exited():
			return errGone
		case <-ctx.Done():
			return fmt.Errorf("the JVM does not print %q: %w", line, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// simbaItself is a contender of Simba's own backend in a JVM of its own. After a kill it starts
// another JVM, with another contender id.
type simbaItself struct {
	t                       testing.TB
	path, addr, mutex, name string
	killNext                atomic.Bool // the next acquire kills the process when the contender owns the mutex

	mu    sync.Mutex // protects p, id and kills
	p     *simbaProcess
	id    string // the contender's id in p
	kills int

	// Only the contender's goroutine uses the fields below.
	owner  *simbaProcess // the process of its last tenure
	rounds int
}

// token implements fenced. Simba's versions 2.x have no tokens.
func (k *simbaItself) token() uint64 { return 0 }

func (k *simbaItself) killedAsOwner() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.p != k.owner
}

// alive returns the process and the contender's id in it. It starts a process if none runs.
func (k *simbaItself) alive(ctx context.Context) (p *simbaProcess, id string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.p == nil {
		k.p, k.id = startSimba(k.t, k.path, k.addr), fmt.Sprint(k.name, "-", k.kills)
		if err := k.p.await(ctx, "READY 0"); err != nil {
			return nil, "", err
		}
	}
	return k.p, k.id, nil
}

func (k *simbaItself) kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.p != nil {
		k.p.Kill()
		k.p = nil
		k.kills++
	}
}

func (k *simbaItself) acquire(ctx context.Context) (string, error) {
	for {
		p, id, err := k.alive(ctx)
		if err != nil {
			return "", err
		}
		k.rounds++
		p.send("start %s %s %d", id, k.mutex, k.rounds)
		if err = p.await(ctx, "ACQUIRED %s %d", id, k.rounds); errors.Is(err, errGone) {
			continue
		}
		if k.owner = p; err == nil && k.killNext.Swap(false) {
			k.kill()
		}
		return id, err
	}
}

func (k *simbaItself) release(ctx context.Context) error {
	p, id, err := k.alive(ctx)
	if err != nil || p != k.owner {
		return err // the owner was killed, so its lease ends by itself
	}
	p.send("stop %s %d", id, k.rounds)
	if err = p.await(ctx, "STOPPED %s %d", id, k.rounds); errors.Is(err, errGone) {
		return nil
	}
	return err
}

// TestSimbaItselfAndOurContendersShareAMutex lets two JVMs with Simba's own Redis backend and two
// contenders of ours contend. It kills JVMs while they own the mutex and while they wait. Simba
// 2.9.5 and 2.5.0 subscribe to other channels than their scripts publish on. So their contenders
// only poll, at the ends of the leases that they see.
func TestSimbaItselfAndOurContendersShareAMutex(t *testing.T) {
	for _, version := range []string{"2.9.5", "2.5.0"} {
		t.Run(version, func(t *testing.T) {
			path := simbaJars(t, version)
			for _, engine := range []string{"redis", "embedded"} {
				t.Run(engine, func(t *testing.T) {
					contendWithSimbaItself(newContestAt(t, newSite(t, engine, 2), "shared"), path)
				})
			}
		})
	}
}

func contendWithSimbaItself(c *contest, path string) {
	t := c.t
	c.lease = 6000 // JVMs ask again at the ends of these leases
	const changes, kills, pause, least = 300, 6, 20 * time.Millisecond, 5
	var theirs []*simbaItself
	var want []contender
	for i := range 2 {
		k := &simbaItself{t: t, path: path, addr: c.at.store, mutex: c.mutex, name: fmt.Sprint("jvm", i)}
		t.Cleanup(k.kill)
		if _, _, err := k.alive(t.Context()); err != nil {
			t.Fatal(err)
		}
		theirs, want = append(theirs, k), append(want, k)
	}
	end, killed := time.Now().Add(3*time.Minute), 0
	c.mix(want, pause, func() bool {
		if next := (killed + 1) * changes / (kills + 1); killed < kills && c.noted.reached(next, 4) {
			if k := theirs[killed%2]; killed/2%2 == 0 {
				k.killNext.Store(true)
			} else {
				k.kill()
			}
			killed++
		}
		took := c.noted.tookOver()
		fair := took[theirs[0].name] >= least && took[theirs[1].name] >= least
		return time.Now().After(end) || fair && killed == kills && c.noted.reached(changes, 4)
	})
	c.inAllDirections(fromKilled, "theirs to theirs")
	took := c.noted.tookOver()
	t.Logf("takeovers from another contender: %v; %d kills", took, killed)
	for _, k := range theirs {
		if took[k.name] < least {
			c.noted.breaks(noStarvation, "%s acquired the mutex after another contender only %d times", k.name, took[k.name])
		}
	}
	c.end()
}

// tookOver returns how often each contender became the owner after another one. The key is the id
// of the contender without its suffix, the number of kills.
func (l *notes) tookOver() map[string]int {
	took := make(map[string]int)
	all := l.inOrder()
	for i := 1; i < len(all); i++ {
		name, _, _ := strings.Cut(all[i].Owner, "-")
		if before, _, _ := strings.Cut(all[i-1].Owner, "-"); before != name {
			took[name]++
		}
	}
	return took
}
