package dropin

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestAnEndlessScriptBlocksNoClientAndCanBeKilled(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	rdb, others := connect(t, s), connect(t, s)
	is(t, rdb, "OK", "config", "set", "busy-reply-threshold", 100)
	is(t, rdb, "OK", "set", "k", "before")
	if _, err := (&simba{others, "m", "ours", 0}).acquire(t.Context()); err != nil {
		t.Fatal(err)
	}

	ended := make(chan error, 1)
	go func() {
		const endless = `
			redis.call('set', KEYS[1], 'half')
			redis.call('set', KEYS[2], 'half')
			redis.call('del', 'm')
			redis.call('publish', 'c', 'half')
			while true do end`
		ended <- rdb.Eval(t.Context(), endless, []string{"k", "new"}).Err()
	}()

	answered := 0
	for end := time.Now().Add(simbatest.Patience); ; {
		is(t, others, "before", "get", "k")
		is(t, others, "OK", "set", "other", answered)
		is(t, others, int64(0), "exists", "new")
		o, err := record(t.Context(), others, "simba.guard", "m", "ours", lease)
		if err != nil || o["status"] != "renewed" {
			t.Errorf("while the script runs, SIMBA.GUARD returns %v, %v", o, err)
		}
		answered++
		err = others.ScriptKill(t.Context()).Err()
		if err == nil {
			break
		}
		if !strings.HasPrefix(err.Error(), "NOTBUSY ") {
			t.Fatalf("SCRIPT KILL returns %v", err)
		}
		if time.Now().After(end) {
			t.Fatal("SCRIPT KILL returns NOTBUSY although a script runs")
		}
	}
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "Script killed by user with SCRIPT KILL") {
			t.Errorf("EVAL of the killed script returns %v, want \"Script killed by user\"", err)
		}
	case <-time.After(simbatest.Patience):
		t.Fatal("EVAL of the killed script does not return")
	}
	t.Logf("while the script ran, the other client went through %d rounds", answered)
	is(t, others, "before", "get", "k")
	is(t, others, int64(0), "exists", "new")
	is(t, others, "ours", "get", "m")
	is(t, others, "yes", "eval", "return 'yes'", 0)
	if err := others.ScriptKill(t.Context()).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOTBUSY ") {
		t.Errorf("SCRIPT KILL without a running script returns %v, want NOTBUSY", err)
	}
}

func TestABadScriptGetsAnErrorAndAppliesNothing(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	rdb, others := connect(t, s), connect(t, s)
	for name, rest := range map[string]string{
		"fails":                       `error('no')`,
		"calls an unknown command":    `redis.call('nonsense')`,
		"calls with a wrong type":     `redis.call('hget', 'k', 'f')`,
		"does not end its recursion":  `local function f() return f() + 1 end return f()`,
		"allocates without end":       `local t = {} while true do t[#t + 1] = string.rep('x', 100000) .. #t end`,
		"makes one endless string":    `local s = 'x' while true do s = s .. s end`,
		"asks for one endless string": `return string.rep('x', 2 ^ 31 - 1)`,
		"searches for ever":           `return string.find(string.rep('a', 100000), string.rep('a?', 1000) .. string.rep('a', 1000) .. 'b')`,
		"overwrites a global":         `redis = nil`,
		"uses the operating system":   `os.execute('true')`,
		"opens a file":                `return io.open('/etc/passwd')`,
		"loads a file":                `return dofile('/etc/passwd')`,
		"calls a command of mutexes":  `return redis.call('simba.acquire', 'm', 'a', 1000)`,
		"waits":                       `return redis.call('subscribe', 'c')`,
		"writes a wrong argument":     `return redis.call('set', 'k', {})`,
	} {
		t.Run(name, func(t *testing.T) {
			is(t, rdb, "OK", "set", "k", "before")
			rdb.Del(t.Context(), "new")
			err := rdb.Eval(t.Context(), "redis.call('set', 'k', 'half') redis.call('set', 'new', 'half') "+rest, nil).Err()
			reply := redis.Error(nil)
			if !errors.As(err, &reply) || err == redis.Nil {
				t.Errorf("EVAL returns %v, want an error reply", err)
			}
			is(t, others, "before", "get", "k")
			is(t, others, int64(0), "exists", "new")
		})
	}
}
