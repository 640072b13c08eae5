package commands

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
)

var latencyCommands = []command{
	{
		name: "latency", arity: -2, group: "server", since: "2.8.13",
		summary:    "A container for latency diagnostics commands",
		complexity: "Depends on subcommand.",
		subs:       latencySubcommands,
	},
}

var latencySubcommands = []command{
	{
		name: "histogram", arity: -2, flags: adminControl, since: "7.0.0", run: (*client).latencyHistogram,
		summary:    "Return the cumulative distribution of latencies of a subset of commands or all.",
		complexity: "O(N) where N is the number of commands with latency information being retrieved.",
		tips:       []string{"nondeterministic_output", "request_policy:all_nodes", "response_policy:special"},
		args:       []argument{{name: "command", kind: str, optional: true, multiple: true}},
	},
	{
		name: "history", arity: 3, flags: adminControl, since: "2.8.13", run: (*client).latencyHistory,
		summary: "Return timestamp-latency samples for the event.",
		tips:    []string{"nondeterministic_output", "request_policy:all_nodes", "response_policy:special"},
		args:    []argument{{name: "event", kind: str}},
	},
	{
		name: "latest", arity: 2, flags: adminControl, since: "2.8.13", run: (*client).latencyLatest,
		summary: "Return the latest latency samples for all events.",
		tips:    []string{"nondeterministic_output", "request_policy:all_nodes", "response_policy:special"},
	},
	{
		name: "reset", arity: -2, flags: adminControl, since: "2.8.13", run: (*client).latencyReset,
		summary: "Reset latency data for one or more events.",
		tips:    []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
		args:    []argument{{name: "event", kind: str, optional: true, multiple: true}},
	},
}

// The events of the latency monitor. commitEvent is the time that replies wait for the disk. The
// other events are those of Redis.
const (
	slowCommandEvent = "command"
	fastCommandEvent = "fast-command"
	commitEvent      = "settle"
)

func commandEvent(e *entry) string {
	if e.has(fast) {
		return fastCommandEvent
	}
	return slowCommandEvent
}

// latencySamples is the number of samples kept for an event, as in Redis.
const latencySamples = 160

// latencyMonitor keeps samples of slow events. For each event it keeps the longest sample of a
// second.
type latencyMonitor struct {
	threshold atomic.Int64 // milliseconds; 0 = off

	mu     sync.Mutex // protects the rest
	events map[string]*latencyEvent
}

type latencyEvent struct {
	samples []latencySample // from old to new
	max     time.Duration
}

type latencySample struct {
	at   int64 // Unix seconds
	took time.Duration
}

// consider adds a sample for an event that has just ended, if the event was slow.
func (m *latencyMonitor) consider(event string, took time.Duration) {
	threshold := m.threshold.Load()
	if threshold == 0 || took.Milliseconds() < threshold {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.events == nil {
		m.events = make(map[string]*latencyEvent)
	}
	e := m.events[event]
	if e == nil {
		e = new(latencyEvent)
		m.events[event] = e
	}
	e.add(latencySample{time.Now().Unix(), took})
}

func (e *latencyEvent) add(s latencySample) {
	e.max = max(e.max, s.took)
	if n := len(e.samples); n > 0 && e.samples[n-1].at == s.at {
		e.samples[n-1].took = max(e.samples[n-1].took, s.took)
		return
	}
	if len(e.samples) == latencySamples {
		e.samples = slices.Delete(e.samples, 0, 1)
	}
	e.samples = append(e.samples, s)
}

func (c *client) latencyLatest([][]byte) error {
	m := &c.x.latency
	m.mu.Lock()
	defer m.mu.Unlock()
	c.w.Array(len(m.events))
	for _, name := range slices.Sorted(maps.Keys(m.events)) {
		e := m.events[name]
		last := e.samples[len(e.samples)-1]
		c.w.Array(4)
		c.w.BulkString(name)
		c.w.Int(last.at)
		c.w.Int(last.took.Milliseconds())
		c.w.Int(e.max.Milliseconds())
	}
	return nil
}

func (c *client) latencyHistory(args [][]byte) error {
	m := &c.x.latency
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.events[string(args[2])]
	if e == nil {
		c.w.Array(0)
		return nil
	}
	c.w.Array(len(e.samples))
	for _, s := range e.samples {
		c.w.Array(2)
		c.w.Int(s.at)
		c.w.Int(s.took.Milliseconds())
	}
	return nil
}

func (c *client) latencyReset(args [][]byte) error {
	m := &c.x.latency
	m.mu.Lock()
	defer m.mu.Unlock()
	before := len(m.events)
	if len(args) == 2 {
		clear(m.events)
	}
	for _, name := range args[2:] {
		delete(m.events, string(name))
	}
	c.w.Int(int64(before - len(m.events)))
	return nil
}

// latencyHistogram replies with the cumulative distribution of the durations of the named commands,
// or of all commands. It omits commands without calls.
func (c *client) latencyHistogram(args [][]byte) error {
	var called []*entry
	for e := range c.x.table.all() {
		if e.tally.calls() > 0 && (len(args) == 2 || namesEntry(args[2:], e)) {
			called = append(called, e)
		}
	}
	c.w.Map(len(called))
	for _, e := range called {
		c.w.BulkString(e.full)
		c.writeHistogram(&e.tally)
	}
	return nil
}

func namesEntry(names [][]byte, e *entry) bool {
	for _, n := range names {
		if strings.EqualFold(string(n), e.full) || e.container != nil && strings.EqualFold(string(n), e.container.full) {
			return true
		}
	}
	return false
}

func (c *client) writeHistogram(t *tally) {
	var sums [simba.DurationBuckets]uint64
	var calls uint64
	filled := 0
	for i := range t.buckets {
		if n := t.buckets[i].Load(); n > 0 {
			calls += n
			sums[i] = calls
			filled++
		}
	}
	c.w.Map(2)
	c.writeNumber("calls", int64(calls))
	c.w.BulkString("histogram_usec")
	c.w.Map(filled)
	for i, sum := range sums {
		if sum > 0 {
			c.w.Int(1 << i)
			c.w.Uint(sum)
		}
	}
}
