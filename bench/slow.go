package main

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// slowDisk is the program bench/slowdisk: a simba-resp whose syncs take at least a given time.
type slowDisk struct {
	*simbatest.Process
	sync time.Duration
	addr string
}

// slowSyncs are the times of a sync on the slow disks.
var slowSyncs = []time.Duration{time.Millisecond, 20 * time.Millisecond}

func slowName(sync time.Duration) string { return always + ", a sync of " + milliseconds(sync) }

func milliseconds(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }

func startSlow(tb *testbed, dir string, args ...string) *slowDisk {
	p := simbatest.Run(tb, simbatest.Build(tb, "bench/slowdisk"), append([]string{"--data-dir", dir}, args...)...)
	return &slowDisk{Process: p, addr: p.Wants(tb, `ready addr=(.*)`)[1]}
}

func (b *bench) startSlowDisks() {
	for _, sync := range slowSyncs {
		if !b.wanted(slowName(sync)) {
			continue
		}
		_, err := b.tb.try(func(tb *testbed) (*site, error) {
			d := startSlow(tb, tb.TempDir()+"/data", "--sync", sync.String())
			d.sync = sync
			b.slow = append(b.slow, d)
			return nil, nil
		})
		if err != nil {
			b.failed(slowName(sync), err)
		}
	}
}

// probes measures PING and SIMBA.CHECK while 16 clients acquire and release mutexes, so that a sync
// is always in progress.
func (b *bench) probes(round int) {
	for _, d := range b.slow {
		flushDisk()
		ping, check, rate, err := d.probe(*during)
		if err != nil {
			b.failed(slowName(d.sync), err)
			continue
		}
		pingMS, checkMS := inMS(ping.Quantile(0.99)), inMS(check.Quantile(0.99))
		b.say("%s: PING p99 %.2f ms (%d requests), SIMBA.CHECK p99 %.2f ms (%d requests), beside %.0f tenures/s",
			slowName(d.sync), pingMS, len(ping), checkMS, len(check), rate)
		b.add(round, key{pingP99, slowName(d.sync), probed}, pingMS)
		b.add(round, key{checkP99, slowName(d.sync), probed}, checkMS)
	}
}

// probed is the number of clients that acquire and release during a probe.
const probed = 16

// probe returns the time of each PING and of each SIMBA.CHECK, and the rate of the tenures
// meanwhile.
func (d *slowDisk) probe(during time.Duration) (ping, check simbatest.Latencies, rate float64, err error) {
	w, err := dial(d.addr, lifetime())
	if err != nil {
		return nil, nil, 0, err
	}
	defer w.close()
	mutex := fmt.Sprintf("probed-%d", runs.Add(1))
	got, err := w.ask(frame("SIMBA.ACQUIRE", mutex, "c", leaseMS))
	if err != nil {
		return nil, nil, 0, err
	}
	token := ""
	for i := 0; i+1 < len(got); i += 2 {
		if string(got[i]) == "token" {
			token = string(got[i+1])
		}
	}
	if _, err := strconv.ParseUint(token, 10, 64); err != nil {
		return nil, nil, 0, fmt.Errorf("the reply to SIMBA.ACQUIRE is %q, want a token", got)
	}
	var all sync.WaitGroup
	errs := make([]error, 3)
	all.Go(func() {
		var f *figures
		site := &site{connect: toSimba(d.addr)}
		if f, errs[0] = site.run(load{clients: probed}, during); errs[0] == nil {
			rate = f.rate
		}
	})
	time.Sleep(warmUp)
	all.Go(func() { ping, errs[1] = timed(d.addr, frame("PING"), "PONG", during) })
	all.Go(func() { check, errs[2] = timed(d.addr, frame("SIMBA.CHECK", mutex, token), "1", during) })
	all.Wait()
	return ping, check, rate, errors.Join(errs...)
}

// timed repeats a command, with pauses of a millisecond, and returns the time of each reply.
func timed(addr string, command []byte, want string, during time.Duration) (took simbatest.Latencies, err error) {
	w, err := dial(addr, lifetime())
	if err != nil {
		return nil, err
	}
	defer w.close()
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(time.Millisecond) {
		began := time.Now()
		got, err := w.ask(command)
		if err != nil {
			return nil, err
		}
		if string(got[0]) != want {
			return nil, fmt.Errorf("the reply is %q, want %s", got, want)
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}
