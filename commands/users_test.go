package commands

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/simba-resp/simba-resp"
)

const (
	noKey       = "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n"
	noChannel   = "-NOPERM this user has no permissions to access one of the channels used as arguments\r\n"
	noContender = "-NOPERM this user has no permissions to act as one of the contenders used as arguments\r\n"
)

func noCommand(name string) string {
	return failed("NOPERM this user has no permissions to run the '" + name + "' command")
}

var team = []string{
	"user default on nopass ~* &* +@all",
	"user billing on >pw ~billing:* %R~shared:* +@all -@dangerous",
	"user board on >pw %R~* +@read +@pubsub",
	"user boss on >pw ~* +@all",
	"user worker on >pw ~* +@all as:w-*",
}

func (s *site) as(name string) *peer {
	s.t.Helper()
	p := s.dial()
	p.expect("AUTH "+name+" pw", ok)
	return p
}

func TestAUserUsesOnlyTheMutexesOfItsRules(t *testing.T) {
	s := newUsersSite(t, newUsersFile(t, team...))
	p := s.as("billing")
	if got := status(p.do("SIMBA.ACQUIRE billing:1 billing 60000")); got != "acquired" {
		t.Errorf("an acquire of its own mutex replied %s, want acquired", got)
	}
	for _, command := range []string{
		"SIMBA.ACQUIRE other billing 60000", "SIMBA.ACQUIRE shared:1 billing 60000", "SIMBA.GUARD other billing 1", "SIMBA.RELEASE other billing", "SIMBA.OWNER other",
		"SIMBA.QUEUE other", "SIMBA.CHECK other 1", "SIMBA.HISTORY other", "GET other", "SET shared:1 x", "TYPE other",
		// The rules apply to the mutex behind a key, in both spellings of the key.
		"GET simba:{other}", "ZCARD simba:{other}:contender", "DEL billing:1 simba:{other}", "WATCH simba:{other}",
		`EVAL "return 1" 2 billing:1 other`, "EVALSHA " + strings.Repeat("a", 40) + " 1 other",
	} {
		p.expect(command, noKey)
	}
	for _, command := range []string{"SIMBA.OWNER shared:1", "SIMBA.QUEUE shared:1", "GET simba:{billing:1}", "ZCARD simba:{billing:1}:contender", "SIMBA.SCAN 0", "PING"} {
		if got := p.do(command); got[0] == '-' {
			t.Errorf("%s replied %q, want no error", command, got)
		}
	}
	p.expect("SIMBA.BREAK billing:1", noCommand("simba.break"))
	s.as("boss").expect("SIMBA.BREAK billing:1", ":1\r\n")
}

func TestAReadOnlyUserReadsAllAndChangesNothing(t *testing.T) {
	s := newUsersSite(t, newUsersFile(t, team...))
	s.as("boss").do("SIMBA.ACQUIRE m boss 60000")
	p := s.as("board")
	p.expect("GET m", bulk("boss"))
	if got := p.do("SIMBA.OWNER m"); !strings.Contains(got, "boss") {
		t.Errorf("SIMBA.OWNER replied %q, want boss", got)
	}
	p.expect("SIMBA.ACQUIRE m board 1", noCommand("simba.acquire"))
	p.expect("SET m x", noCommand("set"))
	p.expect("SHUTDOWN", noCommand("shutdown"))
	p.expect("ACL WHOAMI", noCommand("acl|whoami"))
	p.expect("PUBLISH simba:{m} x", noChannel)
}

