package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp/backends/backendtest/seeds"
)

// resident returns the memory of a process, in bytes.
func resident(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if kb, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(kb), " kB"), 64)
			return n * 1024, err
		}
	}
	return 0, fmt.Errorf("process %d does not tell its memory", pid)
}

// crowd measures what a million held mutexes cost, on servers of their own.
func (b *bench) crowd(mutexes int) {
	simbaFill := func(i int) []byte {
		return frame("SIMBA.ACQUIRE", fmt.Sprint("held-", i), "holder", "3600000")
	}
	redisFill := func(i int) []byte {
		return frame("EVALSHA", sha(seeds.SimbaAcquire), "1", fmt.Sprintf("simba:{held-%d}", i), "holder", "3600000")
	}
	for _, m := range []struct {
		name   string
		start  func(*stage) (*site, error)
		fill   func(int) []byte
		reload bool // it has a disk
	}{
		{memory, embedded("memory"), simbaFill, false},
		{always, embedded("always"), simbaFill, true},
		{redisMemory, redisServer("--appendonly", "no"), redisFill, false},
		{redisAlways, redisServer("--appendfsync", "everysec"), redisFill, true},
	} {
		err := play(b.st.dir, func(st *stage) error {
			s, err := m.start(st)
			if err != nil {
				return err
			}
			return b.fillAndRestart(m.name, s, m.fill, mutexes, m.reload)
		})
		if err != nil {
			b.fault("a million mutexes, "+m.name, err)
		}
	}
}

func (b *bench) fillAndRestart(name string, s *site, fill func(int) []byte, mutexes int, reload bool) error {
	w, err := dial(s.addr)
	if err != nil {
		return err
	}
	defer w.close()
	few, err := run(load{clients: 64}, s.connect, b.during) // it loads the scripts too
	if err != nil {
		return err
	}
	before, err := resident(s.proc.Pid())
	if err != nil {
		return err
	}
	const batch = 1000
	for i := 0; i < mutexes; i += batch {
		var commands []byte
		for j := range batch {
			commands = append(commands, fill(i+j)...)
		}
		if _, err := w.c.Write(commands); err != nil {
			return err
		}
		for range batch {
			if _, err := w.receive(); err != nil {
				return err
			}
		}
	}
	after, err := resident(s.proc.Pid())
	if err != nil {
		return err
	}
	each := (after - before) / float64(mutexes)
	b.table(heldBytes, "resident bytes each", "less", "What the process grew by while a million mutexes were taken, a thousand at a time.").add(name, "1,000,000", each)
	many, err := run(load{clients: 64}, s.connect, b.during)
	if err != nil {
		return err
	}
	t := b.table(crowded, "tenures/s", "more", "64 clients as above, while so many other mutexes are held.")
	t.add(name, "none", few.rate)
	t.add(name, "1,000,000", many.rate)
	b.say("%-24s %d held: %.0f bytes each; %.0f tenures/s before, %.0f with them", name, mutexes, each, few.rate, many.rate)
	if !reload {
		return nil
	}
	s.proc.Kill()
	began := time.Now()
	s.proc.Start()
	took := time.Since(began).Seconds()
	b.table(restart, "s", "less", "After kill -9, from the start of the process until it serves (Redis: from its append only file).").add(name, "1,000,000", took)
	b.say("%-24s %d held: restart in %.2f s", name, mutexes, took)
	return nil
}

// waiting measures what blocked clients cost, and how soon the first of them has its grant.
func (b *bench) waiting(clients int) {
	for _, name := range []string{memory, always} {
		err := play(b.st.dir, func(st *stage) error {
			s, err := embedded(strings.TrimPrefix(name, "simba-resp "))(st)
			if err != nil {
				return err
			}
			return b.blockAndWake(name, s, clients)
		})
		if err != nil {
			b.fault("blocked clients, "+name, err)
		}
	}
}

