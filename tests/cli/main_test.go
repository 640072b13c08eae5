// Package cli tests the client commands of simba-resp with real servers.
package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }

type result struct {
	out, err string
	code     int
}

// run runs simba-resp with SIMBA_URL set to url.
func run(t *testing.T, url string, args ...string) result {
	t.Helper()
	return runWith(t, []string{"SIMBA_URL=" + url}, args...)
}

func runWith(t *testing.T, env []string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), simbatest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, simbatest.Binary(t), args...)
	cmd.Env = append(simbatest.Environ(), env...)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	var exit *exec.ExitError
	if failed := cmd.Run(); failed != nil && (!errors.As(failed, &exit) || ctx.Err() != nil) {
		t.Fatalf("%v: %v\n%s", args, failed, &err)
	}
	return result{out.String(), err.String(), cmd.ProcessState.ExitCode()}
}

// must runs a command that must succeed, and returns its output.
func must(t *testing.T, url string, args ...string) string {
	t.Helper()
	r := run(t, url, args...)
	if r.code != 0 || r.err != "" {
		t.Fatalf("%v exits with code %d, want 0:\n%s", args, r.code, r.err)
	}
	return r.out
}

// fails checks the exit code, and that standard error is one line with text in it.
func (r result) fails(t *testing.T, code int, text string) {
	t.Helper()
	line, ended := strings.CutSuffix(r.err, "\n")
	if r.code != code || !ended || strings.Contains(line, "\n") || !strings.Contains(line, text) {
		t.Errorf("the command exits with code %d and prints %q, want %d and one line with %q", r.code, r.err, code, text)
	}
}

// objects decodes JSON objects, one on each line.
func objects(t *testing.T, out string) []map[string]any {
	t.Helper()
	var list []map[string]any
	for line := range strings.Lines(out) {
		var o map[string]any
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("the output has the line %q, which is no JSON: %v", line, err)
		}
		list = append(list, o)
	}
	return list
}

func object(t *testing.T, out string) map[string]any {
	t.Helper()
	list := objects(t, out)
	if len(list) != 1 {
		t.Fatalf("the output has %d JSON objects, want 1:\n%s", len(list), out)
	}
	return list[0]
}

// rows returns the cells of a table, without its headings.
func rows(out string) [][]string {
	var cells [][]string
	for line := range strings.Lines(out) {
		cells = append(cells, strings.Fields(line))
	}
	return cells[1:]
}

func url(s *simbatest.Server) string { return "redis://" + s.Addr }
