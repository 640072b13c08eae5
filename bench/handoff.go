package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

const (
	// handoffLoad is the name of the load that hands a mutex from server to server.
	handoffLoad = "handoff between two servers"
	// handoffPause is the longest pause between two handoffs, and how often servers on MariaDB poll.
	// The pause is random, so that a release comes at any time between two polls.
	handoffPause = 20 * time.Millisecond
)

// handoffs measures handoffs between two servers on one store. The engine embedded has one server.
func (b *bench) handoffs(round int) {
	for name, at := range b.turns(round, orderOf(round, subjectNames())) {
		if at.processes.server == 0 {
			continue
		}
		flushDisk()
		b.try(name+", "+handoffLoad, func(tb *testbed) {
			tb.program = at.program
			from, to := at, at
			if store := at.processes.store; store != 0 {
				flags := at.flags
				if strings.HasPrefix(name, onMySQL) {
					flags = append(flags, "--mysql-poll", handoffPause.String())
				}
				from, to = simba(tb, store, flags...), simba(tb, store, flags...)
			}
			took, err := handOff([2]string{from.addr, to.addr}, *during)
			tb.must(err)
			p50, p99 := inMS(took.Quantile(0.5)), inMS(took.Quantile(0.99))
			b.say("%-24s %-30s %8d handoffs, p50 %7.2f ms, p99 %7.2f ms", name, handoffLoad, len(took), p50, p99)
			b.add(round, key{handoffP50, name, 2}, p50)
			b.add(round, key{handoffP99, name, 2}, p99)
		})
	}
}

// handOff hands a mutex to and fro between a client of each server. It returns how long each handoff
// took, from sending RELEASE to the reply to the ACQUIRE that waits at the other server.
func handOff(addrs [2]string, during time.Duration) (took simbatest.Latencies, err error) {
	mutex := fmt.Sprintf("handed-off-%d", runs.Add(1))
	var waiting sync.WaitGroup
	defer waiting.Wait() // after the connections are closed
	var clients [2]contender
	var queues [2]*wire
	for i, addr := range addrs {
		if clients[i], err = toSimba(addr)(mutex, fmt.Sprintf("c%d", i), true); err != nil {
			return nil, err
		}
		defer clients[i].close()
		if queues[i], err = dial(addr, lifetime()); err != nil {
			return nil, err
		}
		defer queues[i].close()
	}
	if err := clients[0].acquire(); err != nil {
		return nil, err
	}
	began := time.Now()
	for owner := 0; time.Since(began) < during; owner = 1 - owner {
		waiter := 1 - owner
		granted := make(chan error, 1)
		var at time.Time // of the grant
		waiting.Go(func() {
			err := clients[waiter].acquire()
			at = time.Now()
			granted <- err
		})
		for queued := false; !queued; time.Sleep(time.Millisecond) {
			list, err := queues[waiter].ask(frame("SIMBA.QUEUE", mutex))
			if err != nil {
				return nil, err
			}
			queued = len(list) > 0
		}
		time.Sleep(rand.N(handoffPause))
		released := time.Now()
		if err := clients[owner].release(); err != nil {
			return nil, err
		}
		if err := <-granted; err != nil {
			return nil, err
		}
		took = append(took, at.Sub(released))
	}
	return took, nil
}
