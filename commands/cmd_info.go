package commands

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

var infoCommands = []command{
	{
		name: "info", arity: -1, flags: loading | stale, categories: catDangerous,
		group: "server", since: "1.0.0", run: (*client).info,
		summary: "Get information and statistics about the server",
		tips:    []string{"nondeterministic_output", "request_policy:all_shards", "response_policy:special"},
		args:    "[section [section ...]]",
	},
}

type report struct {
	strings.Builder
	x   *Commands
	c   *client
	now time.Time
}

type section struct {
	name  string // as in the heading; clients may send it in any case
	extra bool   // INFO shows it only if the client names it, or ALL
	write func(*report)
}

var sections = []section{
	{name: "Server", write: (*report).server},
	{name: "Clients", write: (*report).clients},
	{name: "Memory", write: (*report).memory},
	{name: "Persistence", write: (*report).persistence},
	{name: "Stats", write: (*report).stats},
	{name: "Replication", write: (*report).replication},
	{name: "CPU", write: (*report).cpu},
	{name: "Commandstats", extra: true, write: (*report).commandstats},
	{name: "Errorstats", write: (*report).errorstats},
	{name: "Cluster", write: (*report).cluster},
	{name: "Simba", write: (*report).simba},
	{name: "Keyspace", write: (*report).keyspace},
}

func (c *client) info(args [][]byte) error {
	r := &report{x: c.x, c: c, now: time.Now()}
	for _, s := range sections {
		if !s.wanted(args[1:]) {
			continue
		}
		if r.Len() > 0 {
			r.WriteString("\r\n")
		}
		r.WriteString("# " + s.name + "\r\n")
		s.write(r)
	}
	c.w.Verbatim("txt", r.String())
	return nil
}

func (s *section) wanted(names [][]byte) bool {
	if len(names) == 0 {
		return !s.extra
	}
	return slices.ContainsFunc(names, func(name []byte) bool {
		switch {
		case equalFold(name, "ALL"), equalFold(name, "EVERYTHING"):
			return true
		case equalFold(name, "DEFAULT"):
			return !s.extra
		}
		return equalFold(name, strings.ToUpper(s.name))
	})
}

// line appends a field. It omits the part of the value after a line break.
func (r *report) line(name string, value any) {
	text, _, _ := strings.Cut(fmt.Sprint(value), "\n")
	r.WriteString(name + ":" + strings.TrimSuffix(text, "\r") + "\r\n")
}

func (r *report) more(fields func() []Field) {
	if fields == nil {
		return
	}
	for _, f := range fields() {
		r.line(f.Name, f.Value)
	}
}

// known appends a figure of the engine. If the figure is negative, the engine does not count it,
// and known omits it.
func (r *report) known(name string, value int64) {
	if value >= 0 {
		r.line(name, value)
	}
}
