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

// held is a server that holds many mutexes.
type held struct {
	*bench
	tb      *testbed
	s       *simbatest.Server
	mutexes int
}

// hold measures what many held mutexes cost in memory and on disk. It measures how long a killed
// server takes until it serves them again, and how a checkpoint of them delays commits.
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

// take acquires the mutexes, and measures the memory that they need.
func (h held) take() {
	empty, err := resident(h.s.Pid())
	h.tb.must(err)
	acquire := func(i int) []byte { return frame("SIMBA.ACQUIRE", heldName(i), "c", leaseMS) }
	h.tb.must(pipe(h.s.Addr, h.mutexes, acquire, patience))
	full, err := resident(h.s.Pid())
	h.tb.must(err)
	h.add(0, key{residentBytes, always, h.mutexes}, (full-empty)/float64(h.mutexes))
}

// measureDisk measures the checkpoint of a copy of a data directory, after a start has brought it
// up to the journal's end.
func (h held) measureDisk(dir string) {
	h.tb.must(copyDir(dir, h.s.Dir))
	h.s.Start()
	h.s.Stop()
	bytes, _, err := onDisk(h.s.Dir)
	h.tb.must(err)
	h.add(0, key{diskBytes, always, h.mutexes}, float64(bytes)/float64(h.mutexes))
}

// measureCheckpoints measures commits beside the checkpoints of a copy of a data directory.
func (h held) measureCheckpoints(dir string) {
	h.tb.must(copyDir(dir, h.s.Dir))
	h.s.Start()
	defer h.s.Kill()
	if err := h.checkpoints(h.s.Addr, h.s.Dir, h.mutexes, min(h.rounds, mostCheckpoints)); err != nil {
		h.failed("commits beside a checkpoint", err)
	}
}

// restart measures how long the server takes from its start until it serves, on a copy of a
// directory, and kills it.
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
		h.tb.Fatalf("%s of %d mutexes are held after the restart", got, h.mutexes)
	}
	h.say("%s with %d mutexes: %.2f s", q, h.mutexes, took.Seconds())
	h.add(round, key{q, always, h.mutexes}, took.Seconds())
}

// fillJournal renews mutexes of a data directory whose checkpoint stands still, until the journal
// takes no more, and kills the server.
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

// leastFull is how many bytes the files of a full journal have at least. They are two segments that
// the checkpoint lacks, and the segment that is being written.
const leastFull = 48 << 20

// proveFull returns an error unless the journal is full: a change waits, a server that does not
// hang answers PING, and the files are there.
func proveFull(renewed, ping error, size int64) error {
	switch {
	case !errors.Is(renewed, os.ErrDeadlineExceeded):
		return fmt.Errorf("the journal does not fill up: SIMBA.GUARD ends with %v", renewed)
	case ping != nil:
		return fmt.Errorf("the journal may not be full, the server answers nothing: %w", ping)
	case size < leastFull:
		return fmt.Errorf("the journal is not full with %d bytes", size)
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

// heldName is the name of one of the held mutexes.
func heldName(i int) string { return fmt.Sprintf("m:%012d", i) }

// guard is the renewal of a held mutex.
func guard(i int) []byte { return frame("SIMBA.GUARD", heldName(i), "c", leaseMS) }

// copyDir makes to a copy of a directory, in place of what is there, and has the kernel write it to
// the disk.
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

// onDisk returns how many bytes the files of a data directory have: those of the journal, and all
// others.
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
	return 0, fmt.Errorf("process %d does not tell its memory", pid)
}
