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

// restarts measures what many held mutexes cost in memory and on disk, and how long a server that
// was killed takes until it serves them again.
func (b *bench) restarts(st *stage, mutexes, rounds int) error {
	s := simbatest.Start(st)
	size := key{subject: always, size: mutexes}
	empty, err := resident(s.Pid())
	if err != nil {
		return err
	}
	if err := ask(s.Addr, mutexes, "SIMBA.ACQUIRE", time.Minute); err != nil {
		return err
	}
	full, err := resident(s.Pid())
	if err != nil {
		return err
	}
	size.quantity = residentBytes
	b.add(0, size, (full-empty)/float64(mutexes))
	s.Kill()

	killed, busy := st.TempDir()+"/killed", st.TempDir()+"/busy"
	if err := copyDir(s.Dir, killed); err != nil {
		return err
	}
	if err := copyDir(s.Dir, busy); err != nil {
		return err
	}
	journal, err := fillJournal(st, busy, mutexes)
	if err != nil {
		return err
	}
	b.say("the full journal has %.1f MiB", float64(journal)/(1<<20))
	for round := range rounds {
		for _, from := range []struct {
			dir      string
			quantity quantity
		}{{killed, restart}, {busy, restartFull}} {
			size.quantity = from.quantity
			took, err := start(s, from.dir, mutexes)
			if err != nil {
				return err
			}
			b.say("%s with %d mutexes: %.2f s", from.quantity, mutexes, took.Seconds())
			b.add(round, size, took.Seconds())
		}
	}
	// The start before has brought the checkpoint up to the journal's end.
	s.Start()
	s.Stop()
	bytes, _, err := onDisk(s.Dir)
	if err != nil {
		return err
	}
	size.quantity = diskBytes
	b.add(0, size, float64(bytes)/float64(mutexes))
	return nil
}

// start returns how long the server takes from its start until it serves, on a copy of a directory,
// and kills it.
func start(s *simbatest.Server, dir string, mutexes int) (time.Duration, error) {
	if err := copyDir(dir, s.Dir); err != nil {
		return 0, err
	}
	began := time.Now()
	s.Start()
	took := time.Since(began)
	defer s.Kill()
	w, err := dial(s.Addr)
	if err != nil {
		return 0, err
	}
	defer w.close()
	got, err := w.ask(frame("DBSIZE"))
	if err == nil && string(got[0]) != strconv.Itoa(mutexes) {
		err = fmt.Errorf("%s of %d mutexes are held after the restart", got, mutexes)
	}
	return took, err
}

// fillJournal renews mutexes of a data directory whose checkpoint stands still, until the journal takes no more,
// and kills the server. It returns the size of the journal.
func fillJournal(st *stage, dir string, mutexes int) (journal int64, err error) {
	p := startSlow(st, dir, "--stall-checkpoint")
	defer p.Kill()
	const silence = 3 * time.Second
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if err = ask(p.addr, mutexes, "SIMBA.GUARD", silence); err != nil {
			break
		}
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, fmt.Errorf("the journal does not fill up: %v", err)
	}
	p.Kill()
	_, journal, err = onDisk(dir)
	return journal, err
}

// ask sends a command for each mutex, a thousand at a time. A reply that takes longer than patience is an error.
func ask(addr string, mutexes int, command string, patience time.Duration) error {
	w, err := dial(addr)
	if err != nil {
		return err
	}
	defer w.close()
	const batch = 1000
	for i := 0; i < mutexes; i += batch {
		var commands []byte
		n := min(batch, mutexes-i)
		for j := range n {
			commands = append(commands, frame(command, fmt.Sprintf("m:%012d", i+j), "c", "3600000")...)
		}
		if err := w.c.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err := w.c.Write(commands); err != nil {
			return err
		}
		for range n {
			if _, err := w.receive(); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyDir makes to a copy of a directory, in place of what is there, and has the kernel write it to the disk.
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

// onDisk returns how many bytes the files of a data directory have: those of the journal, and all others.
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
