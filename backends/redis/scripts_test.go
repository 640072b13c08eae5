package redis

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// farToken is larger than any token that scripts derive from the clock. So the next token is one
// more.
const farToken = "9007199254740000"

func TestFastPathsWriteAndPublishWhatTheStepsWould(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	type run struct {
		s    *script
		args []any
	}
	slow := map[*script]*script{
		acquireScript:   newScript("acquire", ""),
		guardScript:     newScript("guard", ""),
		releaseScript:   newScript("release", ""),
		reconcileScript: newScript("reconcile", ""),
	}
	for fast, s := range slow {
		must(t, c.ScriptLoad(t.Context(), fast.text).Err())
		must(t, c.ScriptLoad(t.Context(), s.text).Err())
	}
	// Some of these names need escapes in JSON.
	for _, me := range []string{"c1", `q"\`, "é", "\x01"} {
		take := run{acquireScript, []any{me, int64(60000), int64(5000), "queue", "", ""}}
		bound := run{acquireScript, []any{me, int64(60000), int64(0), "noqueue", "s:7", ""}}
		wait := run{acquireScript, []any{me, int64(60000), int64(0), "wait", "", "9"}}
		guard := run{guardScript, []any{me, int64(40000), int64(10), "0"}}
		free := run{releaseScript, []any{me, "0", "", "done"}}
		byToken := run{releaseScript, []any{me, "9007199254740001", "", `be"cause`}}
		poll := run{acquireScript, []any{"poller", int64(1000), int64(0), "queue", "", ""}}
		read := run{reconcileScript, []any{"0", "", 0}}
		// This release ends the tenure of the record below, which began by a handoff.
		served := run{releaseScript, []any{"before", "0", "", ""}}
		for name, story := range map[string][]run{
			"acquire":                        {take},
			"acquire for a session":          {bound},
			"acquire, guard":                 {take, guard},
			"acquire, guard a session":       {bound, guard},
			"acquire, release":               {take, free},
			"acquire, release, acquire":      {take, free, take},
			"acquire, release by token":      {take, byToken},
			"acquire, poll, guard":           {take, poll, guard},
			"after a handoff":                {served, take, guard, free},
			"after a handoff, a session":     {served, bound, guard},
			"acquire that would wait":        {wait, free},
			"read":                           {read},
			"acquire, read":                  {take, read},
			"acquire, poll, read":            {take, poll, read},
			"acquire, release, read":         {take, free, read},
			"after a handoff, read":          {served, bound, read},
			"after a release by Simba":       {take},
			"after a release by Simba, read": {read, take, free, read},
		} {
			results, seen := make([]string, 2), make([]string, 2)
			for i, fast := range []bool{true, false} {
				mutex := `m"` + me
				key := simba.MutexChannel(mutex)
				header := b.header(false)
				header[4] = noDeadline
				must(t, c.FlushDB(t.Context()).Err())
				seed := "return redis.call('SET', KEYS[1]..':tenure', cmsgpack.pack(ARGV[1], '', 'z'))"
				if strings.HasPrefix(name, "after a release by Simba") { // with the mark unnotified
					seed = `return redis.call('SET', KEYS[1] .. ':tenure',
						cmsgpack.pack(ARGV[1], '', 'z', 0, 0, 0, '', '', '', 0, '', 0, true))`
				}
				if story[0].s == releaseScript {
					seed = `redis.call('SET', KEYS[1], 'before', 'PX', '60000')
						local now = redis.call('TIME')[1] * 1000
						return redis.call('SET', KEYS[1]..':tenure',
							cmsgpack.pack(ARGV[1], 'before', '', now, 50000, 0, '', 's/1!', '', 0, 's/1 ' .. ARGV[1], 0))`
				}
				must(t, c.Eval(t.Context(), seed, []string{key}, farToken).Err())
				published := c.PSubscribe(t.Context(), "simba*")
				if _, err := published.Receive(t.Context()); err != nil {
					t.Fatal(err)
				}
				var clock []int64
				for _, step := range story {
					run := step.s
					if !fast {
						run = slow[step.s]
					}
					reply, err := c.Do(t.Context(), run.command(mutex, header, step.args...)...).Result()
					must(t, err)
					now, _ := clockOf(reply)
					clock = append(clock, now)
					got, err := parseReply("m", reply)
					if err != nil {
						t.Fatalf("the reply to %s cannot be parsed: %v", name, err)
					}
					// Replace the instants by their distance from the start of the lease, or from now.
					from := got.acquired
					if from == 0 {
						from = got.now
					}
					for _, at := range []*int64{&got.ttlAt, &got.ends, &got.due} {
						if *at != 0 {
							*at -= from
						}
					}
					got.acquired, got.now = 0, 0
					for i := range got.events {
						got.events[i].At = 0
					}
					if step.s == acquireScript {
						got.extra = nil // the score
					}
					seen[i] += fmt.Sprintf("%+v\n", *got)
				}
				results[i] = dump(t, b, c, published, clock)
				_ = published.Close()
			}
			if seen[0] != seen[1] {
				t.Errorf("%s by %q: the fast path replies %s, the steps reply %s",
					name, me, seen[0], seen[1])
			}
			if results[0] != results[1] {
				t.Errorf("%s by %q: the fast path leaves\n%s\nthe steps leave\n%s", name, me, results[0], results[1])
			}
		}
	}
}

