package commands

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
)

func record(proto int, pairs ...string) string {
	head := fmt.Sprintf("*%d\r\n", len(pairs))
	if proto == 3 {
		head = fmt.Sprintf("%%%d\r\n", len(pairs)/2)
	}
	var b strings.Builder
	for i, p := range pairs {
		if i%2 == 0 {
			p = bulk(p)
		}
		b.WriteString(p)
	}
	return head + b.String()
}

func integers(n int64) string { return fmt.Sprintf(":%d\r\n", n) }

func TestRepliesOfTheSimbaCommands(t *testing.T) {
	backend := &fakeBackend{
		acquire: func(r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
			switch r.Mutex {
			case "free":
				return simba.Outcome{Status: simba.StatusAcquired, Owner: "c", Token: 1 << 62, TTL: 10*time.Second - 1, Transition: 12 * time.Second, Seq: 1}, nil, nil
			case "held":
				return simba.Outcome{Status: simba.StatusQueued, Owner: "o", Token: 7, TTL: time.Millisecond, Transition: 2 * time.Millisecond, Position: 3, Seq: 1}, nil, nil
			}
			// The mutex is reserved for another waiter.
			return simba.Outcome{Status: simba.StatusQueued, Position: 1}, nil, nil
		},
		guard: func(r simba.GuardRequest) (simba.Outcome, error) {
			if r.Mutex == "mine" {
				return simba.Outcome{Status: simba.StatusRenewed, Owner: "c", Token: 7, TTL: r.TTL, Transition: r.TTL + r.Transition}, nil
			}
			return simba.Outcome{Status: simba.StatusLost}, nil
		},
		release: func(r simba.ReleaseRequest) (bool, simba.Seq, error) { return r.Mutex == "mine", 0, nil },
		check:   func(_ string, token uint64) (bool, simba.Seq, error) { return token == 7, 0, nil },
		break_:  func(m, _ string) (bool, simba.Seq, error) { return m == "mine", 0, nil },
		owner: func(m string) (simba.Tenure, simba.Seq, error) {
			if m == "free" {
				return simba.Tenure{}, 0, nil
			}
			t := simba.Tenure{Owner: "o", Token: 7, AcquiredAt: 1000, TTLAt: 2000, TransitionAt: 2500, Now: 1700,
				TTL: 300 * time.Millisecond, Transition: 800 * time.Millisecond, Waiters: 2}
			switch m {
			case "bound":
				t.StartedAt, t.Session = 900, 1
			case "closed":
				t.Session = 99
			}
			return t, 0, nil
		},
		queue: func(m string, _ int) ([]simba.QueueEntry, simba.Seq, error) {
			if m == "free" {
				return nil, 0, nil
			}
			return []simba.QueueEntry{
				{Contender: "a", Position: 1, Waiting: 1500 * time.Microsecond, Blocked: true},
				{Contender: "b", Position: 2},
			}, 0, nil
		},
		scan: func(simba.ScanRequest) (simba.ScanPage, simba.Seq, error) {
			return simba.ScanPage{Cursor: 1<<64 - 1, Mutexes: []string{"a", "b"}}, 0, nil
		},
		history: func(simba.HistoryRequest) ([]simba.Event, simba.Seq, error) {
			return []simba.Event{
				{Seq: 5, At: 1000, Kind: simba.EventBroken, Mutex: "m", Owner: "o", Token: 7, Reason: "asleep"},
				{Seq: 6, At: 1001, Kind: simba.EventQueued, Mutex: "m", Owner: "p"},
			}, 0, nil
		},
	}
	p := newSite(t, Config{Backend: backend}).dial()
	p.expect("CLIENT SETNAME worker", "+OK\r\n")

	outcome := func(proto int, status, owner string, numbers ...int64) string {
		return record(proto, "status", bulk(status), "owner", bulk(owner), "token", integers(numbers[0]),
			"ttl", integers(numbers[1]), "transition", integers(numbers[2]), "position", integers(numbers[3]))
	}
	owner := func(proto int, since, connection string) string {
		return record(proto, "owner", bulk("o"), "token", integers(7), "acquired_at", integers(1000),
			"ttl_at", integers(2000), "transition_at", integers(2500), "now", integers(1700), "ttl", integers(300),
			"transition", integers(800), "waiters", integers(2), "since", since, "connection", connection)
	}
	for _, proto := range []int{2, 3} {
		p.do(fmt.Sprintf("HELLO %d", proto))
		null := "$-1\r\n"
		if proto == 3 {
			null = "_\r\n"
		}
		for _, tt := range []struct{ command, want string }{
			{"SIMBA.ACQUIRE free c 10000", outcome(proto, "acquired", "c", 1<<62, 9999, 12000, 0)},
			{"SIMBA.ACQUIRE held c 10000", outcome(proto, "queued", "o", 7, 1, 2, 3)},
			{"SIMBA.ACQUIRE reserved c 10000", outcome(proto, "queued", "", 0, 0, 0, 1)},
			{"SIMBA.GUARD mine c 10000 TRANSITION 500", outcome(proto, "renewed", "c", 7, 10000, 10500, 0)},
			{"SIMBA.GUARD theirs c 10000", outcome(proto, "lost", "", 0, 0, 0, 0)},
			{"SIMBA.RELEASE mine c", ":1\r\n"},
			{"SIMBA.RELEASE theirs c", ":0\r\n"},
			{"SIMBA.CHECK m 7", ":1\r\n"},
			{"SIMBA.CHECK m 8", ":0\r\n"},
			{"SIMBA.CHECK m 0", ":0\r\n"},
			{"SIMBA.CHECK free 0", ":0\r\n"},
			{"SIMBA.BREAK mine", ":1\r\n"},
			{"SIMBA.BREAK theirs", ":0\r\n"},
			{"SIMBA.OWNER free", null},
			{"SIMBA.OWNER held", owner(proto, null, null)},
			{"SIMBA.OWNER closed", owner(proto, null, null)},
			{"SIMBA.OWNER bound", owner(proto, integers(900),
				record(proto, "id", integers(1), "addr", bulk("pipe"), "name", bulk("worker")))},
			{"SIMBA.QUEUE free", "*0\r\n"},
			{"SIMBA.QUEUE held", "*2\r\n" +
				record(proto, "contender", bulk("a"), "position", integers(1), "waiting", integers(1), "kind", bulk("blocked")) +
				record(proto, "contender", bulk("b"), "position", integers(2), "waiting", integers(0), "kind", bulk("polling"))},
			{"SIMBA.SCAN 0", "*2\r\n" + bulk("18446744073709551615") + bulks("a", "b")},
			{"SIMBA.HISTORY m", "*2\r\n" +
				record(proto, "seq", integers(5), "at", integers(1000), "event", bulk("broken"), "owner", bulk("o"), "token", integers(7), "reason", bulk("asleep")) +
				record(proto, "seq", integers(6), "at", integers(1001), "event", bulk("queued"), "owner", bulk("p"), "token", integers(0), "reason", bulk(""))},
		} {
			p.expect(tt.command, tt.want)
		}
	}
}

