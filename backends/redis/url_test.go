package redis

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/certs"
)

func TestParseURL(t *testing.T) {
	for _, c := range []struct {
		url   string
		check func(t target) bool
	}{
		{"redis://h", func(t target) bool {
			return t.topology == single && slices.Equal(t.addrs, []string{"h:6379"}) && t.tls == nil
		}},
		{"redis://u:p%40@h:7/3", func(t target) bool {
			return t.addrs[0] == "h:7" && t.user == "u" && t.password == "p@" && t.db == 3
		}},
		{"redis://:secret@[::1]:7", func(t target) bool {
			return t.addrs[0] == "[::1]:7" && t.user == "" && t.password == "secret"
		}},
		{"rediss://h:7?tls-server-name=n&pool-size=5", func(t target) bool {
			return t.tls != nil && t.tls.ServerName == "n" && t.poolSize == 5
		}},
		{"redis+sentinel://a,b:7/primary/2?sentinel-user=su&sentinel-password=sp", func(t target) bool {
			return t.topology == sentinel && slices.Equal(t.addrs, []string{"a:26379", "b:7"}) && t.master == "primary" && t.db == 2 &&
				t.sentinelUser == "su" && t.sentinelPassword == "sp"
		}},
		{"rediss+sentinel://a/m", func(t target) bool { return t.topology == sentinel && t.tls != nil }},
		{"redis+cluster://a:1,b:2,c:3/0", func(t target) bool { return t.topology == cluster && len(t.addrs) == 3 }},
		{"redis://h?fence-ttl=720h", func(t target) bool { return t.fenceTTL == 720*time.Hour }},
		{"rediss+cluster://a:1?allow-eviction=true", func(t target) bool { return t.topology == cluster && t.tls != nil && t.allowEviction }},
	} {
		got, err := parseURL(c.url)
		if err != nil || !c.check(got) {
			t.Errorf("parseURL of %s: %+v, %v; want the options of the case", c.url, got, err)
		}
	}
}

func TestInvalidURLIsRefusedWithoutItsPassword(t *testing.T) {
	for url, word := range map[string]string{
		"":                                  "scheme",
		"host:6379":                         "scheme",
		"http://h":                          `"http"`,
		"redis+x://h":                       `"redis+x"`,
		"redis://":                          "host is missing",
		"redis://a,b":                       "several hosts",
		"redis://a:x":                       `"a"`,
		"redis://a:99999":                   `"a"`,
		"redis://a/x":                       `"x"`,
		"redis://a/-1":                      `"-1"`,
		"redis://a/1/2":                     `"1/2"`,
		"redis+cluster://a/1":               "only database 0",
		"redis+cluster://a,/0":              "host is missing",
		"redis+sentinel://a":                "primary's name",
		"redis://u:hunter2@h?x=1":           `"x"`,
		"redis://u:hunter2@h?pool-size=-1":  "pool-size",
		"redis://h?allow-eviction=maybe":    "allow-eviction",
		"redis://h?fence-ttl=30":            "fence-ttl",
		"redis://h?fence-ttl=10ms":          "fence-ttl",
		"redis://h?tls-ca=x":                "rediss://",
		"redis://h?sentinel-user=x":         "redis+sentinel://",
		"rediss://h?tls-cert=x":             "needed together",
		"rediss://h?tls-ca=/does/not/exist": "tls-ca",
		"redis://u:hunt%zzer2@h":            "percent-encoded",
		"redis://u:hunt#er2@h":              "percent-encoded",
		"redis://u:hunt/er2@h":              "percent-encoded",
		"redis://u:hunt?er2@h":              "percent-encoded",
		"redis://u:x@y/hunter2@h":           "percent-encoded",
		"redis://u:6379/hunter2@h":          "percent-encoded",
		"redis://u:6379?hunter2@h":          "percent-encoded",
		"redis+sentinel://u:1/hunter2@h":    "percent-encoded",
		"redis://u:hunter2":                 `"u"`,
		"redis://:hunter2":                  "host is missing",
		"redis://h#x":                       "'#'",
		"redis://h?pool-size=1&pool-size=2": "twice",
	} {
		_, err := parseURL(url)
		if err == nil || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "hunt") {
			t.Errorf("parseURL of %q: %v; want an error with %s and without the password", url, err, word)
		}
	}
}

func TestByteOrderMarkIsNoPartOfCertificate(t *testing.T) {
	authority, dir := certs.NewAuthority(t, "test CA"), t.TempDir()
	ca := authority.Write(t, dir, "ca")
	cert, key := authority.Sign(t, certs.Leaf{Name: "client"}).Write(t, dir, "client")
	for _, path := range []string{ca, cert, key} {
		text, err := os.ReadFile(path)
		must(t, err)
		must(t, os.WriteFile(path, append([]byte("\ufeff"), text...), 0o600))
	}
	to, err := parseURL(fmt.Sprintf("rediss://h?tls-ca=%s&tls-cert=%s&tls-key=%s", ca, cert, key))
	must(t, err)
	if len(to.tls.Certificates) != 1 || to.tls.Certificates[0].Leaf.Subject.CommonName != "client" {
		t.Errorf("the certificates are %+v, want that of client", to.tls.Certificates)
	}
}