// dump returns the keys of Redis and the published messages as text. It replaces the times in clock
// by names, since each run has different times.
func dump(t *testing.T, b *Backend, c *redis.Client, published *redis.PubSub, clock []int64) string {
	t.Helper()
	must(t, c.Publish(t.Context(), "simba-end", "").Err())
	var out []string
	for {
		m, err := published.ReceiveMessage(t.Context())
		must(t, err)
		if m.Channel == "simba-end" {
			break
		}
		if m.Channel == b.subs.serverChannel() && m.Payload == "" {
			continue // a probe of the server's pub/sub connection
		}
		out = append(out, fmt.Sprintf("%s %s", m.Channel, m.Payload))
	}
	keys := c.Keys(t.Context(), "*").Val()
	slices.Sort(keys)
	for _, k := range keys {
		ttl := c.PTTL(t.Context(), k).Val().Round(20 * time.Second) // for slow runs
		switch c.Type(t.Context(), k).Val() {
		case "string":
			out = append(out, fmt.Sprintf("%s %q %v", k, c.Get(t.Context(), k).Val(), ttl))
		default:
			out = append(out, fmt.Sprintf("%s %v", k, ttl)) // no fast path writes such keys
		}
	}
	all := strings.Join(out, "\n")
	for i, now := range clock {
		packed := fmt.Sprintf("%q", string(binary.BigEndian.AppendUint64([]byte{0xcf}, uint64(now))))
		all = strings.ReplaceAll(all, packed[1:len(packed)-1], fmt.Sprintf("<now %d>", i))
		all = strings.ReplaceAll(all, strconv.FormatInt(now, 10), fmt.Sprintf("<now %d>", i))
		lapse := fmt.Sprintf("%q", string(binary.BigEndian.AppendUint64([]byte{0xcf}, uint64(now)+65000+5000)))
		all = strings.ReplaceAll(all, lapse[1:len(lapse)-1], fmt.Sprintf("<lapse %d>", i))
	}
	// The names have no numbers, since two steps may run in the same millisecond.
	return regexp.MustCompile(`<(now|lapse) \d>`).ReplaceAllString(all, "<$1>")
}

func TestDelayedReadShortensNoLease(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	acquire(t, b, "m", "a", time.Minute, nil)
	before := owner(t, b, "m")
	for _, text := range []string{
		delayed(t, reconcileScript, "local waiters, ms = redis.pcall('ZCARD', queue)"),
		delayed(t, newScript("reconcile", ""), "local ms = call('PTTL', lock)"),
	} {
		evaluate(t, b, c, text, "m", "0", "", 0)
		if now := owner(t, b, "m"); now.TransitionAt != before.TransitionAt || now.Token != before.Token {
			t.Errorf("OWNER after the delayed read: %+v; want the lease and the token of %+v", now, before)
		}
	}
}

