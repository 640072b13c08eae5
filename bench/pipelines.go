package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
)

const (
	// depth is the number of commands in one pipeline.
	depth = 16
	// acquires is the number of commands. With random names, about a third acquire a free mutex.
	// The others find that their client already owns the mutex.
	acquires   = 300_000
	mutexNames = 100_000
)

// pipelines measures acquires with redis-benchmark on one subject after the other. It then releases
// the mutexes.
func (b *bench) pipelines(round int) {
	simba := pipeline{
		acquire: []string{"SIMBA.ACQUIRE", "__rand_int__", "c", leaseMS},
		release: func(i int) []byte { return frame("SIMBA.RELEASE", randInt(i), "c") },
	}
	script := pipeline{
		acquire: []string{"EVALSHA", sha(seeds.SimbaAcquire), "1", "simba:{__rand_int__}", "c", leaseMS},
		release: func(i int) []byte {
			return frame("EVALSHA", sha(seeds.SimbaRelease), "1", "simba:{"+randInt(i)+"}", "c")
		},
	}
	all := []struct {
		subject string
		pipeline
	}{{memory, simba}, {always, simba}, {redisMemory, script}}
	for _, m := range orderOf(round, all) {
		site := b.sites[m.subject]
		if site == nil {
			continue
		}
		flushDisk()
		rate, err := redisBenchmark(site.addr, m.acquire)
		if err == nil {
			err = pipe(site.addr, mutexNames, m.release, patience)
		}
		if err != nil {
			b.failed(m.subject+", pipelines", err)
			continue
		}
		b.say("%-24s acquires in pipelines of %d: %.0f/s", m.subject, depth, rate)
		b.add(round, key{pipelined, m.subject, depth}, rate)
	}
}

// pipeline has the arguments of redis-benchmark, and the command that releases a mutex.
type pipeline struct {
	acquire []string
	release func(i int) []byte
}

// randInt is the text that redis-benchmark puts in the place of __rand_int__.
func randInt(i int) string { return fmt.Sprintf("%012d", i) }

// redisBenchmark returns the number of commands a second. Since redis-benchmark waits for ever for
// a server that hangs, redisBenchmark limits its time.
func redisBenchmark(addr string, command []string) (float64, error) {
	ctx, end := context.WithTimeout(context.Background(), lifetime())
	defer end()
	host, port, _ := strings.Cut(addr, ":")
	out, err := exec.CommandContext(ctx, "redis-benchmark", append([]string{
		"-h", host, "-p", port, "-c", "50", "-P", strconv.Itoa(depth),
		"-n", strconv.Itoa(acquires), "-r", strconv.Itoa(mutexNames), "--csv",
	}, command...)...).Output()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return 0, fmt.Errorf("redis-benchmark has not ended after %v", lifetime())
	}
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark: %w", err)
	}
	lines, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil || len(lines) == 0 || len(lines[len(lines)-1]) < 2 {
		return 0, fmt.Errorf("redis-benchmark prints no rate: %q, %v", out, err)
	}
	return strconv.ParseFloat(lines[len(lines)-1][1], 64)
}
