package access

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// small returns a catalog with a container command and some categories.
func small() *Catalog {
	return NewCatalog([]Command{
		{"get", []string{"read", "string", "fast"}},
		{"set", []string{"write", "string", "slow"}},
		{"keys", []string{"read", "dangerous", "slow"}},
		{"flushall", []string{"write", "dangerous", "slow"}},
		{"config", []string{"slow"}},
		{"config|get", []string{"admin", "dangerous", "slow"}},
		{"config|set", []string{"admin", "dangerous", "slow"}},
		{"ping", []string{"fast", "connection"}},
	}, []string{"read", "write", "string", "list", "fast", "slow", "dangerous", "admin", "connection"}, glob)
}

// glob is the match function of small. In these tests a glob may also match slashes.
func glob(pattern, s string) bool {
	ok, _ := path.Match(strings.ReplaceAll(pattern, "/", ""), strings.ReplaceAll(s, "/", ""))
	return ok
}

// user returns a user with these rules.
func user(t *testing.T, name string, rules ...string) *User {
	t.Helper()
	u := newUser(small(), name)
	for _, r := range rules {
		if err := u.apply(r); err != nil {
			t.Fatalf("the rule %s was refused: %v", r, err)
		}
	}
	return u.finish()
}

// runs returns the commands that a user may run.
func runs(u *User) string {
	var names []string
	for id, cmd := range u.catalog.commands {
		if u.MayRun(id) {
			names = append(names, cmd.Name)
		}
	}
	return strings.Join(names, " ")
}

type file struct {
	t    *testing.T
	path string
}

func newFile(t *testing.T, lines ...string) *file {
	f := &file{t, filepath.Join(t.TempDir(), "users.acl")}
	f.write(lines...)
	return f
}

func (f *file) write(lines ...string) {
	f.t.Helper()
	if err := os.WriteFile(f.path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *file) open(o Options) *Accounts {
	f.t.Helper()
	o.Path = f.path
	a, err := Open(small(), o)
	if err != nil {
		f.t.Fatal(err)
	}
	return a
}
