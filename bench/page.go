package main

import (
	_ "embed" // for pageTemplate
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"text/template"
)

//go:embed page.tmpl
var pageTemplate string

func (b *bench) writePage(path, disk, run string) error {
	var names []string
	base := strings.TrimSuffix(path, filepath.Ext(path))
	for _, p := range pictures {
		name := fmt.Sprintf("%s-%s.svg", strings.ToLower(filepath.Base(base)), p.file)
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), []byte(p.svg(b.results)), 0o644); err != nil {
			return err
		}
		names = append(names, name)
	}
	page, err := b.page(disk, run, names)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(page), 0o644)
}

// page returns the page as Markdown. names are the file names of its pictures.
func (b *bench) page(disk, run string, names []string) (string, error) {
	t, err := template.New("page").Option("missingkey=error").Parse(pageTemplate)
	if err != nil {
		return "", err
	}
	var w strings.Builder
	err = t.Execute(&w, map[string]any{
		"Machine": machine(), "Disk": disk, "Run": run,
		"Rates": b.rateRows(subjects, manyClients), "Handoffs": b.handoffRows(), "Threes": b.rateRows(threes, threeClients),
		"Takeovers": b.takeoverRows(), "Held": figure(heldLeases), "Retrying": retrying, "Attempt": milliseconds(attempt), "Again": milliseconds(again), "Pictures": pictureList(names), "Aims": b.aimRows(),
		"Poll": milliseconds(handoffPause), "Acquires": figure(acquires), "Names": figure(mutexNames), "Probed": probed, "Renewing": renewing,
		"Subjects": subjectList(subjects), "ThreeSubjects": subjectList(threes), "Versions": strings.Join(versions(), ";\n"), "Gaps": b.gaps(),
	})
	return strings.TrimRight(w.String(), "\n") + "\n", err
}

// rateRows returns the rows of a table of times and rates, one for each subject. hot is how many
// clients want one mutex.
func (r *results) rateRows(subjects []subject, hot int) string {
	var w strings.Builder
	for _, s := range subjects {
		fmt.Fprintf(&w, "| %s | %s | %s | %s | %s | %s |\n", s.name,
			withUnit(figure(r.median(tenureP50, s.name, 1)), "ms"),
			withUnit(figure(r.median(tenureP99, s.name, 1)), "ms"),
			perSecond(r.median(tenures, s.name, manyClients)),
			perSecond(r.median(handoffs, s.name, hot)),
			figure(r.median(fairness, s.name, hot)))
	}
	return w.String()
}

// handoffRows returns the rows of the table of handoffs, one for each subject that is a simba-resp.
func (r *results) handoffRows() string {
	var w strings.Builder
	for _, s := range subjects {
		if strings.HasPrefix(s.name, "simba-resp") {
			fmt.Fprintf(&w, "| %s | %s | %s |\n", s.name,
				withUnit(figure(r.median(handoffP50, s.name, 2)), "ms"),
				withUnit(figure(r.median(handoffP99, s.name, 2)), "ms"))
		}
	}
	return w.String()
}

// takeoverRows returns the rows of the table of takeovers.
func (r *results) takeoverRows() string {
	var w strings.Builder
	for _, name := range []string{simbaThree, etcdThree} {
		fmt.Fprintf(&w, "| %s | %s | %s | %s | %s |\n", name,
			withUnit(figure(r.median(takeover, name, heldLeases)), "s"),
			withUnit(figure(r.median(takeoverP99, name, heldLeases)), "s"),
			withUnit(figure(r.median(handover, name, heldLeases)), "ms"),
			withUnit(figure(r.median(handoverLongest, name, heldLeases)), "ms"))
	}
	return w.String()
}

func perSecond(rate float64) string {
	if text := figure(rate); text != unmeasured {
		return text + "/s"
	}
	return unmeasured
}

func pictureList(names []string) string {
	var w strings.Builder
	for i, name := range names {
		fmt.Fprintf(&w, "%s\n\n![%s](%s)\n\n", pictures[i].about, pictures[i].alt, name)
	}
	return w.String()
}

func (r *results) aimRows() string {
	var w strings.Builder
	for _, a := range r.aims() {
		fmt.Fprintf(&w, "| %s | %s | %s | %s | %s | %s |\n", a.what, a.bound(), a.measured(), a.spread(), a.from, a.verdict())
	}
	return w.String()
}

func subjectList(subjects []subject) string {
	var w strings.Builder
	for _, s := range subjects {
		fmt.Fprintf(&w, "- **%s**: %s.\n", s.name, s.about)
	}
	return w.String()
}

// gaps lists programs that are not installed, and failed measurements.
func (r *results) gaps() string {
	if len(r.missing)+len(r.faults) == 0 {
		return ""
	}
	var w strings.Builder
	w.WriteString("\n## What was not measured\n\n")
	for _, name := range r.missing {
		fmt.Fprintf(&w, "- %s: not installed\n", name)
	}
	for _, f := range r.faults {
		fmt.Fprintf(&w, "- %v\n", f)
	}
	return w.String()
}

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

// versions returns the versions of the installed programs.
func versions() (all []string) {
	for _, command := range [][]string{
		{"redis-server", "--version"},
		{"/usr/sbin/mariadbd", "--version"},
		{"psql", "--version"},
		{"dpkg-query", "-W", "-f", "ZooKeeper ${Version}", "zookeeper"},
		{"etcd", "--version"},
	} {
		out, err := exec.Command(command[0], command[1:]...).Output()
		line, _, _ := strings.Cut(string(out), "\n")
		words := strings.Fields(line)
		if err != nil || len(words) == 0 {
			continue
		}
		words[0] = filepath.Base(words[0])
		all = append(all, strings.Join(words[:min(3, len(words))], " "))
	}
	return all
}
