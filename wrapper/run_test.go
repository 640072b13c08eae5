package wrapper

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/tests/need"
)

// fakeLease is a lease whose windows the test sets.
type fakeLease struct {
	ctx   context.Context
	owner client.Owner
}

func (l *fakeLease) Context() context.Context { return l.ctx }
func (l *fakeLease) Owner() client.Owner      { return l.owner }

// renew starts both windows again.
func (l *fakeLease) renew() {
	l.owner.TTLAt = time.Now().Add(10 * time.Second)
	l.owner.TransitionAt = l.owner.TTLAt.Add(4 * time.Second)
}

// sent is a signal, and when the wrapper first sent it.
type sent struct {
	sig unix.Signal
	at  time.Duration
}

func TestSignalsComeAtTheirPlacesInTheWindows(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		event func(l *fakeLease, lose func()) // after 7 s
		want  []sent
		lost  bool
	}{
		"not renewed": {
			event: func(*fakeLease, func()) {},
			want:  []sent{{unix.SIGTERM, 10 * s}, {unix.SIGCONT, 10 * s}, {unix.SIGKILL, 13 * s}},
			lost:  true,
		},
		"renewed once": {
			event: func(l *fakeLease, _ func()) { l.renew() },
			want:  []sent{{unix.SIGTERM, 17 * s}, {unix.SIGCONT, 17 * s}, {unix.SIGKILL, 20 * s}},
			lost:  true,
		},
		"broken": {
			event: func(_ *fakeLease, lose func()) { lose() },
			want:  []sent{{unix.SIGTERM, 7 * s}, {unix.SIGCONT, 7 * s}, {unix.SIGKILL, 10 * s}},
			lost:  true,
		},
		"suspended into the transition window": {
			event: func(l *fakeLease, _ func()) {
				l.owner.TTLAt, l.owner.TransitionAt = l.owner.TTLAt.Add(-5*s), l.owner.TransitionAt.Add(-5*s)
			},
			want: []sent{{unix.SIGTERM, 7 * s}, {unix.SIGCONT, 7 * s}, {unix.SIGKILL, 8 * s}},
			lost: true,
		},
		// The server's reply has the time that is left. That may be less than the windows.
		"a lease that is shorter than the windows": {
			event: func(l *fakeLease, _ func()) {
				l.owner.TTLAt = time.Now().Add(4 * s)
				l.owner.TransitionAt = l.owner.TTLAt
			},
			want: []sent{{unix.SIGKILL, 10 * s}},
			lost: true,
		},
		"suspended beyond the lease": {
			event: func(l *fakeLease, lose func()) {
				l.owner.TTLAt, l.owner.TransitionAt = l.owner.TTLAt.Add(-3600*s), l.owner.TransitionAt.Add(-3600*s)
				lose()
			},
			want: []sent{{unix.SIGKILL, 7 * s}},
			lost: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, lose := context.WithCancel(t.Context())
				defer lose()
				l := &fakeLease{ctx: ctx}
				l.renew()
				var got []sent
				r := &run{
					Runner: &Runner{Mutex: "job", Grace: 4 * s, Say: t.Logf}, lease: l,
					send: func(sig unix.Signal) error {
						if !slices.ContainsFunc(got, func(s sent) bool { return s.sig == sig }) {
							got = append(got, sent{sig, time.Since(began)})
						}
						return nil
					},
				}
				for happened := false; time.Since(began) < 30*s; {
					if !happened && time.Since(began) >= 7*s {
						happened = true
						c.event(l, lose)
					}
					time.Sleep(r.check())
				}
				if !slices.Equal(got, c.want) || r.Lost != c.lost {
					t.Errorf("signals %v, lost %v; want signals %v, lost %v", got, r.Lost, c.want, c.lost)
				}
			})
		})
	}
}

// After SIGTERM the machine is suspended. SIGKILL must not wait for the rest of the grace.
func TestSuspensionWhileTheCommandStopsBringsSIGKILLForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &fakeLease{ctx: t.Context()}
		l.renew()
		killed := false
		r := &run{
			Runner: &Runner{Mutex: "job", Grace: 4 * time.Second, Say: t.Logf}, lease: l,
			send: func(sig unix.Signal) error { killed = killed || sig == unix.SIGKILL; return nil },
		}
		time.Sleep(10 * time.Second)
		r.check()
		if killed || r.killAt.IsZero() {
			t.Fatalf("before the suspension: killed %v, SIGKILL is due at %v; want no SIGKILL yet, and a time when it is due", killed, r.killAt)
		}
		l.owner.TransitionAt = l.owner.TransitionAt.Add(-3 * time.Second)
		if r.check(); !killed {
			t.Error("no SIGKILL after the suspension")
		}
	})
}

// The client may count a lease as lost 250 ms before its end.
func TestShortestGraceLeavesHalfASecondBehindSIGKILL(t *testing.T) {
	if got := margin(MinGrace); got != 500*time.Millisecond {
		t.Errorf("the margin is %v, want 500 ms", got)
	}
}

func TestLostMutexStartsNoCommand(t *testing.T) {
	ctx, lose := context.WithCancel(t.Context())
	lose()
	file := t.TempDir() + "/started"
	c, err := Find([]string{"touch", file})
	if err != nil {
		t.Fatal(err)
	}
	r := &Runner{Mutex: "job", Grace: MinGrace, Say: t.Logf}
	result, err := r.Run(c, &fakeLease{ctx: ctx})
	if err != nil || result != (Result{Lost: true, Code: NotStarted}) {
		t.Errorf("Run with a lost mutex: %+v, error %v; want Lost and NotStarted, and no error", result, err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the command has run")
	}
}

// panickyLease panics when the file exists.
type panickyLease struct {
	fakeLease
	file string
}

func (l *panickyLease) Owner() client.Owner {
	if _, err := os.Stat(l.file); err == nil {
		panic("planted")
	}
	return l.owner
}

// Without Run's SIGKILL, the kernel kills only the first process, after the report of the panic.
func TestPanicKillsTheWholeGroup(t *testing.T) {
	l := &panickyLease{fakeLease: fakeLease{ctx: t.Context()}, file: t.TempDir() + "/child"}
	l.owner.TTLAt = time.Now().Add(time.Hour)
	l.owner.TransitionAt = l.owner.TTLAt.Add(time.Hour)
	c, err := Find([]string{"sh", "-c", `sleep 600 & echo $! >"$1".new; mv "$1".new "$1"; wait`, "sh", l.file})
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Run did not panic")
			}
		}()
		_, _ = (&Runner{Mutex: "job", Grace: MinGrace, Say: t.Logf}).Run(c, l)
	}()
	text, err := os.ReadFile(l.file)
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(need.Hang); unix.Kill(child, 0) == nil; time.Sleep(time.Millisecond) {
		_, _ = unix.Wait4(child, nil, unix.WNOHANG, nil) // the child is now a child of the test
		if time.Now().After(end) {
			t.Fatal("one minute after the panic, the child of the first process still runs")
		}
	}
}
