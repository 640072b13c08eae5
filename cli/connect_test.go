package cli

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// command returns a command with the flags of a connection, parsed from args.
func command(t *testing.T, args ...string) *cobra.Command {
	t.Helper()
	cmd := &cobra.Command{Use: "status"}
	cmd.SetContext(t.Context())
	AddConnection(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := t.TempDir() + "/" + name
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFlagOverridesVariableOverridesFile(t *testing.T) {
	inFile := write(t, "c.toml", "url = \"redis://file:1\"\nuser = \"carol\"\npassword-file = \""+write(t, "p", "filed\r\n")+"\"\n")
	given := write(t, "given", "\ufeffgiven\n")
	for _, row := range []struct {
		env                  map[string]string
		args                 []string
		addr, user, password string
	}{
		{nil, nil, "127.0.0.1:7379", "", ""},
		{nil, []string{"--config", inFile}, "file:1", "carol", "filed"},
		{map[string]string{"SIMBA_URL": "redis://env:2"}, []string{"--config", inFile}, "env:2", "carol", "filed"},
		{map[string]string{"SIMBA_URL": "redis://env:2"}, []string{"--config", inFile, "--url", "redis://flag"}, "flag:7379", "carol", "filed"},
		{map[string]string{"SIMBA_PASSWORD": "variable"}, []string{"--config", inFile}, "file:1", "carol", "variable"},
		{map[string]string{"SIMBA_PASSWORD": "variable", "SIMBA_USER": "eve"}, []string{"--password-file", given}, "127.0.0.1:7379", "eve", "given"},
		// The command does not mix a login in the URL with one of a weaker source.
		{map[string]string{"SIMBA_PASSWORD": "variable", "SIMBA_USER": "eve"}, []string{"--url", "redis://bob:b%40b@flag:3"}, "flag:3", "bob", "b@b"},
		{map[string]string{"SIMBA_URL": "redis://bob:bob@env", "SIMBA_PASSWORD": "variable"}, nil, "env:7379", "bob", "variable"},
		{nil, []string{"--url", "redis://bob@flag", "--password-file", given}, "flag:7379", "bob", "given"},
		{nil, []string{"--url", "unix://bob:pen@/run/simba.sock"}, "/run/simba.sock", "bob", "pen"},
		{nil, []string{"--url", "redis://[::1]:5/0"}, "[::1]:5", "", ""},
		{nil, []string{"--url", "flag:5"}, "flag:5", "", ""},
		{nil, []string{"--url", "flag"}, "flag:7379", "", ""},
		{nil, []string{"--url", "a:1,b,[::1]:5"}, "a:1,b:7379,[::1]:5", "", ""},
		{nil, []string{"--url", "redis://bob:p,q@a:1,b:2/0"}, "a:1,b:2", "bob", "p,q"},
		{nil, []string{"--url", "unix:///run/a,b.sock"}, "/run/a,b.sock", "", ""},
	} {
		t.Run(strings.Join(row.args, " "), func(t *testing.T) {
			for name, value := range row.env {
				t.Setenv(name, value)
			}
			o, err := parseOptions(command(t, row.args...))
			if err != nil {
				t.Fatal(err)
			}
			if o.Addr != row.addr || o.Username != row.user || o.Password != row.password {
				t.Errorf("parseOptions: %s as %s:%s, want %s as %s:%s", o.Addr, o.Username, o.Password, row.addr, row.user, row.password)
			}
		})
	}
}

// Every password below contains the word "secret".
func TestErrorInSettingsIsOneLineWithoutPassword(t *testing.T) {
	for _, row := range []struct {
		env  map[string]string
		args []string
		want string
	}{
		{nil, []string{"--url", "http://u:secret@h"}, "--url: use redis://"},
		{nil, []string{"--url", "u:secret@h"}, "--url: use redis://"},
		{nil, []string{"--url", "redis://u:secret/x@h"}, "--url: it cannot be parsed"},
		{nil, []string{"--url", "redis://u:1/secret@h"}, "'/' in a password must be percent-encoded"},
		{nil, []string{"--url", "redis://u:sec%zzsecret@h"}, "--url: it cannot be parsed"},
		{nil, []string{"--url", "redis://u?secret@h"}, "'?' and '#' must be percent-encoded"},
		{nil, []string{"--url", "redis://u:secret@h:0"}, "its port must be"},
		{nil, []string{"--url", "redis://u:secret@"}, "its host is missing"},
		{nil, []string{"--url", "redis://h/1"}, "only database 0"},
		{nil, []string{"--url", "unix://run/simba.sock"}, "unix:///path"},
		{map[string]string{"SIMBA_URL": "http://h:1"}, nil, "SIMBA_URL: "},
		{nil, []string{"--url", "h,redis://u:secret@g"}, "--url: it cannot be parsed"},
		{nil, []string{"--url", "redis://u:secret@h,g:0"}, "its port must be"},
		{nil, []string{"--url", "redis://u@h"}, "user u has no password"},
		{map[string]string{"SIMBA_PASSWORD": "secret", "SIMBA_PASSWORD_FILE": "f"}, nil, "SIMBA_PASSWORD and SIMBA_PASSWORD_FILE are both set"},
		{nil, []string{"--password-file", "/missing\x1b"}, `--password-file: open /missing\x1b: no such file`},
		{nil, []string{"--password-file", write(t, "empty", "\n")}, "is empty"},
		{nil, []string{"--cacert", "x"}, "--cacert needs TLS; use --url rediss://"},
		{nil, []string{"--url", "rediss://h", "--cacert", "/missing"}, "--cacert: open /missing"},
		{nil, []string{"--url", "rediss://h", "--cacert", write(t, "ca", "x")}, "has no PEM certificate"},
		{nil, []string{"--url", "rediss://h", "--cert", "x"}, "--cert and --key are needed together"},
		{nil, []string{"--config", "/missing"}, "--config: open /missing"},
		{nil, []string{"--config", write(t, "c", "user = \"u\"\nurl = redis://u:secret@h")}, "is not valid TOML in line 2"},
		{nil, []string{"--config", write(t, "c", "urls = \"redis://u:secret@h\"")}, "unknown key 'urls'"},
		{nil, []string{"--config", write(t, "c", "user = [5]")}, "must be a string"},
		{nil, []string{"--config", write(t, "c", "url = \"u:secret@h\"")}, "url in "},
	} {
		t.Run(strings.Join(row.args, " "), func(t *testing.T) {
			for name, value := range row.env {
				t.Setenv(name, value)
			}
			_, err := Options(command(t, row.args...))
			var usage *ExitError
			if !errors.As(err, &usage) || usage.ExitCode() != exitUsage {
				t.Fatalf("error %v, want one with exit code %d", err, exitUsage)
			}
			if text := err.Error(); !strings.Contains(text, row.want) || strings.Contains(text, "secret") || strings.Contains(text, "\n") {
				t.Errorf("error %q, want one line with %q", text, row.want)
			}
		})
	}
}
