package cli

import (
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestWhySaysWhoIsAheadAndUntilWhen(t *testing.T) {
	simbatest.Binary(t)
	onEveryEngine(t, func(t *testing.T, engine string) {
		s := contended(t, engine)
		shared := engine != "mysql"

		out := must(t, url(s), "why", "job", "--contender", "carol")
		for _, want := range []string{
			"job is held by alice, token ", "its lease ends in 10m", "unless the owner renews it",
			"carol is in the queue at position 2. Ahead of it: 1.\n  1. bob, polling, waiting for ",
			"bob is next, in 10m",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("carol reads\n%s\nwithout %q", out, want)
			}
		}
		if own := strings.Contains(out, "On the engine mysql this is the queue of "+s.Addr+" only."); own == shared {
			t.Errorf("carol reads\n%s", out)
		}

		bob := object(t, must(t, url(s), "why", "job", "--contender", "bob", "--json"))
		if bob["position"] != 1.0 || bob["shared_queue"] != shared || bob["engine"] != engine || bob["free_in"].(float64) <= 600_000 {
			t.Errorf("bob: %v", bob)
		}
		if owner := bob["owner"].(map[string]any); owner["owner"] != "alice" {
			t.Errorf("bob: %v", bob)
		}
		// Bob is first, so the end of the lease is the latest time; on mysql others may come first.
		if latest, ok := bob["yours_in"].(float64); ok != shared || ok && latest != bob["free_in"] {
			t.Errorf("bob: %v", bob)
		}
		if ahead := bob["ahead"].([]any); len(ahead) != 0 {
			t.Errorf("bob: %v", bob)
		}

		if out := must(t, url(s), "why", "job", "--contender", "alice"); !strings.HasSuffix(out, "\nalice owns it.\n") {
			t.Errorf("alice reads\n%s", out)
		}
		if out := must(t, url(s), "why", "job", "--contender", "dave"); !strings.Contains(out, "dave is not in the queue. Ahead of it, if it asks now: 2.") {
			t.Errorf("dave reads\n%s", out)
		}
		out = must(t, url(s), "why", "free")
		if !strings.HasPrefix(out, "free has no owner.\n") || !strings.Contains(out, "A new contender can have it now") {
			t.Errorf("of a free mutex\n%s", out)
		}
	})
}

// Two servers share a store: on mysql each has a queue of its own.
func TestWhyKnowsTheQueueOfOtherServersExceptOnMySQL(t *testing.T) {
	simbatest.Binary(t)
	simbatest.OnEveryStore(t, func(t *testing.T, store *simbatest.Shared) {
		here, there := store.Start(t), store.Start(t)
		simbatest.Acquire(t, simbatest.GoRedis(t, here), "job", "alice", 600_000)
		simbatest.Acquire(t, simbatest.GoRedis(t, there), "job", "bob", 600_000)
		w := object(t, must(t, url(here), "why", "job", "--json"))
		if shared := store.Engine != "mysql"; w["shared_queue"] != shared || (len(w["ahead"].([]any)) == 1) != shared {
			t.Errorf("%v", w)
		}
		if w["yours_in"] != nil {
			t.Errorf("a latest time although bob is ahead: %v", w)
		}
	})
}

func TestWhyWithoutTheRightToInfoSaysSo(t *testing.T) {
	users := writeUsers(t, "user default off", "user ops on >pen ~* +@all", "user dashboard on >pen %R~job +@read +@connection -@dangerous")
	s := simbatest.Start(t, "--aclfile", users)
	out := must(t, "redis://dashboard:pen@"+s.Addr, "why", "job")
	if !strings.Contains(out, "The user may not send INFO. On the engine mysql this would be the queue of "+s.Addr+" only.") {
		t.Errorf("it prints\n%s", out)
	}
}

func TestWhyShowsTheRecoveryDelay(t *testing.T) {
	s := simbatest.Start(t, "--durability", "async")
	simbatest.Acquire(t, simbatest.GoRedis(t, s), "job", "alice", 600_000)
	s.Restart()
	out := must(t, url(s), "why", "other")
	if !strings.Contains(out, "New grants are delayed for ") || !strings.Contains(out, "A new contender can have it in ") {
		t.Errorf("it prints\n%s", out)
	}
	if w := object(t, must(t, url(s), "why", "other", "--json")); w["yours_in"].(float64) <= 0 || w["yours_in"] != w["quiet_ms"] {
		t.Errorf("%v", w)
	}
	if out := must(t, url(s), "status"); !strings.Contains(out, "recovering") {
		t.Errorf("status prints\n%s", out)
	}
}
