//go:build linux

package packages

import (
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/gomodule/redigo/redis"
)

// imageUser is the user of the container image.
const imageUser = 65532

// The Dockerfile assembles the same root by the same script.
func TestImageRunsAsItsUserAndKeepsItsData(t *testing.T) {
	root := t.TempDir()
	extracted := t.TempDir()
	run(t, "tar", "-xzf", artifact(t, "*_linux_"+runtime.GOARCH+".tar.gz"), "-C", extracted, "--strip-components=1")
	run(t, "../../deploy/docker/rootfs", filepath.Join(extracted, "simba-resp"), "/etc/ssl/certs/ca-certificates.crt", root)

	certificates := filepath.Join(root, "etc/ssl/certs/ca-certificates.crt")
	if !x509.NewCertPool().AppendCertsFromPEM(read(t, certificates)) {
		t.Error("the image has no certificates")
	}
	serve := func(variables ...string) *exec.Cmd {
		cmd := exec.Command("/usr/bin/simba-resp")
		cmd.Dir = "/var/lib/simba-resp"
		cmd.Env = append(imageVariables(t), variables...)
		return cmd
	}
	attr := func() *syscall.SysProcAttr {
		return &syscall.SysProcAttr{Chroot: root, Credential: credential(imageUser, imageUser)}
	}
	open := serve()
	open.SysProcAttr = attr()
	if out, err := open.CombinedOutput(); err == nil || !strings.Contains(string(out), "is open to other machines") {
		t.Errorf("without a password the image does not refuse to start: %v, %s", err, out)
	}
	password := redis.DialPassword("secret")
	s := start(t, serve("SIMBA_REQUIREPASS=secret"), attr())
	token := s.acquire(password)
	s.stop()
	s = start(t, serve("SIMBA_REQUIREPASS=secret"), attr())
	if got := s.acquire(password); got != token {
		t.Errorf("alice has the token %d after a restart, want still %d", got, token)
	}
	s.stop()
	info, err := os.Stat(filepath.Join(root, "var/lib/simba-resp/data"))
	if err != nil {
		t.Fatal(err)
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid != imageUser {
		t.Errorf("the data belongs to user %d", uid)
	}
}

// imageVariables returns the variables that the Dockerfile sets.
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