func TestAUserCannotActAsAnotherContender(t *testing.T) {
	s := newUsersSite(t, newUsersFile(t, team...))
	boss := s.as("boss")
	boss.do("SIMBA.ACQUIRE m boss:1 60000")
	for name, c := range map[string]struct{ may, mayNot []string }{
		"billing": {
			may: []string{"SIMBA.ACQUIRE billing:1 billing:7 1000", "SIMBA.RELEASE billing:1 billing:7", "SET billing:2 random-secret", "HSET billing:3 a:1 1", "ZADD simba:{billing:4}:contender 1 billing", "ZREM simba:{billing:4}:contender billing"},
			mayNot: []string{"SIMBA.ACQUIRE billing:1 boss 1000", "SIMBA.GUARD billing:1 billings 1000", "SIMBA.RELEASE billing:1 boss:1",
				"SET billing:2 boss", "SET billing:2 boss:7 NX PX 1000", "SETNX billing:2 worker", "SETEX billing:2 10 boss", "PSETEX billing:2 10 boss:1", "GETSET billing:2 boss", "SET billing:2 default",
				"HSET billing:3 billing:1 1 boss:1 1", "HINCRBY billing:3 boss:1 1",
				"ZADD simba:{billing:4}:contender NX 1 billing 2 boss", "ZREM simba:{billing:4}:contender billing boss"},
		},
		"worker": {
			may: []string{"SIMBA.ACQUIRE n w-1 1000", "SET o w-2 NX PX 1000", "SETEX o 10 w-2", "GETSET o w-3", "HSET h w-1 1 w-2 1", "ZADD simba:{q}:contender 1 w-1"},
			mayNot: []string{"SIMBA.ACQUIRE m boss:1 1000", "SIMBA.ACQUIRE n worker 1000", "SIMBA.RELEASE m boss:1", "SET o boss", "SETNX o boss", "SETEX o 10 boss", "PSETEX o 10 boss", "GETSET o boss",
				"HSET h w-1 1 boss 1", "HINCRBY h boss 1", "ZADD simba:{q}:contender 1 w-1 2 boss", "ZREM simba:{q}:contender boss", "SUBSCRIBE simba:{m}:boss"},
		},
	} {
		p := s.as(name)
		for _, command := range c.may {
			if got := p.do(command); got[0] == '-' {
				t.Errorf("%s cannot run %s: %q", name, command, got)
			}
		}
		for _, command := range c.mayNot {
			want := noContender
			if strings.HasPrefix(command, "SUBSCRIBE") {
				want = noChannel
			}
			p.expect(command, want)
		}
	}
	boss.expect("GET m", bulk("boss:1"))
}

// A contender of Simba on the JVM becomes the owner when it receives acquired@@ with its own id.
func TestAUserCannotPublishNoticesOfAnotherContender(t *testing.T) {
	s := newUsersSite(t, newUsersFile(t, append(team, "user loud on >pw ~* &* +@all")...))
	for user, publishes := range map[string]map[string]bool{
		"billing": {
			"simba:{billing:1} acquired@@billing:1": true, "simba:{billing:1} acquired@@random": true, "simba:{billing:1}:boss released@@billing": true, "simba:{billing:1} hello@@boss": true,
			"simba:{billing:1} boss": true, "simba:{billing:1} acquired@@": true,
			"simba:{billing:1} acquired@@boss": false, "simba:{billing:1} acquired@@boss:1": false, "simba:{billing:1}:billing:2 released@@boss": false, "simba:{billing:1}:boss acquired@@boss": false,
			"simba:{billing:1} acquired@@random@@boss": false, "simba:{billing:1} acquired@@boss@@random": false,
		},
		"worker": {"simba:{m} acquired@@w-1": true, "simba:{m} acquired@@random": false, "simba:{m}:w-2 released@@boss": false},
		"loud":   {"news acquired@@boss": true, "simba:{m} hello": true, "simba:{m} acquired@@boss": false, "simba:{m}:boss released@@worker:1": false},
	} {
		p := s.as(user)
		for words, allowed := range publishes {
			for _, publish := range []string{"PUBLISH ", "SPUBLISH "} {
				if want := map[bool]string{true: ":0\r\n", false: noContender}[allowed]; p.do(publish+words) != want {
					t.Errorf("%s: %s%s did not reply %q", user, publish, words, want)
				}
			}
		}
	}
	p := s.as("billing")
	if got := p.do(`EVAL "return redis.call('publish', 'simba:{billing:1}', 'acquired@@boss')" 0`); !strings.Contains(got, "can't act as one of the contenders") {
		t.Errorf("PUBLISH in a script replied %q, want a denial of the contender", got)
	}
	if got := p.do(`EVAL "return redis.call('set', 'billing:1', 'boss')" 0`); !strings.Contains(got, "can't act as one of the contenders") {
		t.Errorf("SET in a script replied %q, want a denial of the contender", got)
	}
	p.expect("MULTI", ok)
	p.expect("PUBLISH simba:{billing:1} acquired@@boss", noContender)
	p.expect("EXEC", failed("EXECABORT Transaction discarded because of previous errors."))
	if got := s.dial().do("ACL DRYRUN billing SET billing:1 boss"); !strings.Contains(got, "This user has no permissions to act as the 'boss' contender") {
		t.Errorf("ACL DRYRUN replied %q, want a denial of the contender", got)
	}
}

