package transcripts

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

var docsField = regexp.MustCompile("`([a-z0-9_]+(?:…)?)`")

func TestPageOfInfoListsTheFieldsThatTheServerSends(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/info.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string // those in the tables' first two columns
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| `") {
			for _, match := range docsField.FindAllStringSubmatch(line, -1) {
				listed = append(listed, match[1])
			}
		}
	}
	s := simbatest.Start(t)
	c := simbatest.Conn(t, s)
	simbatest.DoRecord(t, c, "SIMBA.ACQUIRE", "job", "a", 600_000)
	info, err := redis.String(c.Do("INFO", "everything"))
	if err != nil {
		t.Fatal(err)
	}
	var sent []string
	for line := range strings.Lines(info) {
		name, _, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		sent = append(sent, name)
		known := slices.ContainsFunc(listed, func(l string) bool {
			prefix, open := strings.CutSuffix(l, "…")
			return l == name || open && strings.HasPrefix(name, prefix)
		})
		if !known {
			t.Errorf("docs/reference/info.md lacks %s", name)
		}
	}
	for _, name := range listed {
		conditional := strings.HasPrefix(name, "tls_") || strings.HasSuffix(name, "…")
		if strings.Contains(name, "_") && !conditional && !slices.Contains(sent, name) {
			t.Errorf("docs/reference/info.md has %s, which the server does not send", name)
		}
	}
}
