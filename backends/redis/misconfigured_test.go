package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

type testRequest struct {
	name string
	run  func(context.Context, *Backend) error
}

var requests = []testRequest{
	{"ACQUIRE", func(ctx context.Context, b *Backend) error {
		_, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "c", TTL: time.Minute})
		return err
	}},
	{"ACQUIRE NOQUEUE", func(ctx context.Context, b *Backend) error {
		_, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "c", TTL: time.Minute, NoQueue: true})
		return err
	}},
	{"ACQUIRE WAIT", func(ctx context.Context, b *Backend) error {
		_, ticket, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "c", TTL: time.Minute, Waiter: newWaiter()})
		if ticket != nil {
			_, _ = ticket.End(simba.EndLeft)
		}
		return err
	}},
	{"GUARD", func(ctx context.Context, b *Backend) error {
		_, err := b.Guard(ctx, simba.GuardRequest{Mutex: "m", Contender: "c", TTL: time.Minute})
		return err
	}},
	{"RELEASE", func(ctx context.Context, b *Backend) error {
		_, _, err := b.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "c"})
		return err
	}},
	{"OWNER", func(ctx context.Context, b *Backend) error { _, _, err := b.Owner(ctx, "m"); return err }},
	{"CHECK", func(ctx context.Context, b *Backend) error { _, _, err := b.Check(ctx, "m", 1); return err }},
	{"QUEUE", func(ctx context.Context, b *Backend) error { _, _, err := b.Queue(ctx, "m", 10); return err }},
	{"BREAK", func(ctx context.Context, b *Backend) error { _, _, err := b.Break(ctx, "m", ""); return err }},
}

// mustBeMisconfigured fails the test unless err is a MisconfiguredError of one line that contains
// the text part.
func mustBeMisconfigured(t testing.TB, what string, err error, part string) {
	t.Helper()
	var refusal *simba.MisconfiguredError
	if !errors.As(err, &refusal) || refusal.Engine != "redis" || !strings.Contains(err.Error(), part) || strings.ContainsAny(err.Error(), "\r\n") {
		t.Errorf("%s: %v, want a MisconfiguredError of one line with %q", what, err, part)
	}
}

func scan(t testing.TB, b *Backend) (names []string) {
	t.Helper()
	for r := (simba.ScanRequest{}); ; {
		page, _, err := b.Scan(t.Context(), r)
		must(t, err)
		names = append(names, page.Mutexes...)
		if r.Cursor = page.Cursor; r.Cursor == 0 {
			return names
		}
	}
}

func TestForeignKeyIsNamedAndNotChanged(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	type foreign struct {
		key     string
		command []any // writes the key
		owned   bool  // before the command, c acquires the mutex. Then a fast path may renew or release
		begins  bool  // only requests that begin a tenure need the key
	}
	all := []foreign{
		{key: "simba:{m}", command: []any{"RPUSH", "simba:{m}", "x"}},
		{key: "simba:{m}", command: []any{"HSET", "simba:{m}", "x", "y"}},
		{key: "simba:{m}:tenure", command: []any{"RPUSH", "simba:{m}:tenure", "x"}},
		{key: "simba:{m}:tenure", command: []any{"SET", "simba:{m}:tenure", "x"}},
		{key: "simba:{m}:tenure", command: []any{"SET", "simba:{m}:tenure", "\xc1"}},
		{key: "simba:{m}:tenure", command: []any{"SET", "simba:{m}:tenure", "\xa11"}},
		{key: "simba:{m}:tenure", command: []any{"SET", "simba:{m}:tenure", ""}},
		{key: "simba:{m}:contender", command: []any{"SET", "simba:{m}:contender", "x"}},
		{key: "simba:{m}:contender", command: []any{"SADD", "simba:{m}:contender", "x"}, owned: true},
		{key: "simba:{m}:waiting", command: []any{"SET", "simba:{m}:waiting", "x"}, owned: true},
		{key: "simba:{m}:ended", command: []any{"SET", "simba:{m}:ended", "x"}, owned: true},
		{key: "simba:{m}:fence", command: []any{"RPUSH", "simba:{m}:fence", "x"}},
		{key: "simba:{m}:token", command: []any{"RPUSH", "simba:{m}:token", "x"}},
		{key: "simba:{m}:token", command: []any{"SET", "simba:{m}:token", "x"}},
	}
	for _, value := range []string{"", "x", "0x10", "-1", "1e5", "9007199254740992"} {
		all = append(all, foreign{key: "simba:{m}:fence", command: []any{"SET", "simba:{m}:fence", value}, begins: true})
	}
	for _, theirs := range all {
		for _, q := range requests {
			name := fmt.Sprintf("%q: %s", theirs.command, q.name)
			must(t, c.FlushDB(t.Context()).Err())
			if theirs.owned {
				acquire(t, b, "m", "c", time.Minute, nil)
			}
			must(t, c.Do(t.Context(), theirs.command...).Err())
			before := c.Dump(t.Context(), theirs.key).Val()
			lock := c.Get(t.Context(), "simba:{m}").Val()
			err := q.run(t.Context(), b)
			needed := !theirs.owned && (!theirs.begins || strings.HasPrefix(q.name, "ACQUIRE"))
			if needed || err != nil {
				mustBeMisconfigured(t, name, err, "key "+theirs.key+" ")
				if now := c.Get(t.Context(), "simba:{m}").Val(); now != lock {
					t.Errorf("%s was refused, but the owner changed from %q to %q", name, lock, now)
				}
			}
			if now := c.Dump(t.Context(), theirs.key).Val(); now != before || before == "" {
				t.Errorf("%s changed the other program's key from %q to %q", name, before, now)
			}
			scan(t, b)
			if now := c.Dump(t.Context(), theirs.key).Val(); now != before {
				t.Errorf("SCAN after %s changed the other program's key from %q to %q", name, before, now)
			}
		}
	}
}

