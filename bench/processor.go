package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor time in /proc. On every processor and kernel it is a hundredth of a
// second.
const tick = 10 * time.Millisecond

// processes are the process ids of a subject; 0 = the subject has no such process.
type processes struct {
	server int   // simba-resp
	store  int   // Redis, MariaDB, PostgreSQL, ZooKeeper or etcd, which keeps the mutexes
	others []int // the other members of a cluster; each does what server or store does
}

// spent is processor time in user and system mode.
type spent struct{ server, store, clients time.Duration }

// spent returns the processor time of the processes since their start. clients is the time of this
// process, whose goroutines are the clients.
func (p processes) spent() (s spent, err error) {
	if s.server, err = processorTime(p.server); err != nil {
		return s, err
	}
	if s.store, err = processorTime(p.store); err != nil {
		return s, err
	}
	s.store += timeOfChildren(p.store)
	for _, pid := range p.others {
		took, err := processorTime(pid)
		if err != nil {
			return s, err
		}
		if p.server != 0 {
			s.server += took
		} else {
			s.store += took
		}
	}
	s.clients, err = processorTime(os.Getpid())
	return s, err
}

func (s spent) since(earlier spent) spent {
	return spent{s.server - earlier.server, s.store - earlier.store, s.clients - earlier.clients}
}

// timeOfChildren returns the processor time of the running children of a process. PostgreSQL has one
// for each connection.
func timeOfChildren(pid int) (sum time.Duration) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // fails only if the pattern is wrong
	for _, list := range lists {
		children, _ := os.ReadFile(list) // fails if the thread has ended
		for _, child := range strings.Fields(string(children)) {
			n, _ := strconv.Atoi(child)
			took, _ := processorTime(n) // fails if the child has ended
			sum += took
		}
	}
	return sum
}

// processorTime returns the processor time of a process, including its ended threads and children.
// For process id 0 it returns 0.
func processorTime(pid int) (time.Duration, error) {
	if pid == 0 {
		return 0, nil
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return timeOf(string(text))
}

// timeOf returns the processor time in the text of /proc/<pid>/stat, see proc_pid_stat(5).
func timeOf(stat string) (time.Duration, error) {
	// Field 2 is the program's name in brackets, which may itself contain spaces and brackets.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const user, children = 14 - 3, 17 - 3 // fields[0] is field 3 of proc_pid_stat(5)
	if len(fields) <= children {
		return 0, fmt.Errorf("no processor time in %q", stat)
	}
	var ticks int64
	for _, field := range fields[user : children+1] { // utime, stime, cutime, cstime
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("no processor time in %q: %w", stat, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}
