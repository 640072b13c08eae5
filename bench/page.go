package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// writePage writes the page, and the pictures beside it.
func (b *bench) writePage(path, run string) error {
	var names []string
	base := strings.TrimSuffix(path, filepath.Ext(path))
	for _, p := range pictures {
		name := fmt.Sprintf("%s-%s.svg", strings.ToLower(filepath.Base(base)), p.file)
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), []byte(p.svg(b.results)), 0o644); err != nil {
			return err
		}
		names = append(names, name)
	}
	return os.WriteFile(path, []byte(b.page(run, names)), 0o644)
}

// page is the page as Markdown. The pictures have those names.
func (b *bench) page(run string, names []string) string {
	var w strings.Builder
	fmt.Fprintf(&w, `# Benchmarks

This page shows how fast simba-resp is beside what you would take instead: Redis, MariaDB, ZooKeeper
or etcd. %s writes it; do not edit it.

All servers, their stores and all clients ran on one machine and shared its processors:
%s.
The run: %s.
Compare figures of one page only. Another machine, or another day, gives others.

## Three pictures

A tenure is an acquire and a release. 64 clients make as many tenures as they can.

`, "`make bench`", machine(), run)
	for i, name := range names {
		fmt.Fprintf(&w, "%s\n\n![%s](%s)\n\n", pictures[i].about, pictures[i].alt, name)
	}
	b.writeAims(&w)
	w.WriteString(repeating)
	b.writeMethod(&w)
	b.writeGaps(&w)
	return w.String()
}

func (b *bench) writeAims(w *strings.Builder) {
	w.WriteString(`## Aims

"measured" is the median of all rounds, and "rounds" has the smallest and the largest value. A ratio
is made within each round, in which both sides run seconds apart; "from" has the medians of the two
sides. A missed aim stays in the table.

| | aim | measured | rounds | from | |
| --- | --- | --- | --- | --- | --- |
`)
	for _, a := range b.aims() {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", a.what, a.bound(), a.measured(), a.rounds(), a.from, a.verdict())
	}
}

const repeating = `
## How to repeat it

On a Linux machine that does nothing else, with Go, redis-server, redis-tools, mariadb-server,
zookeeper with default-jre-headless, and etcd-server:

    make bench

It takes about ten minutes, prints every value, and writes this page and its pictures. A server that
is not installed has no bar. Shorter, for some servers only, and to another place:

    cd bench && go run . -rounds 3 -only Redis -out /tmp/benchmarks.md

`

func (b *bench) writeMethod(w *strings.Builder) {
	w.WriteString(`## How it was measured

- **Rounds.** Each round runs each load once on each server, in turn. Every other round has them in
  the opposite order. A load warms up for 0.3 s, then it is measured.
- **Clients.** A client is a connection that sends one command and waits for the reply. Each client
  checks that it alone owns the mutex: `)
	fmt.Fprintf(w, "in this run two owned one %d times.\n", b.intruded)
	w.WriteString("- **Processor time.** The kernel's account of each process, user and system, from `/proc/<pid>/stat`\n" +
		`  when the measurement begins and when it ends, by the tenures between. It counts in steps of 10 ms.
  The clients are the process of the benchmark itself.
- **Pipelines.** redis-benchmark with 50 clients and 100,000 names. Redis runs the acquire script of
  Simba's Redis backend.
` + "- **A slow sync.** `bench/slowdisk` is the same server on a file system whose every sync takes at least\n" +
		`  so long, asleep in the kernel. 16 clients take a mutex each and give it back. Beside them one
  connection sends PING and one SIMBA.CHECK of a mutex that stays held, with 1 ms between.
` + "- **Restart.** From the start of the process until it serves, on a copy of the data directory of a\n" +
		"  server that was ended by `kill -9`. The files are in the page cache. For the full journal,\n" +
		"  `bench/slowdisk` ends no checkpoint, and a client renews mutexes until the journal takes no more.\n" +
		`- **Bytes on disk.** All files but those of the journal, which has at most 64 MiB.
- **Fairness.** Jain's index of the clients' tenures.

Who was measured:

`)
	for _, s := range subjects {
		fmt.Fprintf(w, "- **%s**: %s.\n", s.name, s.about)
	}
	fmt.Fprintf(w, "\nVersions: %s.\n", strings.Join(versions(), "; "))
}

// writeGaps names what is not on the page.
func (b *bench) writeGaps(w *strings.Builder) {
	if len(b.missing)+len(b.errs) == 0 {
		return
	}
	w.WriteString("\n## What was not measured\n\n")
	for _, name := range b.missing {
		fmt.Fprintf(w, "- %s: not installed\n", name)
	}
	for _, e := range b.errs {
		fmt.Fprintf(w, "- %s\n", e)
	}
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

// versions says which releases were measured. A program that is not installed has none.
func versions() (all []string) {
	for _, command := range [][]string{
		{"redis-server", "--version"}, {"/usr/sbin/mariadbd", "--version"}, {"dpkg-query", "-W", "-f", "ZooKeeper ${Version}", "zookeeper"}, {"etcd", "--version"},
	} {
		out, err := exec.Command(command[0], command[1:]...).Output()
		if err != nil {
			continue
		}
		line, _, _ := strings.Cut(string(out), "\n")
		words := strings.Fields(line)
		all = append(all, strings.Join(words[:min(3, len(words))], " "))
	}
	return all
}