func TestTheNameOfANewUserIsItsOwn(t *testing.T) {
	file := newUsersFile(t, team...)
	s := newUsersSite(t, file)
	p := s.as("billing")
	p.expect("SET billing:1 audit:1", ok)
	p.expect("MULTI", ok)
	p.expect("SET billing:1 audit:2", "+QUEUED\r\n")
	file.write(append(team, "user audit on >pw")...)
	s.dial().expect("ACL LOAD", ok)
	if got := p.do("EXEC"); !strings.Contains(got, "no permission to act as one of the contenders used as arguments") {
		t.Errorf("EXEC of a SET that was queued before ACL LOAD replied %q, want a denial of the contender", got)
	}
	p.expect("SET billing:1 audit:3", noContender)
	p.expect("GET billing:1", bulk("audit:1"))
}

func TestAReaderOfAMutexMaySubscribeToIt(t *testing.T) {
	s := newUsersSite(t, newUsersFile(t, team...))
	for command, allowed := range map[string]bool{
		"SUBSCRIBE simba:{billing:1}": true, "SUBSCRIBE simba-events:{billing:1}": true, "SUBSCRIBE simba:{billing:1}:billing": true, "SSUBSCRIBE simba:{shared:1}": true,
		"SUBSCRIBE simba:{billing:1}:billing:2 simba:{billing:1}": true,
		"SUBSCRIBE simba:{other}":                                 false, "SUBSCRIBE simba-events:{other}": false, "SUBSCRIBE simba:{other}:billing": false, "SUBSCRIBE simba:{billing:1}:boss": false,
		"SUBSCRIBE simba:{billing:1} simba:{other}": false, "PSUBSCRIBE simba:{billing:*}": false, "PSUBSCRIBE *": false, "SUBSCRIBE news": false, "SSUBSCRIBE simba:{other}": false,
		"PUBLISH simba:{billing:1} x": true, "PUBLISH simba:{billing:1}:boss released@@billing": true, "SPUBLISH simba:{billing:1} x": true,
		"PUBLISH simba:{shared:1} x": false, "PUBLISH simba-events:{billing:1} x": false, "PUBLISH news x": false, "SPUBLISH simba:{other} x": false,
	} {
		got := s.as("billing").do(command)
		if allowed == (got == noChannel) {
			t.Errorf("%s replied %q, want allowed=%v", command, got, allowed)
		}
	}
}

func TestAScriptIsLimitedToItsCallersRules(t *testing.T) {
	s := newUsersSite(t, newUsersFile(t, team...))
	boss, p := s.as("boss"), s.as("billing")
	boss.do("SET other v")
	for call, want := range map[string]string{
		"'get','other'":        "can't access at least one of the keys",
		"'set','shared:1','x'": "can't access at least one of the keys",
		"'keys','*'":           "can't run this command or subcommand",
		"'publish','news','x'": "can't publish to the channel",
		"'zadd','simba:{billing:1}:contender','1','boss'": "can't act as one of the contenders",
	} {
		if got := p.do(fmt.Sprintf(`EVAL "return redis.call(%s)" 0`, call)); !strings.Contains(got, want) {
			t.Errorf("a script that calls %s replied %q, want %q", call, got, want)
		}
	}
	// The server discards the changes of a script that gets a denial.
	if got := p.do(`EVAL "redis.call('set','billing:9','x') return redis.call('get','other')" 0`); got[0] != '-' {
		t.Errorf("the script replied %q, want an error", got)
	}
	p.expect("GET billing:9", "$-1\r\n")
	p.expect(`EVAL "return redis.pcall('get','other')['err'] ~= nil" 0`, ":1\r\n")
	boss.expect(`EVAL "return redis.call('get','other')" 0`, bulk("v"))
	p.expect("MULTI", ok)
	p.expect(`EVAL "return redis.call('get','other')" 0`, "+QUEUED\r\n")
	if got := p.do("EXEC"); !strings.Contains(got, "can't access at least one of the keys") {
		t.Errorf("EXEC replied %q, want the error of the script", got)
	}
}