func TestDelayedGrantDoesNotProlongTheLock(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	for _, version := range []string{"PXAT", "none"} { // a Redis before 6.2 knows no PXAT
		for name, run := range map[string]struct {
			s    *script
			line string
			args []any
		}{
			"acquire": {acquireScript, "if not redis.pcall('SET', lock", []any{"a", 50, 0, "noqueue", "", ""}},
			"acquire, by steps": {
				newScript("acquire", ""), "setUntil(lock, who, till .. '')\n  setUntil(", []any{"a", 50, 0, "noqueue", "", ""},
			},
			"guard":           {guardScript, "call('PEXPIREAT', lock, till) --", []any{"a", 50, 0, "0"}},
			"guard, by steps": {newScript("guard", ""), "if call('PEXPIREAT', lock", []any{"a", 50, 0, "0"}},
		} {
			mutex := name + version
			if strings.HasPrefix(name, "guard") {
				acquire(t, b, mutex, "a", time.Minute, nil)
			}
			text := strings.ReplaceAll(delayed(t, run.s, run.line), "'PXAT'", "'"+version+"'")
			evaluate(t, b, c, text, mutex, run.args...)
			for _, key := range []string{"simba:{" + mutex + "}", "simba:{" + mutex + "}:token"} {
				if ttl := c.PTTL(t.Context(), key).Val(); ttl != -2 {
					t.Errorf("%s, SET %s: the lease of 50 ms ended during the script, but the key %s lives for %v more", name, version, key, ttl)
				}
			}
		}
	}
}

func evaluate(t *testing.T, b *Backend, c *redis.Client, text, mutex string, args ...any) {
	t.Helper()
	header := b.header(false)
	header[4] = noDeadline
	command := (&script{sha: text}).command(mutex, header, args...)
	command[0] = "eval"
	must(t, c.Do(t.Context(), command...).Err())
}

// delayed returns the text of a script with a delay of 100 ms before a line.
func delayed(t *testing.T, s *script, line string) string {
	t.Helper()
	text := strings.Replace(s.text, line, `
		local from = call('TIME')
		repeat local t = call('TIME') until t[1] * 1000000 + t[2] - from[1] * 1000000 - from[2] > 100000
		`+line, 1)
	if text == s.text {
		t.Fatalf("the script has no line %s", line)
	}
	return text
}

// Renewals do not write the queue, but the queue must not expire before the waiters get the mutex.
func TestReconcilingExtendsTheExpiryOfTheQueue(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	b := serve(t, "redis://"+s.Addr, newListener())
	acquire(t, b, "m", "a", time.Hour, nil)
	acquire(t, b, "m", "c", time.Hour, newWaiter())
	queue, records := simba.MutexChannel("m")+":contender", simba.MutexChannel("m")+":waiting"
	const soon = 2 * 24 * time.Hour
	// In one transaction: the server may reconcile by itself between two commands.
	for what, before := range map[string]func(redis.Pipeliner){
		"both expire in 2 days": func(p redis.Pipeliner) {
			p.PExpire(t.Context(), queue, soon)
			p.PExpire(t.Context(), records, soon)
		},
		"the records expire in 2 days, and another program deleted the queue": func(p redis.Pipeliner) {
			p.Del(t.Context(), queue)
			p.PExpire(t.Context(), records, soon)
		},
	} {
		if _, err := c.TxPipelined(t.Context(), func(p redis.Pipeliner) error { before(p); return nil }); err != nil {
			t.Fatal(err)
		}
		b.reconcile(t.Context(), "m")
		for _, key := range []string{queue, records} {
			if ttl := c.PTTL(t.Context(), key).Val(); ttl < 3*24*time.Hour {
				t.Errorf("%s: after a reconciliation %s expires in %v, want more than 3 days", what, key, ttl)
			}
		}
	}
}

func TestReconcileReadsNoPollingWaiterBeforeOneLapses(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	acquire(t, b, "m", "a", time.Minute, nil)
	for i := range 50 {
		acquire(t, b, "m", fmt.Sprint("p", i), time.Minute, nil)
	}
	before := commandCalls(t, s, "hget")
	if _, err := b.runReconcile(t.Context(), "m", "", nil); err != nil {
		t.Fatal(err)
	}
	if n := commandCalls(t, s, "hget") - before; n > 5 {
		t.Errorf("reconciling read %d waiters, want at most 5", n)
	}
	before = commandCalls(t, s, "hget")
	if list, _, err := b.Queue(t.Context(), "m", 3); err != nil || len(list) != 3 {
		t.Errorf("QUEUE of 3: %v %v; want 3 waiters", list, err)
	}
	if n := commandCalls(t, s, "hget") - before; n > 5 {
		t.Errorf("QUEUE of 3 read %d waiters, want at most 5", n)
	}
}