func TestSimbaHelpShowsEachSimbaCommand(t *testing.T) {
	p := newSite(t, Config{}).dial()
	help := p.do("SIMBA.HELP")
	for _, line := range []string{
		"+SIMBA.ACQUIRE mutex contender ttl [TRANSITION ms] [WAIT ms [VIA waiter REQUEST n] | NOQUEUE] [SESSION]\r\n",
		"+SIMBA.GUARD mutex contender ttl [TRANSITION ms] [TOKEN token]\r\n",
		"+SIMBA.SCAN cursor [MATCH pattern] [COUNT count] [STATE <held | contended>]\r\n",
		"+SIMBA.BACKUP READ offset\r\n", "+SIMBA.HELP\r\n",
	} {
		if !strings.Contains(help, line) {
			t.Errorf("SIMBA.HELP lacks %q; it replied %q", line, help)
		}
	}
	if strings.Contains(help, "CLIENT") {
		t.Errorf("SIMBA.HELP replied %q, want no commands of Redis", help)
	}
}

func TestErrorsOfTheEngineBecomeReplies(t *testing.T) {
	var err error
	backend := &fakeBackend{
		acquire: func(simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
			return simba.Outcome{}, nil, err
		},
		owner: func(string) (simba.Tenure, simba.Seq, error) { return simba.Tenure{}, 0, err },
	}
	p := newSite(t, Config{Backend: backend}).dial()
	for _, tt := range []struct {
		err  error
		want string
	}{
		{simba.ErrStopped, "TRYAGAIN the server is stopping"},
		{fmt.Errorf("BREAK: %w", simba.ErrNotServed), "ERR BREAK: not served by this engine"},
		{errors.New("engine redis unavailable: dial tcp:\r\nrefused"), "TRYAGAIN engine redis unavailable: dial tcp:  refused"},
		{&simba.NameError{Argument: "contender", Problem: "too odd for this engine"}, "ERR invalid contender: too odd for this engine"},
	} {
		err = tt.err
		for _, command := range []string{"SIMBA.ACQUIRE m c 1", "SIMBA.ACQUIRE m c 1 WAIT 0", "SIMBA.OWNER m", "TYPE simba:{m}", "STRLEN simba:{m}"} {
			p.expect(command, failed(tt.want))
		}
	}
}