func TestATransactionIsCheckedWhenQueuedAndWhenRun(t *testing.T) {
	file := newUsersFile(t, team...)
	s := newUsersSite(t, file)
	// With GET the transaction runs in one step. With SIMBA.OWNER its commands run one by one.
	for _, mixed := range []string{"GET billing:1", "SIMBA.OWNER billing:1"} {
		file.write(team...)
		s.dial().expect("ACL LOAD", ok)
		p := s.as("billing")
		p.expect("MULTI", ok)
		p.expect("SET other x", noKey)
		p.expect("EXEC", failed("EXECABORT Transaction discarded because of previous errors."))

		p.expect("MULTI", ok)
		p.expect(mixed, "+QUEUED\r\n")
		p.expect("SET billing:2 x", "+QUEUED\r\n")
		p.expect("ZADD simba:{billing:2}:contender 1 billing", "+QUEUED\r\n")
		file.write(team[0], "user billing on >pw ~billing:* +@all -set as:w-*")
		s.dial().expect("ACL LOAD", ok)
		const why = "-NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: "
		got := p.do("EXEC")
		for _, want := range []string{"*3\r\n", why + "no permission to execute the command or subcommand\r\n", why + "no permission to act as one of the contenders used as arguments\r\n"} {
			if !strings.Contains(got, want) {
				t.Errorf("EXEC with %s replied %q, which lacks %q", mixed, got, want)
			}
		}
		s.dial().expect("GET billing:2", "$-1\r\n")
	}
}

func TestNewRulesApplyToOpenConnections(t *testing.T) {
	file := newUsersFile(t, team...)
	s := newUsersSite(t, file)
	admin := s.dial()
	gone, quiet, listener, watcher := s.as("billing"), s.as("board"), s.as("worker"), s.as("boss")
	listener.do("SUBSCRIBE simba:{m}")
	watcher.expect("MONITOR", ok)
	file.write(team[0], "user board on >other %R~* +@read +@pubsub -get", "user worker on >pw ~other +@all", "user boss on >pw ~* +@all -monitor")
	admin.expect("ACL LOAD", ok)
	gone.expectEnd()
	listener.expectEnd()
	for watcher.nc != nil { // MONITOR may show ACL LOAD before the end
		if _, err := readFrame(watcher.r); err != nil {
			break
		}
	}
	quiet.expect("GET m", noCommand("get"))
	quiet.expect("STRLEN m", ":0\r\n") // its password has changed, but the connection stays open
	admin.expect("ACL USERS", bulks("board", "boss", "default", "worker"))

	file.write("user default on nopass +nonsense")
	if got := admin.do("ACL LOAD"); !strings.Contains(got, ":1: Error in applying operation '+nonsense'") || !strings.Contains(got, "no change to the previously active ACL rules was performed") {
		t.Errorf("ACL LOAD of an invalid file replied %q, want the error of line 1", got)
	}
	quiet.expect("STRLEN m", ":0\r\n")
}

func TestAWaitEndsWhenItsUserLosesTheMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := newUsersFile(t, team...)
		s := newUsersSite(t, file)
		admin, boss, p, q := s.dial(), s.as("boss"), s.as("billing"), s.as("billing")
		boss.do("SIMBA.ACQUIRE billing:1 boss 60000")
		boss.do("SIMBA.ACQUIRE billing:2 boss 60000")
		p.send("SIMBA.ACQUIRE billing:1 billing:p 1000 WAIT 0")
		q.send("SIMBA.ACQUIRE billing:2 billing:q 1000 WAIT 0")
		synctest.Wait()
		file.write(team[0], team[3], "user billing on >pw ~billing:2 +@all")
		admin.expect("ACL LOAD", ok)
		if got := p.reply(); got != noKey {
			t.Errorf("the waiter that lost its right got %q, want NOPERM", got)
		}
		boss.expect("SIMBA.RELEASE billing:2 boss", ":1\r\n")
		if got := status(q.reply()); got != "acquired" {
			t.Errorf("the waiter that kept its right got %q, want acquired", got)
		}
		admin.expect("SIMBA.QUEUE billing:1", "*0\r\n")
	})
}

