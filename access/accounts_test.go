package access

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestDefaultUserWithoutAFile(t *testing.T) {
	a, err := Open(small(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if u := a.Default().User(); !u.Unlimited() || !u.NeedsNoPassword() || !slices.Equal(a.Names(), []string{DefaultName}) || a.Protect(true) == nil {
		t.Errorf("the default user without a file: %s; want all rights and no password", u)
	}
	if _, err := a.Load(); !errors.Is(err, ErrNoFile) {
		t.Errorf("Load without a file: %v; want ErrNoFile", err)
	}
	b, _ := Open(small(), Options{Password: "pw"})
	if u := b.Default().User(); !u.Unlimited() || u.NeedsNoPassword() || b.Protect(true) != nil {
		t.Errorf("the default user with the option Password: %s; want all rights with a password", u)
	}
	if b.Authenticate([]byte("default"), []byte("pw")) != b.Default() || b.Authenticate([]byte("default"), []byte("p")) != nil || b.Authenticate([]byte("a"), []byte("pw")) != nil {
		t.Error("Authenticate refuses default with the password pw, or accepts another name or password")
	}
}

func TestFileMayHaveCommentsAndEmptyLines(t *testing.T) {
	a := newFile(t, "# a team", "", "  user\ta on  >pw   +get ", "#user b on", "\r", "user default off\r").open(Options{})
	if !slices.Equal(a.Names(), []string{"a", "default"}) || runs(a.Find("a").User()) != "get" || a.Default().User().Enabled() {
		t.Errorf("Open with comments and empty lines: the accounts %q; want a with +get, and default off", a.Names())
	}
	if !strings.HasPrefix(a.Default().User().String(), "user default off resetchannels -@all") {
		t.Error("the default user has rights that its line in the file does not give")
	}
}

func TestAllErrorsOfAFileAreReported(t *testing.T) {
	f := newFile(t, "user a +nope (x)", "x", "user", "user b", "user b", "user "+strings.Repeat("n", maxName+1), "user \x01", "user >secret on")
	_, err := Open(small(), Options{Path: f.path})
	wrong := Errors(nil)
	if !errors.As(err, &wrong) || len(wrong) != 8 || strings.Contains(err.Error(), "secret") {
		t.Fatalf("Open of a file with 8 faults: %v; want all of them, without the secret", err)
	}
	var lines []int
	for _, w := range wrong {
		line := 0
		if _, err := fmt.Sscanf(strings.TrimPrefix(w.Error(), f.path), ":%d:", &line); err != nil {
			t.Errorf("the error %v does not begin with the file and the line", w)
		}
		lines = append(lines, line)
	}
	if !slices.Equal(lines, []int{1, 1, 2, 3, 5, 6, 7, 8}) {
		t.Errorf("the errors of Open name the lines %v, want 1, 1, 2, 3, 5, 6, 7, 8", lines)
	}
}

func TestIrregularFilesAreRefused(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(small(), Options{Path: pipe}); err == nil || !strings.Contains(err.Error(), "is not a file") {
		t.Errorf("Open of a pipe: %v; want an error that it is not a file", err)
	}
}

func TestLoadIsAllOrNothing(t *testing.T) {
	f := newFile(t, "user a on >1 +get", "user b on >1 +get")
	a := f.open(Options{})
	f.write("user a on >2 +set", "user b +nope")
	if _, err := a.Load(); err == nil {
		t.Fatal("Load accepts a file with a fault")
	}
	if runs(a.Find("a").User()) != "get" || a.Authenticate([]byte("a"), []byte("2")) != nil {
		t.Error("Load applied a part of the file")
	}
}

func TestLoadReturnsChangedAndRemovedAccounts(t *testing.T) {
	f := newFile(t, "user same on >1 +get", "user other on >1 +get", "user gone on >1 +get")
	a := f.open(Options{})
	same, other, gone := a.Find("same"), a.Find("other"), a.Find("gone")
	f.write("user same on >1 +get", "user other on >1 +set", "user new on >1")
	changed, err := a.Load()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range changed {
		names = append(names, c.Name())
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"gone", "new", "other"}) {
		t.Errorf("Load returned the changed accounts %v, want gone, new and other", names)
	}
	if a.Find("same") != same || a.Find("other") != other || runs(other.User()) != "set" || gone.User() != nil || a.Find("gone") != nil {
		t.Error("after Load, Find or User returns the wrong account or rights")
	}
	f.write("user gone on >1 +get")
	if _, err := a.Load(); err != nil {
		t.Fatal(err)
	}
	if gone.User() != nil || a.Find("gone") == gone {
		t.Error("a new user of the same name has revived a removed account")
	}
}

func TestProtectedAccountsNeedPasswords(t *testing.T) {
	f := newFile(t, "user default off", "user a on >1")
	a := f.open(Options{Protected: true})
	emptyHash := "#e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for _, open := range []string{"nopass", ">", ">1 >", emptyHash} {
		f.write("user default off", "user a on "+open)
		if _, err := a.Load(); err == nil || !strings.Contains(err.Error(), "[a]") {
			t.Errorf("Load with Protected and %q: %v; want an error that names [a]", open, err)
		}
	}
}

