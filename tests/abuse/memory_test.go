package abuse

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

const outOfMemory = "OOM command not allowed when used memory > 'maxmemory'."

// isOutOfMemory reports whether err is the error reply of a command that maxmemory refuses.
func isOutOfMemory(err error) bool {
	var said redis.Error
	return errors.As(err, &said) && string(said) == outOfMemory
}

// fill sends commands that need memory, in pipelines of several clients, until the server refuses.
// It returns the number of commands that the server executed.
//
// Before each command, the server compares its count of used memory with the limit. So each client
// may exceed the limit by one command. fill reads the count after each pipeline, and fails the test
// if it was higher. The parameter each is the size of a command in bytes.
func (v *victim) fill(name string, limit, each int, do func(c redis.Conn, i int) error) int {
	v.t.Helper()
	const clients, pipeline = 8, 200
	most := int64(limit + clients*each)
	var taken, next, highest atomic.Int64
	var all sync.WaitGroup
	for range clients {
		c := v.client()
		all.Go(func() {
			defer c.Close()
			for end := time.Now().Add(2 * simbatest.Patience); ; {
				for range pipeline {
					if err := do(c, int(next.Add(1))); err != nil {
						v.t.Error(err)
						return
					}
				}
				if err := c.Send("INFO", "memory"); err != nil {
					v.t.Error(err)
					return
				}
				if err := c.Flush(); err != nil {
					v.t.Error(err)
					return
				}
				refused := 0
				for range pipeline {
					switch _, err := c.Receive(); {
					case err == nil:
						taken.Add(1)
					case isOutOfMemory(err):
						refused++
					default:
						v.t.Errorf("%s: a command returns %v", name, err)
						return
					}
				}
				counted, err := datasetOf(c.Receive())
				if err != nil {
					v.t.Error(err)
					return
				}
				for seen := highest.Load(); counted > seen && !highest.CompareAndSwap(seen, counted); seen = highest.Load() {
				}
				if refused == pipeline {
					return
				}
				if time.Now().After(end) {
					v.t.Errorf("%s: the server still executes commands after %d", name, taken.Load())
					return
				}
			}
		})
	}
	all.Wait()
	v.t.Logf("%s: the server refuses after %d commands; used_memory_dataset reaches %d bytes, the limit is %d", name, taken.Load(), highest.Load(), limit)
	if taken.Load() == 0 {
		v.t.Errorf("%s: the server executes no command, although memory is below the limit", name)
	}
	if highest.Load() > most {
		v.t.Errorf("%s: used_memory_dataset reaches %d bytes, want at most %d", name, highest.Load(), most)
	}
	return int(taken.Load())
}

// datasetOf returns used_memory_dataset from a reply to INFO, in bytes.
func datasetOf(info any, err error) (int64, error) {
	text, err := redis.String(info, err)
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(text, "used_memory_dataset:")
	line, _, _ := strings.Cut(after, "\r")
	return strconv.ParseInt(line, 10, 64)
}

func (v *victim) limit(bytes int) {
	v.t.Helper()
	simbatest.Do(v.t, v.eye, "CONFIG", "SET", "maxmemory", bytes)
}

// isBounded fails the test if the process exceeds four times the limit. This check is coarse, since
// garbage depends on the speed of the garbage collector. fill checks the exact bound.
func (v *victim) isBounded(limit int) {
	v.t.Helper()
	v.costsAtMost(4 * limit)
}

func TestScriptsThatAreKeptDoNotFillTheMemory(t *testing.T) {
	t.Parallel()
	const limit, pipeline = 40 << 20, 100
	v := attacked(t, "--durability", "memory", "--maxmemory", "40mb")
	c := v.client()
	for _, command := range [][]any{{"EVAL"}, {"SCRIPT", "LOAD"}} {
		for i := 0; i < 1500; i += pipeline {
			for j := range pipeline {
				source := fmt.Sprint("local n = ", i+j, strings.Repeat(" do local a = n end", 300))
				args := append(command[1:len(command):len(command)], source)
				if command[0] == "EVAL" {
					args = append(args, 0)
				}
				simbatest.Must(t, c.Send(command[0].(string), args...))
			}
			simbatest.Must(t, c.Flush())
			for range pipeline {
				if _, err := c.Receive(); err != nil && (command[0] == "EVAL" || !strings.Contains(err.Error(), "too many scripts are loaded")) {
					t.Fatal(err)
				}
			}
		}
		v.servesOthers() // the server still makes grants
	}
	v.isBounded(limit)
}

