package wrapper

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp/tests/certs"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func sh(script string) []string { return []string{"sh", "-c", script} }

func TestLockPassesTheExitCodeOfTheCommand(t *testing.T) {
	w := newWorld(t)
	data := t.TempDir() + "/data"
	simbatest.Must(t, os.WriteFile(data, []byte("#!/missing\n"), 0o600))
	for _, row := range []struct {
		command []string
		code    int
		why     string
	}{
		{sh("true"), 0, ""},
		{sh("exit 7"), 7, ""},
		{sh("kill -KILL $$"), 128 + 9, ""},
		{sh("kill -TERM $$"), 128 + 15, ""},
		{[]string{"no-such-command"}, 127, `the command "no-such-command" cannot run`},
		{[]string{"/no/such/command"}, 127, `the command "/no/such/command" cannot run`},
		{[]string{data}, 126, "permission denied"},
		{[]string{"/tmp"}, 126, "is a directory"},
	} {
		p := w.lock(row.command)
		w.wantsCode(p, row.code)
		if out := p.Output(); !strings.Contains(out, row.why) || row.why == "" && out != "" {
			t.Errorf("%v: the output is %q, want %q", row.command, out, row.why)
		}
	}
	// Each wrapper above has released the mutex, so this one gets it at once.
	w.wantsCode(w.lock(sh("true"), "--try"), 0)
}

func TestLockNamesTheTenureInTheEnvironment(t *testing.T) {
	w := newWorld(t)
	p := w.lock([]string{simbatest.Binary(t), "lock", "--url", w.url(), "--id", "inner", "other", "--", "env"}, "--id", "outer")
	w.wantsCode(p, 0)
	p.Wants(t, `^SIMBA_MUTEX=other$`)
	p.Wants(t, `^SIMBA_OWNER=inner$`)
	p.Wants(t, `^SIMBA_TOKEN=\d+$`)
	if n := strings.Count(p.Output(), "SIMBA_TOKEN="); n != 1 {
		t.Errorf("the command's environment has %d variables SIMBA_TOKEN, want 1", n)
	}
}

// A user without a rule "as:" may contend only with ids that begin with the name of the user.
func TestLockOfAUserContendsByItsName(t *testing.T) {
	t.Parallel()
	users := filepath.Join(t.TempDir(), "users.acl")
	simbatest.Must(t, os.WriteFile(users, []byte("user ops on >word ~job +@simba\nuser pool on >word ~job as:pool-* +@all\n"), 0o600))
	w := &world{TB: t, server: simbatest.Start(t, "--aclfile", users)}
	p := w.lock([]string{"env"}, "--url", "redis://ops:word@"+w.server.Addr)
	w.wantsCode(p, 0)
	p.Wants(t, `^SIMBA_OWNER=ops:1:\d+@.+~[0-9a-f]{16}$`)
	p = w.lock([]string{"env"})
	w.wantsCode(p, 0)
	p.Wants(t, `^SIMBA_OWNER=1:\d+@.+~[0-9a-f]{16}$`)
	p = w.lock([]string{"env"}, "--url", "redis://pool:word@"+w.server.Addr)
	w.wantsCode(p, exitUnavailable)
	p.Wants(t, "NOPERM .*; set --id to an id that the user may use: .* rule as: allows$")
	w.wantsCode(w.lock([]string{"env"}, "--url", "redis://pool:word@"+w.server.Addr, "--id", "pool-1"), 0)
}

