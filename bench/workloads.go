package main

import (
	"fmt"
	"strconv"
	"time"
)

// The tables of the report.
const (
	uncontended = "Uncontended: acquire and release"
	handoffs    = "One hot mutex: handoffs"
	fairness    = "One hot mutex: fairness"
	meanWait    = "One hot mutex: mean wait"
	p99Wait     = "One hot mutex: p99 of the wait"
	longestWait = "One hot mutex: longest wait over the mean"
	renewals    = "Renewals"
	watched     = "Uncontended, with subscribers"
	bounces     = "Ping-pong"
	pipelined   = "Pipelines"
	heldBytes   = "A million held mutexes: memory"
	restart     = "A million held mutexes: restart"
	crowded     = "A million held mutexes: acquire and release of others"
	blockedSize = "Blocked clients: memory"
	blockedWake = "Blocked clients: grant of the first, p99"
	takeover    = "Takeover from a holder that died"
)

// bench is a run of the program.
type bench struct {
	*results
	st       *stage
	sites    map[string]*site
	during   time.Duration // of one load
	intruded int64         // how often two owned a mutex
	say      func(format string, args ...any)
}

// fault notes what could not be measured, and goes on.
func (b *bench) fault(what string, err error) {
	text := fmt.Sprintf("%s: %v", what, err)
	b.errs = append(b.errs, text)
	b.say("FAILED %s", text)
}

// tenures measures loads of all subjects that take and give back.
func (b *bench) tenures() {
	for _, n := range []int{1, 16, 64, 256} {
		b.each(subjects, uncontended, load{clients: n}, func(s, size string, f *figures) {
			b.table(uncontended, "tenures/s", "more", "Each client has a mutex of its own, takes it and gives it back.").add(s, size, f.rate)
		})
	}
	for _, n := range []int{2, 16, 64, 256, 1024, 4096} {
		b.each(subjects, handoffs, load{clients: n, hot: true}, b.hot)
	}
	b.each(subjects, renewals, load{clients: 64, guard: true}, func(s, size string, f *figures) {
		b.table(renewals, "renewals/s", "more", "Each client owns a mutex and renews it (ZooKeeper's recipe has nothing to renew).").add(s, size, f.rate)
	})
	b.subscribed()
}

func (b *bench) hot(s, size string, f *figures) {
	b.table(handoffs, "tenures/s", "more", "All clients want one mutex.").add(s, size, f.rate)
	b.table(fairness, "Jain's index", "more", "Of the tenures of each client: 1 = all had as many.").add(s, size, f.fairness)
	b.table(meanWait, "ms", "less", "From the request to the grant.").add(s, size, ms(f.mean))
	b.table(p99Wait, "ms", "less", "").add(s, size, ms(f.p99))
	b.table(longestWait, "× mean", "less", "").add(s, size, float64(f.longest)/float64(f.mean))
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// each runs a load on each subject, one after the other.
func (b *bench) each(some []subject, what string, l load, note func(subject, size string, f *figures)) {
	for _, s := range some {
		site := b.sites[s.name]
		if site == nil || s.most > 0 && l.clients > s.most || l.guard && s.name == zooKeeper {
			continue
		}
		size := strconv.Itoa(l.clients)
		f, err := run(l, site.connect, b.during)
		if err != nil {
			b.fault(fmt.Sprintf("%s, %s, %s clients", what, s.name, size), err)
			continue
		}
		if b.intruded += f.intrusion; f.intrusion > 0 {
			b.fault(fmt.Sprintf("%s, %s, %s clients", what, s.name, size), fmt.Errorf("%d times two owned a mutex", f.intrusion))
		}
		b.say("%-24s %-34s %5s clients %9.0f/s, p99 %v", s.name, what, size, f.rate, f.p99.Round(time.Microsecond))
		note(s.name, size, f)
	}
}

// subscribed measures tenures while a hundred clients listen to every notice.
func (b *bench) subscribed() {
	const listeners = 100
	for _, s := range among(memory, always, redisMemory, redisAlways) {
		site := b.sites[s.name]
		if site == nil {
			continue
		}
		all := make([]*wire, 0, listeners)
		for range listeners {
			w, err := dial(site.addr)
			if err == nil {
				all = append(all, w)
				_, err = w.ask(frame("PSUBSCRIBE", "simba:{*}"))
			}
			if err != nil {
				b.fault(watched, err)
				return
			}
			go func() {
				for {
					if _, err := w.receive(); err != nil {
						return // closed below
					}
				}
			}()
		}
		b.each([]subject{s}, watched, load{clients: 64}, func(s, size string, f *figures) {
			b.table(watched, "tenures/s", "more", "As above, while 100 clients listen to every acquired@@.").add(s, size, f.rate)
		})
		for _, w := range all {
			w.close()
		}
	}
}
