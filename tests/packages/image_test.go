//go:build linux

package packages

import (
	"crypto/x509"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

const imageUser = 65532 // the user that the image runs as

// The test runs the script with which the Dockerfile builds the file system of the image.
func TestImageRunsAsItsUserAndKeepsItsData(t *testing.T) {
	root := t.TempDir()
	extracted := t.TempDir()
	run(t, "tar", "-xzf", artifact(t, "*_linux_"+runtime.GOARCH+".tar.gz"), "-C", extracted, "--strip-components=1")
	run(t, "../../deploy/docker/rootfs", filepath.Join(extracted, "simba-resp"), "/etc/ssl/certs/ca-certificates.crt", root)

	certificates := filepath.Join(root, "etc/ssl/certs/ca-certificates.crt")
	if !x509.NewCertPool().AppendCertsFromPEM(read(t, certificates)) {
		t.Error("the image has no certificates")
	}
	in := func(command []string, variables ...string) *exec.Cmd {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir = "/var/lib/simba-resp"
		cmd.Env = append(imageVariables(t), variables...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: credential(imageUser, imageUser)}
		return cmd
	}
	server, health := append(imageCommand(t, "ENTRYPOINT "), imageCommand(t, "CMD ")...), imageCommand(t, " CMD ")
	if out, err := in(server).CombinedOutput(); err == nil || !strings.Contains(string(out), "is open to other machines") {
		t.Errorf("the image without a password exits with %v, want an error: %s", err, out)
	}
	if out, err := in(health).CombinedOutput(); err == nil || !strings.Contains(string(out), "connection refused") {
		t.Errorf("the health check without a server exits with %v, want an error: %s", err, out)
	}
	password := redis.DialPassword("secret")
	s := start(t, in(server, "SIMBA_REQUIREPASS=secret"))
	if out, err := in(health, "SIMBA_REQUIREPASS=secret").CombinedOutput(); err != nil {
		t.Errorf("the health check exits with %v: %s", err, out)
	}
	token := s.acquire(password)
	s.stop()
	s = start(t, in(server, "SIMBA_REQUIREPASS=secret"))
	if got := s.acquire(password); got != token {
		t.Errorf("after a restart alice's token is %d, want %d as before", got, token)
	}
	s.stop()
	info, err := os.Stat(filepath.Join(root, "var/lib/simba-resp/data"))
	simbatest.Must(t, err)
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid != imageUser {
		t.Errorf("the data belongs to user %d, want the user of the image", uid)
	}
}

// imageCommand returns the command after the given words in the Dockerfile.
func imageCommand(t *testing.T, words string) []string {
	t.Helper()
	var command []string
	for line := range strings.Lines(string(read(t, "../../Dockerfile"))) {
		if _, list, ok := strings.Cut(line, words); ok && strings.HasPrefix(list, "[") {
			simbatest.Must(t, json.Unmarshal([]byte(list), &command))
		}
	}
	if command == nil {
		t.Fatalf("the Dockerfile has no command after %q", words)
	}
	return command
}

func imageVariables(t *testing.T) []string {
	t.Helper()
	var all []string
	for word := range strings.FieldsSeq(string(read(t, "../../Dockerfile"))) {
		if strings.HasPrefix(word, "SIMBA_") && strings.Contains(word, "=") && !strings.Contains(word, "…") {
			all = append(all, word)
		}
	}
	if len(all) == 0 {
		t.Fatal("the Dockerfile sets no variable")
	}
	return all
}
