package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func usersFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users.acl")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestAllUserErrorsAreReportedWithTheirLines(t *testing.T) {
	path := usersFile(t, "# a team\nuser a on >secret1 +nonsense\nuser b secret2\nuser a on\n\nusers c\n")
	_, err := loadTest(t, []string{"--aclfile", path, "--maxclients", "0"}, nil, "")
	var wrong configErrors
	if !errors.As(err, &wrong) {
		t.Fatalf("got %v, want configErrors", err)
	}
	if _, err := loadTest(t, []string{"--aclfile", path + "x"}, nil, ""); err == nil {
		t.Error("a missing file of users is accepted")
	}
	text := err.Error()
	for _, want := range []string{
		path + ":2: Error in applying operation '+nonsense'", path + ":3: ", path + ":4: duplicate user 'a'", path + ":6: ", "--maxclients",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no error says %q:\n%s", want, text)
		}
	}
	if len(wrong) != 5 {
		t.Errorf("%d errors, want 5:\n%s", len(wrong), text)
	}
	if strings.Contains(text, "secret") {
		t.Errorf("the errors show a password:\n%s", text)
	}
}

// emptyHash is the rule for the empty password, by its SHA-256.
const emptyHash = "#e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestPublicAddressNeedsAPasswordForEachUser(t *testing.T) {
	for text, refused := range map[string]bool{
		"user default off\nuser a on >pw +@all":       false,
		"user default on >pw ~* &* +@all\nuser a off": false,
		"user a on >pw +@all":                         true, // the default user needs no password
		"user default off\nuser a on nopass":          true,
		"user default off\nuser a off nopass":         false,
		// The empty password, as a template writes it whose variable is empty, and by its hash.
		"user default off\nuser a on > ~* &* +@all":         true,
		"user default off\nuser a on >pw > +@all":           true,
		"user default off\nuser a on nopass > +@all":        true,
		"user default on > ~* &* +@all":                     true,
		"user default off\nuser a on " + emptyHash:          true,
		"user default off\nuser a off >":                    false,
		"user default off\nuser a on > >pw <":               false,
		"user default off\nuser a on > !" + emptyHash[1:]:   false,
		"user default off\nuser a on > resetpass >pw -@all": false,
	} {
		args := []string{"--addr", "0.0.0.0:0", "--aclfile", usersFile(t, text)}
		if _, err := loadTest(t, args, nil, ""); (err != nil) != refused {
			t.Errorf("users %q: error %v, want them refused: %v", text, err, refused)
		}
		if _, err := loadTest(t, append(args, "--insecure"), nil, ""); err != nil {
			t.Errorf("users %q with --insecure: error %v, want none", text, err)
		}
	}
}

func TestDefaultUserHasOnePassword(t *testing.T) {
	with := usersFile(t, "user default on >pw ~* &* +@all")
	without := usersFile(t, "user a on >pw +@all")
	if _, err := loadTest(t, []string{"--aclfile", with, "--requirepass", "x"}, nil, ""); err == nil || !strings.Contains(err.Error(), "requirepass is set too") {
		t.Errorf("a password in the file and --requirepass: error %v, want that requirepass is set too", err)
	}
	c, err := loadTest(t, []string{"--aclfile", without, "--requirepass", "x", "--addr", "0.0.0.0:0"}, nil, "")
	must(t, err)
	if c.users.Authenticate([]byte("default"), []byte("x")) == nil || c.users.Authenticate([]byte("default"), []byte("pw")) != nil {
		t.Error("the default user must log in with requirepass, and with no other password")
	}
}
