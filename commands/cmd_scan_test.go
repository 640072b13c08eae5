package commands

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/engine"
)

func TestScanParsesArgumentsAsRedis(t *testing.T) {
	expectSameAsRedis(t, []string{
		"SCAN", "SCAN x", "SCAN 0 x", "SCAN 0 x y", "SCAN 0 MATCH", "SCAN 0 COUNT 0", "SCAN 0 COUNT x MATCH", "SCAN 0 COUNT 0 MATCH", "SCAN 0 MATCH a COUNT 1.5", "SCAN 0 TYPE", "SCAN 0 COUNT",
		"KEYS", "KEYS a b", "KEYS *", "DBSIZE", "DBSIZE x",
		"SET one v", "KEYS *", "KEYS o?e", "KEYS [a-n]*", "KEYS simba:*", "DBSIZE",
		"DEL one", "HSET h f v", "KEYS h",
	})
}

func listed(reply string) []string {
	var words []string
	lines := strings.Split(reply, "\r\n")
	for i := 2; i < len(lines); i += 2 {
		words = append(words, lines[i])
	}
	slices.Sort(words)
	return words
}

func TestKeysListsPlainNames(t *testing.T) {
	p := newEngineSite(t).dial()
	for _, key := range []string{"job", "simba:{jam}", "simba:{a{b}", "simba:x", "simba:{simba:{job}}"} {
		p.expect("SET "+key+" v", ok)
	}
	p.do("ZADD simba:{free}:contender 1 a")
	for glob, want := range map[string][]string{
		"*":                   {"a{b", "jam", "job", "simba:x", "simba:{simba:{job}}"},
		"j*":                  {"jam", "job"},
		"s*":                  {"simba:x", "simba:{simba:{job}}"},
		"simba:{*":            {"simba:{a{b}", "simba:{jam}", "simba:{job}", "simba:{simba:x}", "simba:{simba:{job}}"},
		"simba:{ja?}":         {"simba:{jam}"},
		"simba:{*}:contender": nil,
	} {
		if got := listed(p.do("KEYS " + glob)); !slices.Equal(got, want) {
			t.Errorf("KEYS %s lists %q, want %q", glob, got, want)
		}
		_, page, _ := strings.Cut(p.do("SCAN 0 COUNT 1000 MATCH "+glob), "\r\n0\r\n")
		if got := listed(page); !slices.Equal(got, want) {
			t.Errorf("SCAN MATCH %s lists %q, want %q", glob, got, want)
		}
		for _, key := range want {
			p.expect("EXISTS "+key, ":1\r\n")
		}
	}
}

func TestScanAndKeysListEveryKey(t *testing.T) {
	const n = 25_000 // many pages
	p := newEngineSite(t).dial()
	for i := range n {
		p.do("SET k" + decimal(int64(i)) + " v")
	}
	if got := listed(p.do("KEYS k*")); len(got) != n || len(slices.Compact(got)) != n {
		t.Errorf("KEYS lists %d keys, want %d different ones", len(got), n)
	}
	p.expect("DBSIZE", ":25000\r\n")
	for _, scan := range []string{"SCAN 0 COUNT 10000", "SIMBA.SCAN 0 COUNT 10000", "SCAN 0 COUNT 10000 MATCH k*"} {
		if n := len(listed(p.do(scan))); n < 10_000 || n > 11_000 {
			t.Errorf("%s lists %d keys, want 10000 to 11000", scan, n)
		}
	}
}

// claimingEngine returns a new Seq with each listing, and records the committed Seqs.
type claimingEngine struct {
	*engine.Engine
	claim     simba.Seq
	committed map[simba.Seq]bool
}

func (e *claimingEngine) Scan(ctx context.Context, r simba.ScanRequest) (simba.ScanPage, simba.Seq, error) {
	page, _, err := e.Engine.Scan(ctx, r)
	e.claim++
	return page, e.claim, err
}

func (e *claimingEngine) Stats() simba.Stats {
	s := e.Engine.Stats()
	e.claim++
	s.Seq = e.claim
	return s
}

func (e *claimingEngine) Commit(seq simba.Seq) error {
	e.committed[seq] = true
	return nil
}

func TestListingsAreDurableBeforeTheReply(t *testing.T) {
	claiming := &claimingEngine{newEngine(t), 1 << 60, map[simba.Seq]bool{}}
	p := newSite(t, Config{Backend: claiming}).dial()
	p.do("SET k v")
	for _, command := range []string{"KEYS *", "SCAN 0", "DBSIZE"} {
		for _, run := range [][]string{{command}, {"MULTI", command, "EXEC"}} {
			before := claiming.claim
			for _, c := range run {
				if reply := p.do(c); reply[0] == '-' {
					t.Fatalf("%s replied %s, want no error", c, reply)
				}
			}
			if !claiming.committed[claiming.claim] || claiming.claim == before {
				t.Errorf("the reply to %q came before the listing was durable", run)
			}
		}
	}
}

// changingEngine changes the key k before the second listing.
type changingEngine struct {
	*engine.Engine
	scans int
}

func (e *changingEngine) Scan(ctx context.Context, r simba.ScanRequest) (simba.ScanPage, simba.Seq, error) {
	if e.scans++; e.scans == 2 {
		_, err := e.Update(func(tx simba.Tx) error {
			tx.Take("k", simba.Lock{Owner: "w", TTL: simba.Endless})
			return nil
		})
		if err != nil {
			return simba.ScanPage{}, 0, err
		}
	}
	return e.Engine.Scan(ctx, r)
}

func TestAListingCausesNoConflict(t *testing.T) {
	p := newSite(t, Config{Backend: &changingEngine{Engine: newEngine(t)}}).dial()
	for _, command := range []string{"SET k v", "WATCH watched", "MULTI", "SCAN 0 COUNT 100", "KEYS *"} {
		p.do(command)
	}
	if got := p.do("EXEC"); !strings.HasPrefix(got, "*2\r\n*2\r\n") {
		t.Errorf("EXEC replied %q, want two listings", got)
	}
	p.expect("GET k", bulk("w"))
}
