package main

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// logRoom is how many bytes of each kind of line may wait for the log's reader.
const logRoom = 1 << 20

// logWrite is how many bytes one write hands to the log at most, unless a single line is longer. A
// write for each line would be slower than clients can cause lines.
const logWrite = 64 << 10

// lineKind is what the room of a logBuffer is divided by.
type lineKind int

const (
	plainLine lineKind = iota
	auditLine

	lineKinds
)

// logBuffer writes lines to the log, in their order, on a goroutine of its own. Whoever logs never
// waits for the log's reader: standard error can be a pipe whose reader is alive but does not read.
//
// Audit lines have room of their own that other lines cannot fill. A line that finds no room, or
// that cannot be written, is lost and counted. When the log can be written again, a report in the
// place of the lost lines says how many they were.
//
// Its methods may be called concurrently.
type logBuffer struct {
	w     io.Writer
	ended chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex                                  // protects this group
	changed sync.Cond                                   // signals a change of queue or closed
	queue   []logEntry                                  // to be written; the first of them may be in Write
	held    [lineKinds]int                              // bytes in queue
	lost    [lineKinds]int                              // lines that no report in queue counts
	report  func(kind lineKind, lost int) (line []byte) // nil = no reports
	closed  bool
}

// logEntry is a line of the log.
type logEntry struct {
	kind  lineKind
	text  []byte
	lines int // lost with it, if it cannot be written: 1, or what a report counts
}

// newLogBuffer returns a buffer in front of w. It is to be closed.
func newLogBuffer(w io.Writer) *logBuffer {
	b := &logBuffer{w: w, ended: make(chan struct{})}
	b.changed.L = &b.mu
	go b.run()
	return b
}

// setReport sets how the loss of lines is reported. report is called with the buffer locked.
func (b *logBuffer) setReport(report func(kind lineKind, lost int) []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.report = report
}

// Write takes a line that is not of the audit. It does not block and always succeeds.
func (b *logBuffer) Write(line []byte) (int, error) { return b.add(plainLine, line) }

// auditLog is the same log for audit lines.
type auditLog struct{ *logBuffer }

// Write takes a line of the audit. It does not block and always succeeds.
func (b auditLog) Write(line []byte) (int, error) { return b.add(auditLine, line) }

func (b *logBuffer) add(kind lineKind, line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	room := logRoom
	if b.lost[kind] > 0 {
		room /= 2 // a reader that is too slow gets few reports, each of many lines
	}
	if b.closed || b.held[kind]+len(line) > room {
		b.lost[kind]++
		return len(line), nil
	}
	b.reportLocked(kind)
	b.appendLocked(logEntry{kind, bytes.Clone(line), 1})
	return len(line), nil
}

// reportLocked queues a report if lines of that kind were lost since the last one.
func (b *logBuffer) reportLocked(kind lineKind) {
	if lost := b.lost[kind]; lost > 0 && b.report != nil {
		b.lost[kind] = 0
		b.appendLocked(logEntry{kind, b.report(kind, lost), lost})
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
			}
		}
		clear(b.queue[:lines]) // for the collector
		b.queue = b.queue[lines:]
		if err == nil && len(b.queue) == 0 { // nothing may come that the reports could precede
			b.reportLocked(plainLine)
			b.reportLocked(auditLine)
		}
		b.changed.Broadcast()
	}
}

// flush returns when everything that was logged is written, or when patience is over.
func (b *logBuffer) flush(patience time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flushLocked(patience)
}

// close is flush, and the end of the buffer: what is logged later is lost. The goroutine has ended
// if everything was written. Otherwise it ends when the write that the reader holds up does, or
// with the process.
func (b *logBuffer) close(patience time.Duration) {
	b.mu.Lock()
	written := b.flushLocked(patience)
	b.closed = true
	b.changed.Broadcast()
	b.mu.Unlock()
	if written {
		<-b.ended
	}
}

func (b *logBuffer) flushLocked(patience time.Duration) (written bool) {
	late := false
	timer := time.AfterFunc(patience, func() {
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
