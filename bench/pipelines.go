package main

import (
	"encoding/csv"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/simba-resp/simba-resp/backends/backendtest/seeds"
)

// pipelines measures with redis-benchmark, 50 clients that send so many commands at a time.
func (b *bench) pipelines() {
	acquire := []string{"SIMBA.ACQUIRE", "__rand_int__", "c", leaseMS}
	script := []string{"EVALSHA", sha(seeds.SimbaAcquire), "1", "simba:{__rand_int__}", "c", leaseMS}
	for _, depth := range []string{"1", "16", "64"} {
		for _, m := range []struct {
			subject, row string
			command      []string
		}{
			{memory, memory + " SIMBA.ACQUIRE", acquire},
			{always, always + " SIMBA.ACQUIRE", acquire},
			{redisMemory, redisMemory + " acquire script", script},
			{redisAlways, redisAlways + " acquire script", script},
			{memory, memory + " PING", []string{"PING"}},
			{redisMemory, redisMemory + " PING", []string{"PING"}},
		} {
			site := b.sites[m.subject]
			if site == nil {
				continue
			}
			rate, err := redisBenchmark(site.addr, depth, m.command)
			if err != nil {
				b.fault(pipelined+", "+m.row, err)
				continue
			}
			b.say("%-40s %2s at a time %9.0f/s", m.row, depth, rate)
			b.table(pipelined, "commands/s", "more", "redis-benchmark, 50 clients, 100,000 names, by how many commands they send at a time.").add(m.row, depth, rate)
		}
	}
}

// redisBenchmark returns the commands a second.
func redisBenchmark(addr, depth string, command []string) (float64, error) {
	n := 30_000
	if depth != "1" {
		n *= 10
		if command[0] == "PING" { // or it would be over in a quarter of a second, that clients take to begin and to end
			n *= 5
		}
	}
	host, port, _ := strings.Cut(addr, ":")
	out, err := exec.Command("redis-benchmark", append([]string{
		"-h", host, "-p", port, "-c", "50", "-P", depth, "-n", strconv.Itoa(n), "-r", "100000", "--csv",
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
