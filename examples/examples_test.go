package examples_test

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/need"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

const (
	short = 8 * time.Second // TTL of a process that the test kills or freezes
	long  = time.Minute     // TTL of a process that releases the mutex
)

func TestTheOtherTakesOverFromAKilledOwner(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			m := newMutex(t, s, e)
			first := e.start(t, s, m.option, "first", short)
			killed := e.token(t, first)
			second := e.start(t, s, m.option, "second", long)
			m.waitFor("somebody waits", func() bool { return m.waiters() == 1 })
			first.Kill()
			stopped := e.token(t, second)
			if stopped <= killed {
				t.Errorf("the second process has token %d, want more than the first one's token %d", stopped, killed)
			}
			m.ended(killed, "expired")

			third := e.start(t, s, m.option, "third", short)
			m.waitFor("somebody waits", func() bool { return m.waiters() == 1 })
			second.Signal(syscall.SIGTERM)
			if code := second.Wait(t); code != 0 {
				t.Errorf("the second process exits with code %d:\n%s", code, second.Output())
			}
			last := e.token(t, third)
			if last <= stopped {
				t.Errorf("the third process has token %d, want more than the second one's token %d", last, stopped)
			}
			// The handoff is immediate. The bound is long, for busy machines, but much shorter than
			// a lease.
			if gap := m.began(last) - m.ended(stopped, "released"); gap > (long / 4).Milliseconds() {
				t.Errorf("the next tenure began %d ms after the release, want at most %v", gap, long/4)
			}

			third.Signal(syscall.SIGTERM)
			if code := third.Wait(t); code != 0 {
				t.Errorf("the third process exits with code %d:\n%s", code, third.Output())
			}
			m.ended(last, "released")
			if owner, waiters := m.owner(), m.waiters(); owner != "" || waiters != 0 {
				t.Errorf("after all processes have stopped, %q owns the mutex and %d wait, want no owner and no waiters", owner, waiters)
			}
		})
	}
}

func TestFrozenOwnerDoesNoWorkAfterItsLease(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			m := newMutex(t, s, e)
			frozen := e.start(t, s, m.option, "frozen", short)
			frozen.Wants(t, e.works)
			other := e.start(t, s, m.option, "other", long)
			m.waitFor("somebody waits", func() bool { return m.waiters() == 1 })
			// Freeze the process just after a piece of work, a second before the next one. A
			// process that is frozen between its check of the lease and the work would work when it
			// resumes.
			frozen.WantsAfter(t, frozen.Lines(), e.works)
			frozen.Pause()
			e.token(t, other)
			before := frozen.Lines()
			frozen.Resume()
			m.waitFor("the frozen process waits or has ended", func() bool { return m.waiters() == 1 || gone(frozen) })
			for _, line := range strings.Split(frozen.Output(), "\n")[before:] {
				if regexp.MustCompile(e.works).MatchString(line) {
					t.Errorf("the process works while another owns the mutex:\n%s", frozen.Output())
				}
			}
			for _, p := range []*simbatest.Process{frozen, other} {
				p.Signal(syscall.SIGTERM)
				p.Wait(t)
			}
		})
	}
}

// Containers that share the host's network have the same host name, and in each of them the program
// is process 1. So the default ids must have a random part.
func TestSameProcessNumberAndHostNameAreTwoContenders(t *testing.T) {
	t.Parallel()
	isolated := []string{"unshare", "--pid", "--fork", "--kill-child"}
	if out, err := exec.Command(isolated[0], append(isolated[1:], "true")...).CombinedOutput(); err != nil {
		need.Missing(t, "no PID namespaces (unshare of util-linux, as root): %v: %s", err, out)
	}
	s := simbatest.Start(t)
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			m := newMutex(t, s, e)
			first := e.startAs(t, isolated, s, m.option, "", long)
			token := e.token(t, first)
			second := e.startAs(t, isolated, s, m.option, "", long)
			owns := regexp.MustCompile("(?m)" + e.owns)
			m.waitFor("the second waits, or has the mutex", func() bool { return m.waiters() == 1 || owns.MatchString(second.Output()) })
			if owns.MatchString(second.Output()) {
				t.Errorf("the first process owns the mutex with token %d, and the second prints that it owns it:\n%s", token, second.Output())
			}
		})
	}
}

func gone(p *simbatest.Process) bool {
	select {
	case <-p.Exited():
		return true
	default:
		return false
	}
}

func TestObserverPrintsEachOwner(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	watcher := simbatest.Run(t, goProgram("observe")(t)[0], "--addr", s.Addr, "--mutex", "m")
	contend := examples[0]
	for _, id := range []string{"first", "second"} {
		leader := contend.start(t, s, "m", id, short)
		token := contend.token(t, leader)
		_, next := watcher.WantsAfter(t, 0, fmt.Sprintf("^%s owns it, token %d$", id, token))
		leader.Kill()
		watcher.WantsAfter(t, next, "^nobody owns it$")
	}
	watcher.Signal(syscall.SIGTERM)
	if code := watcher.Wait(t); code != 0 {
		t.Errorf("the example observe exits with code %d:\n%s", code, watcher.Output())
	}
}

// mutex is a mutex at the server.
type mutex struct {
	t      *testing.T
	option string // the value of --mutex for the example
	name   string
	rdb    *redis.Client
}

// newMutex returns the mutex of an example's processes.
func newMutex(t *testing.T, s *simbatest.Server, e example) *mutex {
	option := strings.ReplaceAll(e.name, "/", "-")
	m := &mutex{t: t, option: option, name: e.prefix + option, rdb: redis.NewClient(&redis.Options{Addr: s.Addr})}
	t.Cleanup(func() { m.rdb.Close() })
	return m
}

func (m *mutex) owner() string {
	m.t.Helper()
	r, err := simbatest.ToRecord(m.rdb.Do(context.Background(), "simba.owner", m.name).Result())
	if err != nil {
		m.t.Fatal(err)
	}
	return r.Text("owner")
}

func (m *mutex) waiters() int {
	m.t.Helper()
	queue, err := m.rdb.Do(context.Background(), "simba.queue", m.name).Slice()
	if err != nil {
		m.t.Fatal(err)
	}
	return len(queue)
}

// began returns the time in ms at which the tenure of a token began, by the server's history.
func (m *mutex) began(token uint64) int64 { m.t.Helper(); return m.event("acquired", token) }

// ended returns the time in ms at which the tenure of a token ended. event is the event that ended
// the tenure: released or expired.
func (m *mutex) ended(token uint64, event string) int64 { m.t.Helper(); return m.event(event, token) }

func (m *mutex) event(name string, token uint64) int64 {
	m.t.Helper()
	history, err := simbatest.ToRecords(m.rdb.Do(context.Background(), "simba.history", m.name, "count", 1000).Result())
	if err != nil {
		m.t.Fatal(err)
	}
	for _, event := range history {
		if event["event"] == name && uint64(event.Number("token")) == token {
			return event.Number("at")
		}
	}
	m.t.Fatalf("the history of the mutex has no event %s with token %d: %v", name, token, history)
	return 0
}

// waitFor calls condition until it returns true. what describes the condition.
func (m *mutex) waitFor(what string, condition func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(simbatest.Patience); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("this did not happen in time: %s", what)
		}
	}
}
