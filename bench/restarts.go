package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// held is a server with many held mutexes: mutexes that have an owner.
type held struct {
	*bench
	tb      *testbed
	s       *simbatest.Server
	mutexes int
}

// hold measures the memory and disk space of held mutexes, restarts after a kill, and commits
// during checkpoints.
func (b *bench) hold(tb *testbed, mutexes int) {
	h := held{b, tb, simbatest.Start(tb), mutexes}
	killed, full := tb.TempDir()+"/killed", tb.TempDir()+"/full"
	h.take()
	h.s.Kill()
	tb.must(copyDir(h.s.Dir, killed))
	h.measureDisk(killed)
	h.measureCheckpoints(killed)
	tb.must(copyDir(killed, full))
	h.fillJournal(full)
	for round := range b.rounds {
		h.restart(round, restart, killed)
		h.restart(round, restartFull, full)
	}
}

// take acquires the mutexes, and measures the memory for them.
func (h held) take() {
	empty, err := resident(h.s.Pid())
	h.tb.must(err)
	acquire := func(i int) []byte { return frame("SIMBA.ACQUIRE", heldName(i), "c", leaseMS) }
	h.tb.must(pipe(h.s.Addr, h.mutexes, acquire, patience))
	full, err := resident(h.s.Pid())
	h.tb.must(err)
	h.add(0, key{residentBytes, always, h.mutexes}, (full-empty)/float64(h.mutexes))
}

// measureDisk measures the checkpoint in a copy of a data directory. First it starts and stops a
// server there, so that the checkpoint has all changes of the journal.
func (h held) measureDisk(dir string) {
	h.tb.must(copyDir(dir, h.s.Dir))
	h.s.Start()
	h.s.Stop()
	bytes, _, err := onDisk(h.s.Dir)
	h.tb.must(err)
	h.add(0, key{diskBytes, always, h.mutexes}, float64(bytes)/float64(h.mutexes))
}

// measureCheckpoints measures commits during checkpoints, with a copy of a data directory.
func (h held) measureCheckpoints(dir string) {
	h.tb.must(copyDir(dir, h.s.Dir))
	h.s.Start()
	defer h.s.Kill()
	if err := h.checkpoints(h.s.Addr, h.s.Dir, h.mutexes, min(h.rounds, mostCheckpoints)); err != nil {
		h.failed("commits beside a checkpoint", err)
	}
}

// restart measures how long a server with a copy of a data directory takes until it serves.
func (h held) restart(round int, q quantity, dir string) {
	h.tb.must(copyDir(dir, h.s.Dir))
	began := time.Now()
	h.s.Start()
	took := time.Since(began)
	defer h.s.Kill()
	w, err := dial(h.s.Addr, patience)
	h.tb.must(err)
	defer w.close()
	got, err := w.ask(frame("DBSIZE"))
	h.tb.must(err)
	if string(got[0]) != strconv.Itoa(h.mutexes) {
		h.tb.Fatalf("after the restart DBSIZE is %s, want %d", got, h.mutexes)
	}
	h.say("%s with %d mutexes: %.2f s", q, h.mutexes, took.Seconds())
	h.add(round, key{q, always, h.mutexes}, took.Seconds())
}

// fillJournal starts a server whose checkpoints never end. It renews mutexes until the journal is
// full, and then kills the server.
func (h held) fillJournal(dir string) {
	p := startSlow(h.tb, dir, "--stall-checkpoint")
	defer p.Kill()
	const silence = 3 * time.Second
	var renewed error
	for end := time.Now().Add(time.Minute); renewed == nil && time.Now().Before(end); {
		renewed = pipe(p.addr, h.mutexes, guard, silence)
	}
	answers := ping(p.addr)
	p.Kill()
	_, size, err := onDisk(dir)
	h.tb.must(err)
	h.tb.must(proveFull(renewed, answers, size))
	h.say("the full journal has %.1f MiB", float64(size)/(1<<20))
	h.add(0, key{journalMiB, always, h.mutexes}, float64(size)/(1<<20))
}

// leastFull is the smallest size of a full journal in bytes. Such a journal has two segments that
// are not in the checkpoint, and the one that the server writes.
const leastFull = 48 << 20

// proveFull returns an error unless the journal is full. Then its size is at least leastFull, a
// renewal gets no reply, but the server answers PING.
func proveFull(renewed, ping error, size int64) error {
	switch {
	case !errors.Is(renewed, os.ErrDeadlineExceeded):
		return fmt.Errorf("the journal is not full: SIMBA.GUARD ends with %v, not with a timeout", renewed)
	case ping != nil:
		return fmt.Errorf("the journal may not be full: the server does not answer PING: %w", ping)
	case size < leastFull:
		return fmt.Errorf("the journal is not full: it has %d bytes", size)
	}
	return nil
}

// ping returns nil if a server answers PING within a second.
func ping(addr string) error {
	w, err := dial(addr, time.Second)
	if err != nil {
		return err
	}
	defer w.close()
	_, err = w.ask(frame("PING"))
	return err
}

func heldName(i int) string { return fmt.Sprintf("m:%012d", i) }

// guard is the command that renews a held mutex.
func guard(i int) []byte { return frame("SIMBA.GUARD", heldName(i), "c", leaseMS) }

// copyDir replaces the directory at its second path by a copy of that at its first path, and syncs
// the copy.
func copyDir(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("cp -a: %w\n%s", err, out)
	}
	syscall.Sync()
	return nil
}

// onDisk returns two sizes of a data directory in bytes: of all files but the journal, and of the
// journal.
func onDisk(dir string) (others, journal int64, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if filepath.Base(filepath.Dir(path)) == "journal" {
			journal += info.Size()
		} else {
			others += info.Size()
		}
		return nil
	})
	return others, journal, err
}

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
	return 0, fmt.Errorf("/proc does not show the memory of process %d", pid)
}