// The server takes the user from the certificate. So the wrapper must ask the server for the name.
func TestLockByACertificateContendsByItsName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	users := filepath.Join(dir, "users.acl")
	if err := os.WriteFile(users, []byte("user default on nopass ~job +@all\n"+
		"user ops on >word ~job +@simba +@connection +@pubsub +acl|whoami\n"+
		"user mute on >word ~job as:1:* +@simba +@connection +@pubsub\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	authority := certs.NewAuthority(t, "test CA")
	ca := authority.Write(t, dir, "ca")
	cert, key := authority.Sign(t, certs.Leaf{Name: "server"}).Write(t, dir, "server")
	server := simbatest.Launch(t, "--tls-addr", "127.0.0.1:0", "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca,
		"--tls-auth-clients", "yes", "--aclfile", users, "--data-dir", filepath.Join(dir, "data"))
	url := "rediss://" + server.Wants(t, `msg=ready .*tls=(\S+)`)[1]
	w := &world{TB: t}
	for _, c := range []struct{ name, verb, owner string }{
		{"ops", "lock", `ops:1:\d+@.+~[0-9a-f]{16}`},
		{"ops", "elect", `ops:1:\d+@.+~[0-9a-f]{16}`},
		{"nobody", "lock", `1:\d+@.+~[0-9a-f]{16}`}, // no such user, so default
		{"mute", "lock", `1:\d+@.+~[0-9a-f]{16}`},   // may not ask for its name
	} {
		cert, key := authority.Sign(t, certs.Leaf{Name: c.name}).Write(t, dir, c.name)
		p := simbatest.Run(t, simbatest.Binary(t), c.verb, "--url", url, "--cacert", ca, "--cert", cert, "--key", key, "job", "--", "env")
		w.wantsCode(p, 0)
		p.Wants(t, "^SIMBA_OWNER="+c.owner+"$")
	}
}

// systemd sends SIGTERM to all processes of a unit, unless KillMode is mixed. Then only the wrapper
// gets the signal.
func TestUnitOfTheGuideSendsTheCommandOneSIGTERM(t *testing.T) {
	text, err := os.ReadFile("../../docs/guides/wrap-a-command.md")
	simbatest.Must(t, err)
	_, unit, _ := strings.Cut(string(text), "```ini\n")
	unit, _, _ = strings.Cut(unit, "```")
	match := regexp.MustCompile(`(?m)^ExecStart=\S+/simba-resp (elect .*) scheduler -- `).FindStringSubmatch(unit)
	if match == nil {
		t.Fatalf("the guide has no unit with elect:\n%s", unit)
	}
	w := newWorld(t)
	args := append(strings.Fields(match[1]), "--url", w.url(), "job", "--")
	p := simbatest.Run(t, simbatest.Binary(t), append(args, w.worker("--stubborn")...)...)
	pid, _ := w.started(p)
	p.Signal(unix.SIGTERM)
	if !strings.Contains(unit, "\nKillMode=mixed\n") {
		_ = unix.Kill(pid, unix.SIGTERM)
	}
	p.Wants(t, "^signal terminated")
	p.Signal(unix.SIGUSR1) // comes after each SIGTERM
	p.Wants(t, "^signal user defined signal 1")
	if n := strings.Count(p.Output(), "signal terminated"); n != 1 {
		t.Errorf("the command got %d SIGTERM, want 1", n)
	}
}

func TestLockForwardsSignals(t *testing.T) {
	for sig, text := range map[unix.Signal]string{
		unix.SIGHUP: "hangup", unix.SIGINT: "interrupt", unix.SIGQUIT: "quit", unix.SIGTERM: "terminated",
	} {
		t.Run(text, func(t *testing.T) {
			w := newWorld(t)
			p := w.lock(w.worker("--family"))
			w.started(p)
			p.Signal(unix.SIGUSR1)
			p.Wants(t, "^signal user defined signal 1")
			p.Signal(sig)
			p.Wants(t, "^signal "+text)
			w.wantsCode(p, 0)
		})
	}
}

// nohup(1) and shells without job control start programs with ignored signals.
func TestIgnoredSignalStaysIgnored(t *testing.T) {
	w := newWorld(t)
	lock := simbatest.Binary(t) + " lock --url " + w.url() + " job -- "
	p := simbatest.Run(t, "sh", "-c", `trap "" HUP; exec `+lock+`sh -c 'echo started; kill -HUP $PPID; kill -HUP $$; echo alive; cat'`)
	p.Wants(t, "^alive")
	w.wantsCode(p, 0)
}

func TestLockOfAMutexThatAnotherOwns(t *testing.T) {
	w := newWorld(t)
	first := w.lock(w.worker(), "--id", "first")
	w.started(first)
	const says = "simba-resp: job: not acquired; its owner is first"
	for _, row := range []struct {
		flags []string
		code  int
		want  string
	}{
		{[]string{"--try"}, exitConflict, says},
		{[]string{"--wait", "2s"}, exitConflict, says}, // without a reply within that time, it would be exitUnavailable
		{[]string{"--try", "--conflict-exit-code", "0", "--verbose"}, 0, says},
		// cron sends each line as a mail.
		{[]string{"--try", "--quiet"}, exitConflict, ""},
		{[]string{"--wait", "2s", "--quiet"}, exitConflict, ""},
		{[]string{"--try", "--conflict-exit-code", "0"}, 0, ""},
	} {
		p := w.lock(sh("echo ran"), row.flags...)
		w.wantsCode(p, row.code)
		if got := p.Output(); got != row.want {
			t.Errorf("lock with %v prints %q, want %q", row.flags, got, row.want)
		}
	}
	// The failed attempts have left the queue. A waiter leaves it on SIGTERM, too.
	waiting := w.lock(sh("echo ran"))
	w.awaitQueued(1)
	waiting.Signal(unix.SIGTERM)
	w.wantsCode(waiting, 128+15)
	w.awaitQueued(0)
	next := w.lock(sh("echo ran"), "--wait", "1m")
	w.awaitQueued(1)
	first.Signal(unix.SIGTERM)
	w.wantsCode(next, 0)
	next.Wants(t, "^ran$")
	w.wantsCode(first, 0)
}

func TestWaitingLockSaysForWhomItWaits(t *testing.T) {
	w := newWorld(t)
	first := w.lock(w.worker(), "--id", "first")
	w.started(first)
	verbose := w.lock(sh("true"), "--verbose")
	verbose.Wants(t, "^simba-resp: job: waiting; its owner is first$")
	quiet := w.lock(sh("true"))
	c := w.shell()
	c.types("$lock job -- echo ran by itself\n")
	c.wants("waiting; its owner is first")
	c.types(ctrlC)
	c.wants("prompt> ")
	c.types("$lock --quiet job -- echo r''an\n")
	w.awaitQueued(3)
	first.Signal(unix.SIGTERM)
	w.wantsCode(first, 0)
	w.wantsCode(verbose, 0)
	w.wantsCode(quiet, 0)
	if got := quiet.Output(); got != "" {
		t.Errorf("without a terminal, a waiting lock prints %q", got)
	}
	c.wants("ran")
	if n := strings.Count(c.shown(), "waiting"); n != 1 {
		t.Errorf("the terminal shows that lock waits %d times, want 1:\n%s", n, c.shown())
	}
}

// execvp(3) runs such a script by /bin/sh, and so do flock, env and nice.
func TestScriptWithoutAFirstLineForTheKernelIsRunByTheShell(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/script", []byte("echo $0, $1, $2\nexit 7\n"), 0o700); err != nil { // it is to be executable
		t.Fatal(err)
	}
	p := w.lock([]string{dir + "/script", "a b", "c"})
	w.wantsCode(p, 7)
	p.Wants(t, "^"+dir+"/script, a b, c$")
	p = w.elect([]string{"env", "PATH=" + dir + ":" + os.Getenv("PATH"), simbatest.Binary(t), "lock", "--url", w.url(), "inner", "--", "script", "-a"})
	w.wantsCode(p, 7)
	p.Wants(t, "^"+dir+"/script, -a,$")
}

