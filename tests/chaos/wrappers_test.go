package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
	"github.com/simba-resp/simba-resp/tests/tenures"
)

const (
	wrapperCount = 2
	// wrapperTTL and wrapperGrace are together half of sessionTimeout, as the guide of the engine
	// zookeeper asks.
	wrapperTTL   = time.Second
	wrapperGrace = time.Second
	wrapperLease = wrapperTTL + wrapperGrace
)

// wrappers are processes of `simba-resp lock` that contend for one mutex in all windows of an
// engine. Beside the faults of the windows, they have faults of their own. Their commands write
// timestamps while they run, which judge compares.
type wrappers struct {
	t             *testing.T
	program, file string
	command       string

	mu     sync.Mutex // guards the fields below
	log    []string
	stalls []span // when this process stood still, and perhaps the machine did
}

// span is a time by the monotonic clock.
type span struct{ first, last time.Duration }

func (s span) length() time.Duration { return s.last - s.first }

// runWrappers lets the wrappers contend until the caller calls judge.
func runWrappers(t *testing.T, w *world, rng *rand.Rand) (judge func()) {
	t.Helper()
	if w.rules.forgets {
		return func() {} // after a crash, the next command starts beside the old one
	}
	s := &wrappers{t: t, program: simbatest.Binary(t), command: simbatest.Build(t, "tests/wrapper/worker"), file: t.TempDir() + "/moments"}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range wrapperCount {
		link := stores.NewLink(t, w.routes[i%len(w.routes)].Addr())
		own := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
		all.Go(func() {
			for ctx.Err() == nil {
				s.runOne(ctx, link, own)
			}
		})
	}
	all.Go(func() { s.noteStalls(ctx) })
	return func() {
		cancel()
		all.Wait()
		s.judge()
	}
}

// runOne runs one wrapper until it has ended. It waits for the command, and then causes a fault.
func (s *wrappers) runOne(ctx context.Context, link *stores.Link, rng *rand.Rand) {
	args := []string{"lock", "--url", "redis://" + link.Addr(), "--ttl", wrapperTTL.String(), "--grace", wrapperGrace.String(), "wrapped", "--",
		s.command, "--file", s.file}
	stubborn := rng.IntN(2) == 0
	if stubborn {
		args = append(args, "--stubborn")
	}
	cmd := exec.Command(s.program, args...)
	// The kernel ignores SIGTSTP for a process of an orphaned process group. This group is not.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p := simbatest.RunCmd(s.t, cmd)
	defer func() {
		p.Kill()
		link.Heal()
	}()
	started := regexp.MustCompile(`(?m)^started (\d+) token (\d+)`)
	var match []string
	for match == nil {
		if !sleep(ctx, p, 10*time.Millisecond) {
			return
		}
		match = started.FindStringSubmatch(p.Output())
	}
	pid, _ := strconv.Atoi(match[1])
	say := func(what string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.log = append(s.log, fmt.Sprintf("%v wrapper %d of token %s: %s", tenures.Clock(), p.Pid(), match[2], what))
	}
	some := func(limit time.Duration) bool { return sleep(ctx, p, time.Duration(rng.Int64N(int64(limit)))) }
	say("its command has started")
	if !some(wrapperLease) {
		return
	}
	if rng.IntN(3) == 0 {
		say("cut off")
		link.Blackhole()
	}
	switch rng.IntN(6) {
	case 0:
		say("asked to end")
		p.Signal(unix.SIGTERM)
		if stubborn {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	case 1:
		say("killed; the kernel kills the command")
		return
	case 2:
		say("the command is killed")
		_ = unix.Kill(-pid, unix.SIGKILL)
	case 3, 4:
		say("gets SIGTSTP")
		p.Signal(unix.SIGTSTP)
		awaitStop(p.Pid())
		say("has stopped")
		if !some(2 * wrapperLease) {
			return
		}
		say("continues")
		p.Signal(unix.SIGCONT)
	case 5: // both at once, and then the wrapper first
		p.Pause()
		_ = unix.Kill(-pid, unix.SIGSTOP)
		say("frozen with its command")
		if !sleep(ctx, p, wrapperLease+wrapperLease/4) {
			return
		}
		say("continues")
		p.Resume()
		select {
		case <-p.Exited():
		case <-time.After(simbatest.Patience):
			s.t.Errorf("the wrapper has not ended %v after it continued:\n%s", simbatest.Patience, p.Output())
		}
		return
	}
	link.Heal()
	some(wrapperLease)
}

// sleep sleeps until ctx or the process has ended. It then returns false.
func sleep(ctx context.Context, p *simbatest.Process, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-p.Exited():
		return false
	case <-time.After(d):
		return true
	}
}

// awaitStop waits until a child has stopped or ended.
func awaitStop(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// noteStalls notes when this process stands still. A wrapper that stands still for longer than a
// quarter of its grace may end its command too late: see docs/guides/wrap-a-command.md.
func (s *wrappers) noteStalls(ctx context.Context) {
	for last := tenures.Clock(); ctx.Err() == nil; {
		time.Sleep(10 * time.Millisecond)
		now := tenures.Clock()
		if now-last > wrapperGrace/8 {
			s.mu.Lock()
			s.stalls = append(s.stalls, span{last, now})
			s.mu.Unlock()
		}
		last = now
	}
}

// excused reports whether a stall can have caused an overlap. The stall must be as long. It must
// also have delayed the SIGKILL of the old wrapper, which is due a quarter of the grace before the
// end of the lease.
func (s *wrappers) excused(overlap span) bool {
	return slices.ContainsFunc(s.stalls, func(stall span) bool {
		return stall.length() >= overlap.length() && stall.first < overlap.last && stall.last > overlap.first-wrapperGrace/4
	})
}

// judge compares the timestamps of the commands. Two commands must never run at once.
func (s *wrappers) judge() {
	ran := tenures.Moments(s.t, s.file)
	for i := 1; i < len(ran); i++ {
		old, next := ran[i-1], ran[i]
		overlap := span{next.From, old.To}
		switch {
		case overlap.length() < 0:
		case s.excused(overlap):
			s.t.Logf("the machine stood still while the commands with the tokens %d and %d overlapped by %v", old.Token, next.Token, overlap.length())
		default:
			s.t.Errorf("the command with token %d still ran %v after the start of the command with token %d, at %v\n%s\nstalls: %v",
				old.Token, overlap.length(), next.Token, overlap.first, strings.Join(s.log, "\n"), s.stalls)
		}
	}
	s.t.Logf("%d commands ran in wrappers", len(ran))
}
