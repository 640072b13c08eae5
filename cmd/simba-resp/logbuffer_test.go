package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/persist"
)

// pipe is the log of a test. Its reader can hang or go away.
type pipe struct {
	mu     sync.Mutex // the test locks it while the reader hangs
	text   bytes.Buffer
	broken bool
}

func (p *pipe) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken {
		return 0, errors.New("broken pipe")
	}
	return p.text.Write(line)
}

func (p *pipe) setBroken(broken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = broken
}

// String returns what the reader has read.
func (p *pipe) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

func (p *pipe) lines() []string { return strings.Split(strings.TrimSuffix(p.String(), "\n"), "\n") }

func newPipedLogs(t *testing.T, args ...string) (*pipe, *logs) {
	t.Helper()
	c, err := loadTest(t, args, nil, "")
	must(t, err)
	p := new(pipe)
	return p, newTestLogs(t, c, p)
}

func TestLogIsCompleteAndInOrder(t *testing.T) {
	p, logs := newPipedLogs(t)
	const lines = 20_000 // more than the buffer has room for
	for i := range lines {
		if i%2 == 0 {
			logs.Info("said", "n", i)
		} else {
			logs.audit.Info("said", "n", i)
		}
		if i%1000 == 0 {
			logs.out.flush(time.Minute) // otherwise the test would fill the buffer
		}
	}
	logs.out.flush(time.Minute)
	got := p.lines()
	if len(got) != lines {
		t.Fatalf("the log has %d lines, want %d", len(got), lines)
	}
	for i, line := range got {
		if !strings.HasSuffix(line, fmt.Sprintf("msg=said n=%d", i)) {
			t.Fatalf("line %d is %s, want that n is %d", i, line, i)
		}
	}
}

// countingLog counts the writes of a log.
type countingLog struct {
	pipe
	writes int
}

func (c *countingLog) Write(text []byte) (int, error) {
	c.writes++
	return c.pipe.Write(text)
}

func TestBufferedLogLinesShareAWrite(t *testing.T) {
	log := new(countingLog)
	b := newLogBuffer(log)
	log.mu.Lock() // the reader does not read
	const lines = 10_000
	for i := range lines {
		fmt.Fprintf(b, "line %d\n", i)
	}
	log.mu.Unlock()
	b.close(time.Minute)
	if got := log.lines(); len(got) != lines || got[lines-1] != fmt.Sprint("line ", lines-1) {
		t.Errorf("the log has %d lines, the last one %q, want %d, the last one with the largest number", len(got), got[len(got)-1], lines)
	}
	if log.writes > 10 { // the first write may have taken one line only
		t.Errorf("%d lines took %d writes, want at most 10", lines, log.writes)
	}
}

// brokenLog accepts that many bytes and then fails.
type brokenLog int

func (n brokenLog) Write(text []byte) (int, error) {
	return min(int(n), len(text)), errors.New("no space left on device")
}

func TestPartialLogWriteCountsOnlyMissingLines(t *testing.T) {
	b := newLogBuffer(brokenLog(10))
	b.setReport(func(lineKind, int) []byte { return nil })
	b.mu.Lock() // so that one write takes all lines
	for _, line := range []string{"four\n", "five\n", "lost\n", "gone\n"} {
		b.appendLocked(logEntry{kind: plainLine, text: []byte(line), lines: 1})
	}
	b.mu.Unlock()
	b.close(time.Minute)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dropped[plainLine] != 2 {
		t.Errorf("dropped counts %d lines, want 2", b.dropped[plainLine])
	}
	if b.lost[plainLine] != 2 || b.held[plainLine] != 0 {
		t.Errorf("lost counts %d lines, want 2; %d bytes are held, want 0", b.lost[plainLine], b.held[plainLine])
	}
}

var droppedLine = regexp.MustCompile(`level=WARN msg="(log|audit) lines were dropped while the log's reader did not keep up" lines=(\d+)$`)

// account returns how many lines of each kind were read, and how many were reported as dropped.
func account(t *testing.T, lines []string) (read, dropped map[string]int) {
	t.Helper()
	read, dropped = map[string]int{}, map[string]int{}
	for _, line := range lines {
		if match := droppedLine.FindStringSubmatch(line); match != nil {
			n, err := strconv.Atoi(match[2])
			must(t, err)
			dropped[match[1]] += n
			continue
		}
		_, kind, _ := strings.Cut(line, "msg=")
		read[kind]++
	}
	return read, dropped
}