func TestProtectAppliesFromItsCallOn(t *testing.T) {
	f := newFile(t, "user default off", "user a on nopass")
	a := f.open(Options{})
	if err := a.Protect(true); err == nil || !strings.Contains(err.Error(), "[a]") {
		t.Errorf("Protect(true) with a user without a password: %v; want an error that names [a]", err)
	}
	f.write("user default off", "user a on nopass +ping")
	if _, err := a.Load(); err != nil {
		t.Errorf("Load after the refused Protect: %v; want no error", err)
	}
	f.write("user default off", "user a on >1")
	if _, err := a.Load(); err != nil {
		t.Fatal(err)
	}
	if err := a.Protect(true); err != nil {
		t.Errorf("Protect(true) with passwords only: %v; want no error", err)
	}
	f.write("user default off", "user a on nopass")
	if _, err := a.Load(); err == nil {
		t.Error("Load accepts a user without a password")
	}
	if err := a.Protect(false); err != nil {
		t.Errorf("Protect(false): %v; want no error", err)
	}
	if _, err := a.Load(); err != nil {
		t.Errorf("Load after Protect(false): %v; want no error", err)
	}
}

func TestUserNamesMustNotOverlap(t *testing.T) {
	for text, at := range map[string]string{
		"user a on\nuser a:b on":                "users:2: the user 'a' could act as 'a:b'",
		"user a:b:c on\nuser x on\nuser a on":   "users:1: the user 'a' could act as 'a:b:c'",
		"user a on as:a as:a:*\nuser a:b on":    "", // a has rules as:
		"user ab on\nuser a on\nuser b:a on":    "",
		"user default on\nuser default:x on":    "", // default may act as any contender
		"user a: on\nuser a:b on\nuser :a on":   "",
		"user a on resetcontenders\nuser a: on": "users:2: the user 'a' could act as 'a:'",
	} {
		_, wrong := parse(small(), "users", []byte(text))
		if got := wrong.Error(); at == "" && got != "" || !strings.HasPrefix(got, at) {
			t.Errorf("parse of %q: error %q; want %q", text, got, at)
		}
	}
}

func TestOwnerMustNotBelongToAnotherUser(t *testing.T) {
	f := newFile(t, "user default off", "user a on as:a as:a:1", "user a:b on", "user free on", "user bound on as:w-*", "user any on as:*")
	a := f.open(Options{})
	long := strings.Repeat("x", maxName)
	for _, c := range []struct {
		owner string
		may   string // the users that MayName allows
	}{
		{"d41d8cd9-8f00", "a:b free any"}, // random, as lock code makes it
		{"a", "a any"},
		{"a:1", "a any"},
		{"a:2", "any"},      // belongs to a, whose rules as: do not match
		{"a:b", "a:b any"},  // begins with the names of two users
		{"a:b:", "a:b any"}, // a:b's own id, although it begins with a:
		{"a:b:c:d", "a:b any"},
		{"a:bc", "any"},
		{"ab", "a:b free any"},
		{"free:x", "free any"},
		{"w-1", "a:b free bound any"}, // belongs to no user, although a rule of bound matches
		{"default", "any"},            // a user's name, even if that user is off
		{"", "a:b free any"},
		{":a", "a:b free any"},
		{long, "a:b free any"},
		{long + ":a", "a:b free any"},
	} {
		var may []string
		for _, name := range []string{"a", "a:b", "free", "bound", "any"} {
			if a.Find(name).User().MayName(c.owner) {
				may = append(may, name)
			}
		}
		if got := strings.Join(may, " "); got != c.may {
			t.Errorf("MayName(%.20q) is true for the users %s, want %s", c.owner, got, c.may)
		}
	}
	if !newFile(t, "user a on").open(Options{}).Default().User().MayName("a") {
		t.Error("MayName of the default user is false for the name a")
	}

	// After Load, MayName of an unchanged user must know the new and removed users.
	f.write("user "+long+" on", "user free on")
	if changed, err := a.Load(); err != nil || slices.Contains(changed, a.Find("free")) {
		t.Errorf("Load: %v, %v; want no error, and free unchanged", changed, err)
	}
	if free := a.Find("free").User(); free.MayName(long) || free.MayName(long+":1") || !free.MayName("a") {
		t.Error("after Load, MayName of free still uses the former users")
	}
}