// systemd starts services with SIGPIPE ignored, which Go does not pass on.
func TestIgnoredSIGPIPEReachesTheCommandByAFlag(t *testing.T) {
	w := newWorld(t)
	for _, run := range []func([]string, ...string) *simbatest.Process{w.lock, w.elect} {
		p := run(sh("kill -PIPE $$; echo alive"), "--ignore-sigpipe")
		w.wantsCode(p, 0)
		p.Wants(t, "^alive$")
		w.wantsCode(run(sh("kill -PIPE $$; echo alive")), 128+13)
	}
}

func TestLockWithoutAServer(t *testing.T) {
	t.Parallel()
	w := &world{TB: t, server: simbatest.New(t)}
	refused := w.server.Addr + ": connection refused; check that the server runs, and the URL"
	again := "simba-resp: job: trying again: " + refused
	wants := func(p *simbatest.Process, code int, lines ...string) {
		t.Helper()
		w.wantsCode(p, code)
		if got, want := p.Output(), strings.Join(lines, "\n"); got != want {
			t.Errorf("the output is\n%s\nwant\n%s", got, want)
		}
	}
	wants(w.lock(sh("echo ran"), "--try"), exitUnavailable, "simba-resp: "+refused)
	wants(w.lock(sh("echo ran"), "--wait", "2s"), exitUnavailable, again, "simba-resp: "+refused)
	p := w.lock(sh("echo ran"))
	p.Wants(t, again)
	p.Signal(unix.SIGTERM)
	wants(p, 128+15, again)
	// Without a limit for the wait, lock waits for a server that is down.
	p = w.lock(sh("echo ran"))
	p.Wants(t, again)
	w.server.Start()
	w.wantsCode(p, 0)
	p.Wants(t, "simba-resp: job: the server answers again")
	p.Wants(t, "(?m)^ran$")
}