func TestReportReplacesLostLogLines(t *testing.T) {
	p, logs := newPipedLogs(t)
	p.mu.Lock()
	const lines = 50_000 // of some 60 bytes
	for range lines {
		logs.Info("log")
	}
	p.mu.Unlock()
	logs.out.flush(time.Minute)
	logs.Info("later")
	logs.out.flush(time.Minute)
	got := p.lines()
	read, dropped := account(t, got)
	if read["log"]+dropped["log"] != lines || dropped["log"] == 0 || read["log"] == 0 {
		t.Errorf("of %d lines %d were read and %d are reported as dropped, want each line in one of the numbers, and neither 0", lines, read["log"], dropped["log"])
	}
	if n := len(got); !droppedLine.MatchString(got[n-2]) || !strings.HasSuffix(got[n-1], "msg=later") {
		t.Errorf("the report is not where the lines are missing: %q", got[n-2:])
	}
}

func TestPlainLinesDoNotFillTheAuditBuffer(t *testing.T) {
	p, logs := newPipedLogs(t)
	p.mu.Lock()
	for range 50_000 {
		logs.Info("log")
	}
	for range 1000 {
		logs.audit.Info("audit")
	}
	p.mu.Unlock()
	logs.out.flush(time.Minute)
	if read, dropped := account(t, p.lines()); read["audit"] != 1000 || dropped["audit"] != 0 {
		t.Errorf("of 1000 audit lines %d were read and %d are reported as dropped, want 1000 and 0", read["audit"], dropped["audit"])
	}
}

func TestSlowLogReaderGetsFewReports(t *testing.T) {
	c, err := loadTest(t, nil, nil, "")
	must(t, err)
	reads := make(chan struct{}) // each value lets the reader read one line; closed = no limit
	var p pipe
	logs := newTestLogs(t, c, writerFunc(func(text []byte) (int, error) {
		for range bytes.Count(text, []byte("\n")) {
			<-reads
		}
		return p.Write(text)
	}))
	lines := 0
	for range 20_000 { // more than the buffer has room for
		logs.Info("log")
		lines++
	}
	for range 2000 { // the reader reads half of the lines
		reads <- struct{}{}
		logs.Info("log")
		logs.Info("log")
		lines += 2
	}
	close(reads)
	logs.out.flush(time.Minute)
	got := p.lines()
	read, dropped := account(t, got)
	if read["log"]+dropped["log"] != lines || dropped["log"] == 0 {
		t.Errorf("of %d lines %d were read and %d are reported as dropped, want each line in one of the numbers, and some dropped", lines, read["log"], dropped["log"])
	}
	if reports := len(got) - read["log"]; reports > 3 {
		t.Errorf("the log has %d reports, want at most 3", reports)
	}
}

func TestFailedLogWritesAreCounted(t *testing.T) {
	p, logs := newPipedLogs(t, "--log-format", "json", "--log-level", "error")
	p.setBroken(true)
	for range 3 {
		logs.audit.Info("unwritten")
		logs.out.flush(time.Minute)
	}
	p.setBroken(false)
	logs.audit.Info("written")
	logs.out.flush(time.Minute)
	got := p.lines()
	if len(got) != 2 || !strings.Contains(got[0], `"msg":"audit lines were dropped while the log's reader did not keep up","lines":3}`) ||
		!strings.Contains(got[1], `"msg":"written"`) {
		t.Errorf("the log has the lines %q, want a report of 3 dropped lines, and the written line", got)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// The test runs its own binary as another process. That process logs a failed store and exits.
func TestFailedStoreIsLoggedBeforeExit(t *testing.T) {
	const child = "SIMBA_TEST_FAILED_STORE"
	if os.Getenv(child) != "" {
		c, err := loadTest(t, nil, nil, "")
		must(t, err)
		a := &app{cfg: c, log: newLogs(c, newLogBuffer(os.Stderr))}
		a.log.Info(strings.Repeat("x", 200_000)) // more than a pipe holds
		a.storeFailed(errors.New("the disk broke"))
		return
	}
	for name, read := range map[string]bool{"read": true, "stuck": false} {
		t.Run(name, func(t *testing.T) {
			out, in, err := os.Pipe()
			must(t, err)
			defer out.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestFailedStoreIsLoggedBeforeExit$")
			cmd.Env, cmd.Stderr = append(os.Environ(), child+"=1"), in
			must(t, cmd.Start())
			in.Close()
			var text []byte
			if read {
				if text, err = io.ReadAll(out); err != nil {
					t.Fatal(err)
				}
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != persist.ExitCode {
				t.Errorf("the process ended with exit code %d, want %d", code, persist.ExitCode)
			}
			if got := strings.Contains(string(text), "the disk broke"); got != read {
				t.Errorf("the log has the reason: %v, want %v", got, read)
			}
		})
	}
}