func (b *bench) blockAndWake(name string, s *site, clients int) error {
	w, err := dial(s.addr)
	if err != nil {
		return err
	}
	defer w.close()
	if _, err := w.ask(frame("SIMBA.ACQUIRE", "gate", "c0", leaseMS)); err != nil {
		return err
	}
	before, err := resident(s.proc.Pid())
	if err != nil {
		return err
	}
	queue := make([]*wire, clients)
	for i := range queue {
		if queue[i], err = dial(s.addr); err != nil {
			return err
		}
		defer queue[i].close()
		if _, err := queue[i].c.Write(frame("SIMBA.ACQUIRE", "gate", fmt.Sprint("c", i+1), leaseMS, "WAIT", "0")); err != nil {
			return err
		}
		if err := w.queued("gate", i+1); err != nil { // one after the other, so that the queue has this order
			return err
		}
	}
	after, err := resident(s.proc.Pid())
	if err != nil {
		return err
	}
	each := (after - before) / float64(clients)
	column := strconv.Itoa(clients)
	b.table(blockedSize, "resident bytes each", "less", "What the process grew by while so many clients connected and waited for one mutex.").add(name, column, each)

	var took []time.Duration
	owner := w
	for i := range min(1000, clients) {
		began := time.Now()
		if _, err := owner.c.Write(frame("SIMBA.RELEASE", "gate", fmt.Sprint("c", i))); err != nil {
			return err
		}
		got, err := queue[i].receive()
		if err != nil || string(got[1]) != "acquired" {
			return fmt.Errorf("client %d gets %q, %w", i+1, got, err)
		}
		took = append(took, time.Since(began))
		if _, err := owner.receive(); err != nil {
			return err
		}
		owner = queue[i]
	}
	slices.Sort(took)
	p99 := ms(took[len(took)*99/100])
	b.table(blockedWake, "ms", "less", "From before the owner sends RELEASE until the first of so many has its grant, a thousand times.").add(name, column, p99)
	b.say("%-24s %d blocked: %.0f bytes each, grant of the first p99 %.3f ms", name, clients, each, p99)
	return nil
}

// queued returns when so many wait for a mutex.
func (w *wire) queued(mutex string, waiters int) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		got, err := w.ask(frame("SIMBA.OWNER", mutex))
		if err != nil {
			return err
		}
		if string(got[len(got)-1]) == strconv.Itoa(waiters) {
			return nil
		}
	}
	return fmt.Errorf("there are never %d waiters for %s", waiters, mutex)
}

// deaths measures when the next owns the mutex of a holder whose connection broke, counted from the end of
// its lease, or with SESSION from the break.
func (b *bench) deaths() {
	const ttl = 200 * time.Millisecond
	for _, m := range []struct {
		subject, row string
		session      bool
	}{{memory, memory, false}, {always, always, false}, {always, always + ", SESSION", true}} {
		site := b.sites[m.subject]
		if site == nil {
			continue
		}
		var took []time.Duration
		for i := range 20 {
			d, err := death(site.addr, fmt.Sprintf("death-%d-%d", runs.Add(1), i), ttl, m.session)
			if err != nil {
				b.fault(takeover, err)
				return
			}
			took = append(took, d)
		}
		slices.Sort(took)
		b.table(takeover, "ms", "less", "From the end of its lease, or of its connection, until the next has its grant: median of 20.").add(m.row, "1 waiter", ms(took[len(took)/2]))
		b.say("%-24s takeover in %v", m.row, took[len(took)/2])
	}
}

func death(addr, mutex string, ttl time.Duration, session bool) (time.Duration, error) {
	holder, err := dial(addr)
	if err != nil {
		return 0, err
	}
	next, err := dial(addr)
	if err != nil {
		return 0, err
	}
	defer next.close()
	command := []string{"SIMBA.ACQUIRE", mutex, "holder", fmt.Sprint(ttl.Milliseconds())}
	if session {
		command = []string{"SIMBA.ACQUIRE", mutex, "holder", leaseMS, "SESSION"}
	}
	if _, err := holder.ask(frame(command...)); err != nil {
		return 0, err
	}
	ends := time.Now().Add(ttl)
	if _, err := next.c.Write(frame("SIMBA.ACQUIRE", mutex, "next", leaseMS, "WAIT", "0")); err != nil {
		return 0, err
	}
	if session {
		if err := holder.queued(mutex, 1); err != nil {
			return 0, err
		}
		ends = time.Now()
	}
	holder.close()
	got, err := next.receive()
	if err == nil && string(got[1]) != "acquired" {
		err = fmt.Errorf("the answer is %q", got)
	}
	return max(0, time.Since(ends)), err
}
