package simbatest

import (
	"bufio"
	"io"
	"strings"
	"sync"
)

// lines collects the output of a process.
type lines struct {
	mu    sync.Mutex // guards the fields below
	all   []string
	grown chan struct{} // closed when the next line arrives; nil = no goroutine waits
}

func (l *lines) readFrom(r io.Reader) {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			l.add(strings.TrimSuffix(line, "\n"))
		}
		if err != nil {
			return // the pipe is closed, mostly because the process has exited
		}
	}
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
	if l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
}

// more returns a channel that is closed when the next line arrives.
func (l *lines) more() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grown == nil {
		l.grown = make(chan struct{})
	}
	return l.grown
}

func (l *lines) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

func (l *lines) line(i int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[i]
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}