func TestForeignWaiterRecordIsNamedAndNotChanged(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	for _, garbage := range []string{"x", "", "\xc1", "\x93\xa1b\x01\x01"} {
		for _, q := range requests {
			must(t, c.FlushDB(t.Context()).Err())
			acquire(t, b, "m", "a", time.Minute, nil)
			acquire(t, b, "m", "w", time.Minute, nil)
			pipe := c.TxPipeline()
			pipe.HSet(t.Context(), "simba:{m}:waiting", "w", garbage)
			pipe.Del(t.Context(), "simba:{m}") // so that the waiter is next
			if _, err := pipe.Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
			mustBeMisconfigured(t, fmt.Sprintf("%q: %s", garbage, q.name), q.run(t.Context(), b), "key simba:{m}:waiting ")
			if now := c.HGet(t.Context(), "simba:{m}:waiting", "w").Val(); now != garbage {
				t.Errorf("%s changed the waiter record: the field holds %q, want %q", q.name, now, garbage)
			}
		}
	}
}

// endOwner deletes the lock of a mutex as another program would, and makes the server reconcile the
// mutex.
func endOwner(t testing.TB, b *Backend, c *redis.Client, mutex string) {
	t.Helper()
	must(t, c.Del(t.Context(), seeds.Lease(mutex)).Err())
	b.schedule.bringForward(time.Now(), mutex)
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

func TestLastingErrors(t *testing.T) {
	const needs = ": the user needs " + neededRights
	const at7 = " script: ab81a0e4e11674d35e5af392da84baadf7c6da22, on @user_script:1."
	const at6 = "ERR Error running script (call to f_ab81a0e4e11674d35e5af392da84baadf7c6da22): @user_script:12: "
	for _, e := range []struct{ text, cause string }{ // cause "" = the error is transient
		{"WRONGTYPE Operation against a key holding the wrong kind of value" + at7, "WRONGTYPE Operation against a key holding the wrong kind of value"},
		{at6 + "@user_script: 12: WRONGTYPE Operation against a key", "WRONGTYPE Operation against a key"},
		{at6 + "user_script:12: key simba:{m} is not a string", "key simba:{m} is not a string"},
		{"ERR user_script:12: key simba:{m} is not a string" + at7, "key simba:{m} is not a string"},
		{"ERR Unknown Redis command called from script" + at7, "Unknown Redis command called from script"},
		{"ERR The user executing the script can't run this command or subcommand" + at7, "The user executing the script can't run this command or subcommand" + needs},
		{"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments" + at7, "The user executing the script can't access at least one of the keys mentioned in the command arguments" + needs},
		{"NOPERM User simba has no permissions to run the 'del' command" + at7, "NOPERM User simba has no permissions to run the 'del' command" + needs},
		{at6 + "@user_script: 12: -NOPERM The user executing the script can't run this command or subcommand", "NOPERM The user executing the script can't run this command or subcommand" + needs},
		{"NOPERM this user has no permissions to run the 'evalsha' command", "NOPERM this user has no permissions to run the 'evalsha' command"},
		{"NOAUTH Authentication required.", "NOAUTH Authentication required."},
		{"WRONGPASS invalid username-password pair or user is disabled.", "WRONGPASS invalid username-password pair or user is disabled."},
		{"ERR unknown command 'evalsha', with args beginning with: 'x'", "unknown command 'evalsha', with args beginning with: 'x'"},
		{"ERR DB index is out of range", "DB index is out of range"},

		{"OOM command not allowed when used memory > 'maxmemory'." + at7, ""},
		{at6 + "@user_script: 12: -OOM command not allowed when used memory > 'maxmemory'.", ""},
		{"READONLY You can't write against a read only replica." + at7, ""},
		{at6 + "@user_script: 12: -READONLY You can't write against a read only replica.", ""},
		{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk." + at7, ""},
		{"NOREPLICAS Not enough good replicas to write." + at7, ""},
		{"ERR Script attempted to access a non local key in a cluster node" + at7, ""},
		{"ERR Error running script (call to f_ab81a0e4e11674d35e5af392da84baadf7c6da22): @user_script:1: Script killed by user with SCRIPT KILL...", ""},
		{"ERR max number of clients reached", ""},
		{"ERR something unknown", ""},
	} {
		err := fmt.Errorf("ask: %w", redisError(e.text))
		got := lastingCause(err)
		if (got == nil) != (e.cause == "") || got != nil && got.Error() != e.cause {
			t.Errorf("lastingCause of %q: %v, want %q (empty = nil)", e.text, got, e.cause)
		}
	}
	for _, err := range []error{context.DeadlineExceeded, errors.New("WRONGTYPE, says the network"), errOverdue, errLate} {
		if got := lastingCause(err); got != nil {
			t.Errorf("lastingCause of %v: %v; want nil", err, got)
		}
	}
}

// The write check must not change a key of another program, whatever its type.
func TestWriteCheckChangesNothing(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	acquire(t, b, "m", "a", time.Minute, nil)
	keys := []string{"simba:{m}:proof", "simba:{0}:proof"}
	for _, theirs := range [][]any{
		{"SET", "", "x"}, {"SET", "", ""}, {"RPUSH", "", "x"}, {"SADD", "", "x", ""}, {"HSET", "", "", "x"},
		{"ZADD", "", "1", "", "2", "x"}, {"XADD", "", "1-1", "x", "y"},
	} {
		before := make(map[string]string)
		for _, key := range keys {
			c.Del(t.Context(), key)
			theirs[1] = key
			must(t, c.Do(t.Context(), theirs...).Err())
			before[key] = c.Dump(t.Context(), key).Val()
		}
		unchanged := func(what string) {
			t.Helper()
			for _, key := range keys {
				if now := c.Dump(t.Context(), key).Val(); now != before[key] || now == "" {
					t.Errorf("%s changed the key %s, written by %s, from %q to %q",
						what, key, theirs[0], before[key], now)
				}
			}
		}
		for _, q := range requests {
			if err := q.run(t.Context(), b); err != nil {
				t.Errorf("%s, after another program has changed the proof key by %s: %v; want no error", q.name, theirs[0], err)
			}
			unchanged(q.name)
		}
		scan(t, b)
		unchanged("SCAN")
		for _, script := range []string{writeCheckLua, subscriberCountLua} {
			must(t, b.up.eval(t.Context(), b.up.client, script, "a channel").Err())
			unchanged(script)
		}
		serve(t, "redis://"+s.Addr, noNotices{})
		unchanged("a start")
		c.ConfigSet(t.Context(), "maxmemory", "1")
		for _, q := range requests {
			_ = q.run(t.Context(), b)
			unchanged(fmt.Sprint(q.name, " of a full Redis"))
		}
		c.ConfigSet(t.Context(), "maxmemory", "0")
	}
}
