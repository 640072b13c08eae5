package commands

import "testing"

// sharedUsers are lines for a file of users. This server and Redis both understand them.
var sharedUsers = []string{
	"user default on nopass ~* &* +@all",
	"user alice on >pw ~billing:* %R~shared:* %W~drop:* resetchannels &ch:* -@all +get +set +mget +eval +multi +exec +discard +watch +subscribe +psubscribe +unsubscribe +punsubscribe +publish +ssubscribe +sunsubscribe +config|get +exists +hset +del +incr",
	"user bob off #9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 ~* resetchannels -@all +ping",
	"user carol on >one >two resetchannels -@all",
}

// This server and Redis reply to these commands of alice with the same bytes. ACL LIST is not among
// them, because Redis 7.0 shows rules for commands in another form.
var sameForAlice = []string{
	"AUTH alice pw", "PING", "DIGEST billing:1", "MSETEX 1 billing:1 v", "SET billing:1 v IFNE v", "FLUSHALL", "CONFIG SET a b", "CONFIG nonsense", "CONFIG GET save", "nonsense", "GET", "CLIENT LIST", "ACL WHOAMI", "MONITOR", "SHUTDOWN",
	"GET x", "GET billing:1", "SET billing:1 v", "GET billing:1", "SET shared:1 v", "GET shared:1", "SET drop:1 v", "GET drop:1", "SET drop:1 v GET", "SET drop:1 v EX 100 GET",
	"DEL drop:1", "DEL shared:1", "EXISTS drop:1", "EXISTS shared:1 x", "MGET billing:1 shared:1", "MGET billing:1 x", "HSET drop:2 f v", "INCR drop:3", "DEL drop:2 drop:1",
	"PUBLISH x y", "PUBLISH ch:1 m", "SUBSCRIBE x", "SUBSCRIBE ch:1 x", "PSUBSCRIBE ch:1", "PSUBSCRIBE ch:*", "PUNSUBSCRIBE", "SSUBSCRIBE x", "SSUBSCRIBE ch:2", "SUNSUBSCRIBE", "UNSUBSCRIBE zz",
	"WATCH x", "WATCH drop:1", "WATCH billing:1", "MULTI", "GET billing:1", "EXEC", "MULTI", "GET x", "EXEC", "MULTI", "FLUSHALL", "GET billing:1", "EXEC", "MULTI", "PING", "DISCARD",
	`EVAL "return redis.call('get','x')" 0`, `EVAL "return redis.pcall('get','x')" 0`, `EVAL "return redis.pcall('ping')" 0`, `EVAL "return redis.call('keys','*')" 0`,
	`EVAL "return redis.call('get',KEYS[1])" 1 x`, `EVAL "return redis.call('get',KEYS[1])" 1 billing:1`, `EVAL "return 1" 1 shared:1`, `EVAL "return redis.call('publish','x','y')" 0`,
	`EVAL "return redis.call('set','shared:1','v')" 0`, `EVAL "return redis.call('publish','ch:1','y')" 0`, `EVAL "return redis.call('nonsense')" 0`,
	"AUTH carol one", "GET billing:1", "AUTH carol two", "AUTH carol three", "AUTH bob test", "AUTH nobody x", "AUTH x",
	"AUTH default anything", "ACL WHOAMI", "PING",
	"ACL USERS", "ACL GETUSER bob", "ACL GETUSER carol", "ACL GETUSER default", "ACL GETUSER nobody",
	"ACL DRYRUN alice get x", "ACL DRYRUN alice get billing:1", "ACL DRYRUN alice ping", "ACL DRYRUN alice config set a b", "ACL DRYRUN alice subscribe x", "ACL DRYRUN alice psubscribe ch:1", "ACL DRYRUN alice set shared:1 v",
	"ACL DRYRUN alice mget billing:1 x", "ACL DRYRUN alice get", "ACL DRYRUN alice nonsense", "ACL DRYRUN bob ping", "ACL DRYRUN carol auth x", "ACL DRYRUN carol hello",
	"CLIENT KILL USER nobody", "CLIENT KILL USER bob", "AUTH alice pw", "RESET", "ACL WHOAMI",
}

func TestUsersAreLimitedAsByRedis(t *testing.T) {
	users := newUsersFile(t, sharedUsers...)
	inBothProtocols(t, realRedis(t, "--aclfile", users.path), func() *site { return newUsersSite(t, users) }, func(_ *site, _ string, ours, theirs *peer) {
		expectSame(ours, theirs, sameForAlice)
		expectSame(ours, theirs, []string{"CLIENT LIST", "ACL GETUSER alice"}, func(_, got, want string) bool { return shape(got) == shape(want) })
	})
}

// An operator may change the rules while a transaction is queued.
func TestExecChecksRulesAgainAsRedis(t *testing.T) {
	before := sharedUsers[0]
	rules := []string{
		// The first rule lacks SET, the second the key, and the third EXEC.
		"user alice on >pw ~billing:* resetchannels -@all +get +multi +exec +publish",
		"user alice on >pw ~other:* &* -@all +get +set +multi +exec +publish",
		"user alice on >pw ~billing:* resetchannels -@all +get +set +multi +publish",
	}
	ourFile, theirFile := newUsersFile(t, sharedUsers...), newUsersFile(t, sharedUsers...)
	redis := realRedis(t, "--aclfile", theirFile.path)
	s := newUsersSite(t, ourFile)
	ourAdmin, theirAdmin := s.dial(), redis(t)
	for _, rule := range rules {
		ourFile.write(sharedUsers...)
		theirFile.write(sharedUsers...)
		ourAdmin.expect("ACL LOAD", ok)
		theirAdmin.expect("ACL LOAD", ok)
		ours, theirs := s.dial(), redis(t)
		for _, command := range []string{"AUTH alice pw", "MULTI", "GET billing:1", "SET billing:1 v", "PUBLISH ch:1 x", ""} {
			if command == "" {
				// When ACL LOAD changes the rules of a connection, Redis 7.0 closes it. Later
				// versions do not. So the test changes the rules in Redis by SETUSER.
				theirAdmin.expect("ACL SETUSER alice reset "+rule[len("user alice "):], ok)
				ourFile.write(before, rule)
				ourAdmin.expect("ACL LOAD", ok)
				command = "EXEC"
			}
			if want, got := theirs.do(command), ours.do(command); got != want {
				t.Errorf("with the rule %s, %s:\n  ours %q\ntheirs %q", rule, command, got, want)
			}
		}
	}
}