func TestACertificateAuthenticatesItsUser(t *testing.T) {
	file := newUsersFile(t, append(team, "user closed off >pw ~* +@all", "user default off")[1:]...)
	s := newSite(t, Config{Users: file.open()})
	for _, c := range []struct{ name, whoami string }{
		{"billing", bulk("billing")}, {"closed", failed(string(errNoAuth))}, {"nobody", failed(string(errNoAuth))}, {"", failed(string(errNoAuth))},
	} {
		s.certificate = c.name
		s.dial().expect("ACL WHOAMI", c.whoami)
	}
	s.certificate = "billing"
	p := s.dial()
	p.expect("SIMBA.OWNER other", noKey)
	p.expect("AUTH boss pw", ok)
	p.expect("SIMBA.OWNER other", "$-1\r\n")
	p.expect("RESET", "+RESET\r\n")
	p.expect("ACL WHOAMI", bulk("billing"))
}

func TestAConnectionIsShownWithItsUser(t *testing.T) {
	s := newSite(t, Config{Users: newUsersFile(t, team...).open()})
	p := s.as("boss")
	s.dial()
	for i, line := range lines(p.do("CLIENT LIST")) {
		if got, want := fields(line)["user"], []string{"boss", "default"}[i]; got != want {
			t.Errorf("CLIENT LIST shows connection %d with the user %s, want %s", i+1, got, want)
		}
	}
	p.expect("CLIENT KILL USER default", ":1\r\n")
	p.expect("RESET", "+RESET\r\n")
	p.expect("ACL WHOAMI", bulk("default"))
}

func TestUsersAreOnlyInTheirFile(t *testing.T) {
	p := newSite(t, Config{}).dial()
	for _, command := range []string{"SETUSER a on", "DELUSER a", "SAVE"} {
		name, _, _ := strings.Cut(command, " ")
		p.expect("ACL "+command, failed("ERR ACL "+name+" is not served: users are kept in the file of the option aclfile; change this file and send ACL LOAD"))
	}
	if got := p.do("ACL LOAD"); !strings.HasPrefix(got, "-ERR This instance is not configured to use an ACL file.") {
		t.Errorf("ACL LOAD replied %q, want an error, because there is no ACL file", got)
	}
}

func TestRulesForContendersAndChannelsCoverEveryCommand(t *testing.T) {
	for e := range newTable(families()).all() {
		for _, a := range parseUsage(e.args) {
			if a.name == "contender" && e.actor.ids == nil {
				t.Errorf("%s has an argument contender, but no actor", e.full)
			}
			if (a.name == "channel" || a.name == "shardchannel") && e.channels == noChannels && !strings.HasPrefix(e.full, "pubsub|") && !strings.Contains(e.full, "unsubscribe") {
				t.Errorf("%s has an argument channel, but no channelUse", e.full)
			}
		}
	}
}

// After a denial, the server must still reply to the rest of the pipeline.
func TestAPipelineGoesOnAfterADenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, Config{Users: newUsersFile(t, team...).open()})
		s.backend.owner = func(string) (simba.Tenure, simba.Seq, error) { return simba.Tenure{}, 0, nil }
		p := s.as("billing")
		go p.send("SIMBA.OWNER other", "PING", "SIMBA.OWNER billing:1")
		for _, want := range []string{noKey, "+PONG\r\n", "$-1\r\n"} {
			if got := p.reply(); got != want {
				t.Errorf("the pipeline got %q, want %q", got, want)
			}
		}
	})
}

// A change of the rules must also end a wait that the backend is just beginning.
func TestAWaitThatBeginsDuringAChangeOfRulesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := newUsersFile(t, team...)
		ticket := newOneTicket()
		acquire := ticket.acquire
		s := newSite(t, Config{Backend: ticket, Users: file.open()})
		ticket.acquire = func(r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
			file.write(team[0], "user billing on >pw ~other +@all")
			changed, err := s.x.gate.users.Load()
			if err != nil {
				t.Error(err)
			}
			s.x.rejudge(nil, changed)
			return acquire(r)
		}
		p := s.as("billing")
		p.expect("SIMBA.ACQUIRE billing:1 billing 1000 WAIT 0", noKey)
		wantEnd(t, ticket, simba.EndLeft)
	})
}