// Even if the release fails, lock exits with the code of the command.
func TestLockWhoseReleaseFailsSaysSo(t *testing.T) {
	w := newWorld(t)
	p := w.lock(sh("read line; exit 7"), "--ttl", "1h") // read fails at once: stdin is empty
	w.wantsCode(p, 7)
	p = w.lock(sh("kill -KILL "+strconv.Itoa(w.server.Pid())), "--ttl", "1h")
	w.wantsCode(p, 0)
	p.Wants(t, "^simba-resp: job: not released; it is free when its lease ends: "+w.server.Addr)
}

func TestLockNamesAServerThatIsNotSimba(t *testing.T) {
	t.Parallel()
	w := &world{TB: t, server: simbatest.New(t)}
	redis := stores.Redis(t)
	p := w.lock(sh("echo ran"), "--url", "redis://"+redis.Addr)
	w.wantsCode(p, exitUnavailable)
	if got := p.Output(); !strings.HasPrefix(got, "simba-resp: "+redis.Addr+": the server does not know the command; check that") || strings.Contains(got, "\n") {
		t.Errorf("lock prints %q, want an error that the server is not Simba", got)
	}
}

func TestLockRefusesBadInputBeforeItConnects(t *testing.T) {
	t.Parallel()
	port := stores.FreePort(t)
	url := []string{"--url", "redis://127.0.0.1:" + strconv.Itoa(port)}
	for _, row := range []struct {
		args []string
		why  string
	}{
		{[]string{"--", "true"}, "the name of the mutex is missing"},
		{[]string{"job", "true"}, "write -- before the command"},
		{[]string{"job", "b", "--", "true"}, `unexpected argument "b" before --`},
		{[]string{"job", "--"}, "the command is missing"},
		{[]string{"--try", "--wait", "1s", "job", "--", "true"}, "--try and --wait exclude each other"},
		{[]string{"--quiet", "--verbose", "job", "--", "true"}, "--quiet and --verbose exclude each other"},
		{[]string{"--wait", "0s", "job", "--", "true"}, "--wait is 0s; use a positive duration, or --try"},
		{[]string{"--wait", "x", "job", "--", "true"}, "--wait"},
		{[]string{"--ttl", "999ms", "job", "--", "true"}, "--ttl is 999ms, which leaves no time to stop the command; use 1s or more"},
		{[]string{"--grace", "999ms", "job", "--", "true"}, "--grace is 999ms, which leaves no time to stop the command; use 1s or more"},
		{[]string{"--grace", "25h", "job", "--", "true"}, "--grace is 25h0m0s; use 24h0m0s or less"},
		{[]string{"--ttl", "1s1us", "job", "--", "true"}, "not a whole number of milliseconds"},
		{[]string{"--conflict-exit-code", "256", "job", "--", "true"}, "--conflict-exit-code is 256, not 0 to 255"},
		{[]string{"a\x1b[2J", "--", "true"}, `lock a\x1b[2J: invalid mutex`},
		{[]string{"--id", "a@@b", "job", "--", "true"}, "invalid contender: it must not contain '@@'"},
	} {
		simbatest.Refused(t, exitUsage, row.why, append(append([]string{"lock"}, url...), row.args...)...)
	}
}

// The wrapper releases the mutex only after all processes of the command's group have ended.
func TestProcessesThatTheCommandLeavesEndBeforeTheNextCommandStarts(t *testing.T) {
	w := newWorld(t)
	p := w.lock(w.worker("--leave", "--stubborn"), "--grace", "1s")
	another := p.Wants(t, `^another started (\d+)`)[1] // so this wrapper owns the mutex
	next := w.lock(w.worker())
	w.wantsCode(p, 0)
	p.Wants(t, `the command has ended and left processes `+another+` "tests-wrapper-w"; they get SIGTERM`)
	p.Wants(t, "it gets SIGKILL")
	w.started(next)
	w.endsAsSecond(next)
}

// For kill(2), a zombie belongs to its process group. Here the parent of the zombie has left the
// group, and never waits for the zombie.
func TestZombieInTheGroupDoesNotKeepTheMutex(t *testing.T) {
	w := newWorld(t)
	p := w.lock(w.worker("--leave", "--zombie"), "--grace", "1s")
	parent := atoi(p.Wants(t, `^another started (\d+)`)[1])
	w.wantsCode(w.lock(sh("true")), 0)
	if err := unix.Kill(parent, unix.SIGKILL); err != nil { // since it keeps the stdout of p open
		t.Error(err)
	}
	w.wantsCode(p, 0)
}
