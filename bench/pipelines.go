package main

import (
	"encoding/csv"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/simba-resp/simba-resp/backends/backendtest/seeds"
)

// depth is how many commands a client of a pipeline sends at a time.
const depth = 16

// pipelines measures acquires with redis-benchmark: 50 clients, 100,000 names.
func (b *bench) pipelines(round int) {
	acquire := []string{"SIMBA.ACQUIRE", "__rand_int__", "c", leaseMS}
	script := []string{"EVALSHA", sha(seeds.SimbaAcquire), "1", "simba:{__rand_int__}", "c", leaseMS}
	all := []struct {
		subject string
		command []string
	}{{memory, acquire}, {always, acquire}, {redisMemory, script}}
	for _, m := range inTurn(round, all) {
		site := b.sites[m.subject]
		if site == nil {
			continue
		}
		rate, err := redisBenchmark(site.addr, m.command)
		if err != nil {
			b.failed(m.subject+", pipelines", err)
			continue
		}
		b.say("%-24s acquires in pipelines of %d: %.0f/s", m.subject, depth, rate)
		b.add(round, key{pipelined, m.subject, depth}, rate)
	}
}

// redisBenchmark returns the commands a second.
func redisBenchmark(addr string, command []string) (float64, error) {
	host, port, _ := strings.Cut(addr, ":")
	out, err := exec.Command("redis-benchmark", append([]string{
		"-h", host, "-p", port, "-c", "50", "-P", strconv.Itoa(depth), "-n", "300000", "-r", "100000", "--csv",
	}, command...)...).Output()
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark: %w", err)
	}
	lines, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil || len(lines) == 0 || len(lines[len(lines)-1]) < 2 {
		return 0, fmt.Errorf("redis-benchmark says %q, %w", out, err)
	}
	return strconv.ParseFloat(lines[len(lines)-1][1], 64)
}
