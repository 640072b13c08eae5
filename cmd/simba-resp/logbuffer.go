package main

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// logRoom is the maximum number of buffered bytes for each kind of line.
const logRoom = 1 << 20

// logWrite is the maximum number of bytes in one write, unless a single line is longer. One write
// for each line would be too slow for the number of lines that clients can cause.
const logWrite = 64 << 10

// lineKind is a kind of line. Each has its own share of a logBuffer.
type lineKind int

const (
	plainLine lineKind = iota
	auditLine

	lineKinds
)

// logBuffer writes lines to the log, in their order, on a goroutine of its own. A logger never
// waits for the log's reader: standard error can be a pipe whose reader is alive but does not read.
//
// Plain lines and audit lines have separate room. A line is lost if it has no room, or if its write
// fails. The buffer counts lost lines. When writes succeed again, it reports their number.
//
// Its methods are safe for concurrent use.
type logBuffer struct {
	w     io.Writer
	ended chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex        // protects this group
	changed sync.Cond         // signals a change of queue or closed
	queue   []logEntry        // not written yet; w may be writing the first of them
	held    [lineKinds]int    // bytes in queue
	lost    [lineKinds]int    // lines lost since the last report
	dropped [lineKinds]uint64 // lines lost since the start
	// report returns the text that reports n lost lines; nil = no reports.
	report func(kind lineKind, n int) []byte
	closed bool
}

// logEntry is a line of the log.
type logEntry struct {
	kind  lineKind
	text  []byte
	lines int // 1; for a report, the number of lost lines that it reports
	// report is true for a report of lost lines. dropped already counts these lines.
	report bool
}

// newLogBuffer returns a buffer that writes to w. The caller must close it.
func newLogBuffer(w io.Writer) *logBuffer {
	b := &logBuffer{w: w, ended: make(chan struct{})}
	b.changed.L = &b.mu
	go b.run()
	return b
}

func (b *logBuffer) droppedLines(kind lineKind) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped[kind]
}

// setReport sets the function that reports lost lines. The buffer is locked during its calls.
func (b *logBuffer) setReport(report func(kind lineKind, lost int) []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.report = report
}

// Write adds a plain line. It does not block and always succeeds.
func (b *logBuffer) Write(line []byte) (int, error) { return b.add(plainLine, line) }

// auditLog writes audit lines to a logBuffer.
type auditLog struct{ *logBuffer }

// Write adds an audit line. It does not block and always succeeds.
func (b auditLog) Write(line []byte) (int, error) { return b.add(auditLine, line) }

func (b *logBuffer) add(kind lineKind, line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	room := logRoom
	if b.lost[kind] > 0 {
		room /= 2 // so a slow reader gets few reports, each of many lost lines
	}
	if b.closed || b.held[kind]+len(line) > room {
		b.lost[kind]++
		b.dropped[kind]++
		return len(line), nil
	}
	b.reportLocked(kind)
	b.appendLocked(logEntry{kind: kind, text: bytes.Clone(line), lines: 1})
	return len(line), nil
}

// reportLocked queues a report if lines of that kind were lost since the last one.
func (b *logBuffer) reportLocked(kind lineKind) {
	if lost := b.lost[kind]; lost > 0 && b.report != nil {
		b.lost[kind] = 0
		b.appendLocked(logEntry{kind: kind, text: b.report(kind, lost), lines: lost, report: true})
	}
}

func (b *logBuffer) appendLocked(e logEntry) {
	b.queue = append(b.queue, e)
	b.held[e.kind] += len(e.text)
	b.changed.Broadcast()
}

// run writes until the buffer is closed and empty.
func (b *logBuffer) run() {
	defer close(b.ended)
	b.mu.Lock()
	defer b.mu.Unlock()
	var text []byte
	for {
		for len(b.queue) == 0 && !b.closed {
			b.changed.Wait()
		}
		if len(b.queue) == 0 {
			return
		}
		lines := 0
		for text = text[:0]; lines < len(b.queue); lines++ {
			next := b.queue[lines].text
			if lines > 0 && len(text)+len(next) > logWrite {
				break
			}
			text = append(text, next...)
		}
		b.mu.Unlock()
		written, err := b.w.Write(text)
		b.mu.Lock()
		for _, e := range b.queue[:lines] {
			written -= len(e.text)
			b.held[e.kind] -= len(e.text)
			if err != nil && written < 0 {
				b.lost[e.kind] += e.lines
				if !e.report {
					b.dropped[e.kind]++
				}
			}
		}
		clear(b.queue[:lines]) // for the garbage collector
		b.queue = b.queue[lines:]
		if err == nil && len(b.queue) == 0 { // otherwise only a later line would cause a report
			b.reportLocked(plainLine)
			b.reportLocked(auditLine)
		}
		b.changed.Broadcast()
	}
}

// flush returns when all lines are written, or after the timeout.
func (b *logBuffer) flush(timeout time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flushLocked(timeout)
}

// close flushes the buffer and discards later lines. If all lines were written, the goroutine has
// ended. Otherwise it ends when the pending write returns, or with the process.
func (b *logBuffer) close(timeout time.Duration) {
	b.mu.Lock()
	written := b.flushLocked(timeout)
	b.closed = true
	b.changed.Broadcast()
	b.mu.Unlock()
	if written {
		<-b.ended
	}
}

func (b *logBuffer) flushLocked(timeout time.Duration) (written bool) {
	late := false
	timer := time.AfterFunc(timeout, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		late = true
		b.changed.Broadcast()
	})
	defer timer.Stop()
	for len(b.queue) > 0 && !late {
		b.changed.Wait()
	}
	return len(b.queue) == 0
}
