package cli

import (
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestWhySaysWhoIsAheadAndUntilWhen(t *testing.T) {
	simbatest.OnEveryEngine(t, func(t *testing.T, engine string) {
		s := contended(t, engine)
		shared := engine != "mysql" && engine != "postgres"

		out := must(t, url(s), "why", "job", "--contender", "carol")
		for _, want := range []string{
			"job is held by alice, token ", "its lease ends in 10m", "unless the owner renews it",
			"carol is in the queue at position 2. Ahead of it: 1.\n  1. bob, polling, waiting for ",
			"It is free in 10m",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("why for carol prints\n%s\nwant %q in it", out, want)
			}
		}
		if strings.Contains(out, "Who is next is not known: bob polls.\nThe server skips a polling waiter that it cannot notify.\n") != shared {
			t.Errorf("why for carol prints the wrong text for this engine:\n%s", out)
		}
		if own := strings.Contains(out, "On the engine "+engine+" this is the queue of "+s.Addr+" only."); own == shared {
			t.Errorf("why for carol prints the wrong text for this engine:\n%s", out)
		}

		bob := object(t, must(t, url(s), "why", "job", "--contender", "bob", "--json"))
		if bob["position"] != 1.0 || bob["shared_queue"] != shared || bob["engine"] != engine || bob["free_in_ms"].(float64) <= 600_000 {
			t.Errorf("why --json for bob prints %v, want position 1, the engine, and a mutex that is free after 10 minutes", bob)
		}
		if owner := bob["owner"].(map[string]any); owner["owner"] != "alice" {
			t.Errorf("why --json for bob prints %v, want the owner alice", bob)
		}
		// Bob is first, but polls. The server may have to skip bob, so it does not know who is
		// next.
		if bob["yours_in_ms"] != nil || bob["next"] != nil {
			t.Errorf("why --json for bob prints %v, want that the next owner and the time of a grant to bob are not known", bob)
		}
		if ahead := bob["ahead"].([]any); len(ahead) != 0 {
			t.Errorf("why --json for bob prints %v, want no waiter ahead", bob)
		}

		if out := must(t, url(s), "why", "job", "--contender", "alice"); !strings.HasSuffix(out, "\nalice owns it.\n") {
			t.Errorf("why for alice prints\n%s\nwant at the end that alice owns the mutex", out)
		}
		if out := must(t, url(s), "why", "job", "--contender", "dave"); !strings.Contains(out, "dave is not in the queue. Ahead of it, if it asks now: 2.") {
			t.Errorf("why for dave prints\n%s\nwant that dave is not in the queue, and 2 waiters are ahead", out)
		}
		out = must(t, url(s), "why", "free")
		if !strings.HasPrefix(out, "free has no owner.\n") || !strings.Contains(out, "A new contender can have it now") {
			t.Errorf("why of a free mutex prints\n%s\nwant no owner, and that a new contender can have it now", out)
		}
	})
}

func TestWhyWithoutTheRightToInfoSaysSo(t *testing.T) {
	users := writeUsers(t, "user default off", "user ops on >pen ~* +@all", "user dashboard on >pen %R~job +@read +@connection -@dangerous")
	s := simbatest.Start(t, "--aclfile", users)
	out := must(t, "redis://dashboard:pen@"+s.Addr, "why", "job")
	if !strings.Contains(out, "\nThe user may not send INFO. If the engine is mysql or postgres, other servers may have more waiters.\n") {
		t.Errorf("why prints\n%s\nwant that the user may not send INFO", out)
	}
}

func TestWhyShowsTheRecoveryDelay(t *testing.T) {
	s := simbatest.Start(t, "--durability", "async")
	simbatest.Acquire(t, simbatest.GoRedis(t, s), "job", "alice", 600_000)
	s.Restart()
	out := must(t, url(s), "why", "other")
	if !strings.Contains(out, "New grants are delayed for ") || !strings.Contains(out, "A new contender can have it in ") {
		t.Errorf("why prints\n%s\nwant the recovery delay, and when a new contender can have it", out)
	}
	if w := object(t, must(t, url(s), "why", "other", "--json")); w["yours_in_ms"].(float64) <= 0 || w["yours_in_ms"] != w["recovery_delay_ms"] {
		t.Errorf("why --json prints %v, want equal yours_in_ms and recovery_delay_ms above 0", w)
	}
	if out := must(t, url(s), "status"); !strings.Contains(out, "recovering") {
		t.Errorf("status prints no recovery delay:\n%s", out)
	}
}
