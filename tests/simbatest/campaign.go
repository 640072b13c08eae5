package simbatest

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
)

var (
	long  = flag.Bool("long", false, "repeat as often as make campaigns does")
	table = flag.String("table", "", "`file` to which each campaign adds its line")
)

// Long reports whether tests repeat as often as make campaigns requires.
func Long() bool { return *long }

// Count returns how often a test repeats something: many times in make campaigns, else few times.
func Count(few, many int) int {
	if Long() {
		return many
	}
	return few
}

// Campaign is a test that repeats one thing, and reports the number of repetitions and of errors
// (violations). Use it in place of its TB. It is safe for concurrent use.
type Campaign struct {
	testing.TB
	name, engine string

	mu         sync.Mutex // guards the fields below
	count      int
	violations int
	figures    string
}

// NewCampaign begins a campaign. When the test ends, the campaign logs its result as one line of a
// table. The flag -table names a file to which it appends this line.
func NewCampaign(t testing.TB, name, engine string) *Campaign {
	c := &Campaign{TB: t, name: name, engine: engine}
	t.Cleanup(c.end)
	return c
}

// Counted sets the number of repetitions. format and args are the measurements.
func (c *Campaign) Counted(n int, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count, c.figures = n, fmt.Sprintf(format, args...)
}

// Error and the methods below count a violation, and call the method of TB with the same name.
func (c *Campaign) Error(args ...any) {
	c.Helper()
	c.violated()
	c.TB.Error(args...)
}

func (c *Campaign) Errorf(format string, args ...any) {
	c.Helper()
	c.violated()
	c.TB.Errorf(format, args...)
}

func (c *Campaign) Fatal(args ...any) {
	c.Helper()
	c.violated()
	c.TB.Fatal(args...)
}

func (c *Campaign) Fatalf(format string, args ...any) {
	c.Helper()
	c.violated()
	c.TB.Fatalf(format, args...)
}

func (c *Campaign) violated() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.violations++
}

func (c *Campaign) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.Skipped():
		c.figures = "NOT TESTED: its store is missing"
	case c.Failed() && c.violations == 0:
		c.figures = "FAILED " + c.figures
	}
	line := fmt.Sprintf("| %s | %s | %d | %d | %s |", c.name, c.engine, c.count, c.violations, c.figures)
	c.Log(line)
	if *table == "" {
		return
	}
	f, err := os.OpenFile(*table, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		c.TB.Error(err)
		return
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, line); err != nil {
		c.TB.Error(err)
	}
}
