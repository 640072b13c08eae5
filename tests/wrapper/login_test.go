package wrapper

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp/tests/certs"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// site is a server whose clients log in by a password, or by a certificate.
type site struct {
	*world
	dir   string
	url   string
	flags []string          // of the login
	renew func(client bool) // gives the server a new login, and also the files of the client
	admin redis.Conn
}

func (s *site) write(name, text string) string {
	path := filepath.Join(s.dir, name)
	simbatest.Must(s, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func (s *site) do(command string, args ...any) string {
	s.Helper()
	reply, err := redis.String(s.admin.Do(command, args...))
	simbatest.Must(s, err)
	return reply
}

// cutOff ends the wrapper's connections.
func (s *site) cutOff() {
	s.Helper()
	simbatest.Do(s, s.admin, "CLIENT", "KILL", "SKIPME", "yes")
}

func (s *site) elect(flags ...string) *simbatest.Process {
	s.Helper()
	return s.world.elect(s.worker(), append(append([]string{"--url", s.url}, s.flags...), flags...)...)
}

// awaitConnected waits until the wrapper has a connection.
func (s *site) awaitConnected() {
	s.Helper()
	simbatest.Await(s, "the wrapper connects again", func() bool { return strings.Contains(s.do("CLIENT", "LIST"), "name=simba-resp:elect") })
}

func withPassword(t *testing.T) *site {
	s := &site{world: &world{TB: t, file: t.TempDir() + "/moments"}, dir: t.TempDir()}
	users := func(password string) string {
		return s.write("users.acl", "user ops on >"+password+" ~job +@all\n")
	}
	s.server = simbatest.Start(t, "--aclfile", users("first"))
	s.url, s.admin = s.world.url(), simbatest.Conn(t, s.server)
	s.flags = []string{"--user", "ops", "--password-file", s.write("password", "first\n")}
	s.renew = func(client bool) {
		users("second")
		s.do("ACL", "LOAD")
		if client {
			s.write("password", "second\n")
		}
	}
	return s
}

func withCertificate(t *testing.T) *site {
	s := &site{world: &world{TB: t, file: t.TempDir() + "/moments"}, dir: t.TempDir()}
	write := func(name string, files ...string) {
		authority := certs.NewAuthority(t, name)
		for _, file := range files {
			authority.Write(t, s.dir, file+"-ca")
			authority.Sign(t, certs.Leaf{Name: file}).Write(t, s.dir, file)
		}
	}
	write("first", "server", "client")
	in := func(name string) string { return filepath.Join(s.dir, name) }
	server := simbatest.Launch(t, "--addr", "127.0.0.1:0", "--tls-addr", "127.0.0.1:0", "--data-dir", in("data"),
		"--tls-cert-file", in("server.crt"), "--tls-key-file", in("server.key"), "--tls-ca-cert-file", in("server-ca.crt"), "--tls-auth-clients", "yes")
	ready := server.Wants(t, `msg=ready addr=(\S+) tls=(\S+)`)
	s.server = &simbatest.Server{Addr: ready[1]}
	s.url, s.admin = "rediss://"+ready[2], simbatest.Conn(t, s.server)
	s.flags = []string{"--cacert", in("client-ca.crt"), "--cert", in("client.crt"), "--key", in("client.key")}
	s.renew = func(client bool) {
		files := []string{"server"}
		if client {
			files = append(files, "client")
		}
		write("second", files...)
		s.do("CONFIG", "SET", "tls-cert-file", in("server.crt"))
	}
	return s
}

var logins = map[string]func(*testing.T) *site{"password": withPassword, "certificate": withCertificate}

func TestRenewedLoginIsReadAtTheNextDial(t *testing.T) {
	t.Parallel()
	for name, open := range logins {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			p := s.elect("--ttl", "1m")
			s.started(p)
			s.renew(true)
			s.cutOff()
			s.awaitConnected()
			p.Signal(unix.SIGTERM)
			s.wantsCode(p, 0)
			if n := s.neverTwo(); n != 1 {
				t.Errorf("the command ran in %d tenures, want 1", n)
			}
		})
	}
}

// The files do not change, so that only a supervisor, or an operator, can help.
func TestRefusedLoginEndsElectAfterGiveUp(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"password": "the server refuses the password of user ops", "certificate": "certificate",
	} {
		t.Run(name, func(t *testing.T) {
			s := logins[name](t)
			p := s.elect("--ttl", "1s", "--grace", "2s", "--give-up", "1500ms")
			s.started(p)
			s.renew(false)
			s.cutOff()
			s.wantsCode(p, exitUnavailable)
			p.Wants(t, "contending again")
			p.Wants(t, want)
		})
	}
}

// A rotation can change the server first, and the file of the client later.
func TestRefusedLoginIsTriedAgainUntilGiveUp(t *testing.T) {
	t.Parallel()
	s := withPassword(t)
	p := s.elect("--ttl", "1s", "--grace", "2s", "--give-up", "1h")
	_, line := p.WantsAfter(t, 0, "^started")
	s.renew(false)
	s.cutOff()
	p.Wants(t, "job: the command has ended; contending again")
	p.Wants(t, "job: trying again: .* refuses the password of user ops")
	s.write("password", "second\n")
	p.WantsAfter(t, line, "^started")
	p.Signal(unix.SIGTERM)
	s.wantsCode(p, 0)
}
