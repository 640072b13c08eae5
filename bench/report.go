package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
)

// writeReport makes the report, as Markdown. The picture stands beside it.
func (b *bench) writeReport(path, picture, settings string) error {
	var w strings.Builder
	fmt.Fprintf(&w, `# Benchmarks

Made by %s; do not edit. All servers ran on the machine that also made the load, in turn, round after round; a figure is the
median of its rounds. Compare figures of one report only: another machine, or another day, gives others.

`, "`make bench`")
	fmt.Fprintf(&w, "%s. %s. In all loads together two owned a mutex %d times.\n\n", machine(), settings, b.intruded)
	fmt.Fprintf(&w, "![Tenures a second, 64 clients](%s)\n\n", picture)

	w.WriteString("## Aims\n\n| aim | bound | measured | |\n| --- | --- | --- | --- |\n")
	for _, a := range b.aims() {
		fmt.Fprintf(&w, "| %s | %s | %s | %s |\n", a.what, a.bound, number3(a.value), a.verdict())
	}
	w.WriteString("\n## Who was measured\n\n| | set up |\n| --- | --- |\n")
	for _, s := range subjects {
		fmt.Fprintf(&w, "| %s | %s |\n", s.name, s.about)
	}
	fmt.Fprintf(&w, "\n%s.\n", versions())
	for _, t := range b.tables {
		fmt.Fprintf(&w, "\n## %s\n\n%s In %s, %s is better.\n\n", t.name, t.about, t.unit, t.better)
		fmt.Fprintf(&w, "| | %s |\n|%s\n", strings.Join(t.columns, " | "), strings.Repeat(" --- |", len(t.columns)+1))
		for _, row := range t.rows {
			fmt.Fprintf(&w, "| %s |", row)
			for _, column := range t.columns {
				fmt.Fprintf(&w, " %s |", number3(t.median(row, column)))
			}
			w.WriteByte('\n')
		}
	}
	if len(b.errs) > 0 {
		w.WriteString("\n## What could not be measured\n\n")
		for _, e := range b.errs {
			fmt.Fprintf(&w, "- %s\n", e)
		}
	}
	return os.WriteFile(path, []byte(w.String()), 0o644)
}

// number3 shows three digits, or all of a whole number of more.
func number3(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case v >= 1000:
		text := fmt.Sprintf("%.0f", v)
		for i := len(text) - 3; i > 0; i -= 3 {
			text = text[:i] + "," + text[i:]
		}
		return text
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// machine says what was measured on.
func machine() string {
	model := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d processors (%s), %s, %s", runtime.NumCPU(), model, runtime.GOOS, runtime.Version())
}

// versions says whom.
func versions() string {
	var all []string
	for _, command := range [][]string{
		{"redis-server", "--version"}, {"/usr/sbin/mariadbd", "--version"}, {"dpkg-query", "-W", "-f", "ZooKeeper ${Version}", "zookeeper"}, {"etcd", "--version"},
	} {
		out, err := exec.Command(command[0], command[1:]...).Output()
		if err != nil {
			continue // it is named among what could not be measured
		}
		line, _, _ := strings.Cut(string(out), "\n")
		words := strings.Fields(line)
		all = append(all, strings.Join(words[:min(4, len(words))], " "))
	}
	return strings.Join(slices.Compact(all), "; ")
}