func TestMaxmemoryRefusesNewMutexesAndKeepsLocks(t *testing.T) {
	t.Parallel()
	const limit = 40 << 20
	v := attacked(t, "--durability", "memory", "--maxmemory", "40mb")
	v.dismiss() // since the server would refuse their grants
	holder, polling := v.client(), v.client()
	const holderTTL = 10_000 // ms
	for _, m := range []string{"held", "given-up"} {
		if r, err := simbatest.ToRecord(holder.Do("SIMBA.ACQUIRE", m, "holder", holderTTL)); err != nil || r["status"] != "acquired" {
			t.Fatalf("SIMBA.ACQUIRE returns %v, %v, want acquired", r, err)
		}
	}
	waiting := v.raw()
	simbatest.Must(t, waiting.send(words("SIMBA.ACQUIRE", "given-up", "waiter", bystanderTTL, "WAIT", 0)))
	v.until("the waiter is blocked", func() bool { return v.info("waiters_blocked") > 0 })
	stop, guarded := make(chan struct{}), make(chan error, 1)
	var rounds atomic.Int64
	go func() {
		for {
			for _, m := range []string{"held", "given-up"} {
				if r, err := simbatest.ToRecord(holder.Do("SIMBA.GUARD", m, "holder", holderTTL)); err != nil || r["status"] != "renewed" {
					guarded <- fmt.Errorf("SIMBA.GUARD of %s returns %v, %w", m, r, err)
					return
				}
			}
			if r, err := simbatest.ToRecord(holder.Do("SIMBA.ACQUIRE", "held", "holder", holderTTL)); err != nil || r["status"] != "renewed" {
				guarded <- fmt.Errorf("SIMBA.ACQUIRE by the owner returns %v, %w", r, err)
				return
			}
			rounds.Add(1)
			select {
			case <-stop:
				guarded <- nil
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()

	long := strings.Repeat("m", 200)
	const room = 4 << 20      // bytes for each of the steps below
	each := len(long) + 1<<10 // a mutex or a queue entry, with its names
	mutexes := v.fill("mutexes", limit, each, func(c redis.Conn, i int) error {
		return c.Send("SIMBA.ACQUIRE", fmt.Sprint(long, i), "filler", bystanderTTL)
	})
	v.limit(limit + room)
	v.fill("queue entries", limit+room, each, func(c redis.Conn, i int) error {
		return c.Send("SIMBA.ACQUIRE", "held", fmt.Sprint("p", i), bystanderTTL)
	})
	v.limit(limit + 2*room)
	v.fill("keys", limit+2*room, each, func(c redis.Conn, i int) error { return c.Send("SET", fmt.Sprint("key", i), long) })
	v.limit(limit + 3*room)
	v.fill("scripts", limit+3*room, each, func(c redis.Conn, i int) error {
		return c.Send("EVAL", "return redis.pcall('set', KEYS[1], ARGV[1])", 1, fmt.Sprint("script", i), long)
	})
	v.isBounded(limit + 3*room)
	for from := rounds.Load(); rounds.Load() < from+5; {
		select {
		case err := <-guarded:
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	close(stop)
	simbatest.Must(t, <-guarded)
	if n, err := holder.Do("SIMBA.RELEASE", "given-up", "holder"); n != int64(1) || err != nil {
		t.Fatalf("SIMBA.RELEASE returns %v, %v, want 1", n, err)
	}
	if r, err := waiting.record(); err != nil || r["status"] != "acquired" {
		t.Errorf("the earlier waiter gets %v, %v, want the mutex", r, err)
	}
	if strings.Count(v.log(), "used memory is above maxmemory: refusing commands that take more") == 0 {
		t.Errorf("the log has no warning about maxmemory:\n%s", v.log())
	}

	// The memory of released mutexes is available to other clients.
	for i := range mutexes * 2 {
		simbatest.Must(t, polling.Send("SIMBA.RELEASE", fmt.Sprint(long, i), "filler"))
		if i%1000 == 999 {
			simbatest.Do(t, polling, "")
		}
	}
	simbatest.Do(t, polling, "")
	v.until("a new contender acquires a mutex", func() bool {
		r, err := simbatest.ToRecord(polling.Do("SIMBA.ACQUIRE", "new", "late", bystanderTTL))
		if err != nil && !isOutOfMemory(err) {
			t.Fatal(err)
		}
		return err == nil && r["status"] == "acquired"
	})
	v.until("the server logs that it accepts commands again", func() bool {
		return strings.Contains(v.log(), "used memory is no longer above maxmemory: accepting all commands")
	})
}
