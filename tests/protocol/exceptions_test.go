package protocol

import (
	"regexp"
	"strings"
	"testing"
)

// exception is a reason why tests of the suite do not run, with these tests.
type exception struct {
	why   string
	tests []string // names; after "/" a regular expression
}

var exceptions = []exception{
	{"a command has 1,024 arguments at most, and an argument 64 KiB (docs/reference/limits.md)", []string{
		"test large number of args",
		"Very big payload in GET/SET",
		"trim on SET with big value",
	}},
	{"a lock server has no lists, sets and streams", []string{
		"/^raw protocol response", // SRANDMEMBER
		"Regression for a crash with blocking ops and pipelining",
		"MULTI / EXEC basics",
		"DISCARD",
		"MULTI where commands alter argc/argv",
		"EXEC fail on WATCHed key modified by SORT with STORE even if the result is empty",
		"Blocking commands ignores the timeout",
		"MGET against non-string key",
		"Extended SET GET with incorrect type should result in wrong type error",
		"/^INCR(BYFLOAT)? fails against a key holding a list$",
		"EXPIRE - write on expire should work",
	}},
	{"a lock server does not have this command", []string{
		"test argument rewriting - issue 9598", // INCRBYFLOAT
		"/^INCRBYFLOAT (against|over|fails against key with spaces|does not allow|decrement)",
		"string to double with null terminator", // SETRANGE
		"No negative zero",                      // INCRBYFLOAT
		"/^(MSET|MSETNX|GETEX|GETDEL|SETBIT|GETBIT|SETRANGE|GETRANGE|LCS)[ /]",
		"Flushall while watching several keys by one client", // MSET
		"MULTI with SAVE",
		"PubSub messages with CLIENT REPLY OFF",
	}},
	{"EXPIRE has no options", []string{
		"/^EXPIRE with ((NX|XX|GT|LT|LT and XX) option|(conflicting|unsupported) options|negative expiry|non-existed key)",
	}},
	{"the server publishes no keyspace notifications", []string{
		"/^Keyspace notifications: ",
	}},
	{"a long script does not block other clients (docs/guides/redis-locks.md)", []string{
		"/script timeout$",
	}},
	{"the test relies on the order of commands on two connections, which run in parallel here", []string{
		"/after P?UNSUBSCRIBE without arguments$",
	}},
	{"a lease ends within 100 years", []string{"PEXPIREAT with big integer works"}},
}

func exceptionPatterns() []string {
	var all []string
	for _, e := range exceptions {
		all = append(all, e.tests...)
	}
	return all
}

// excepted returns the reason why a test of the suite does not run, or "" if it runs.
func excepted(name string) string {
	for _, e := range exceptions {
		for _, pattern := range e.tests {
			if matches(pattern, name) {
				return e.why
			}
		}
	}
	return ""
}

// matches reports whether a pattern selects a test, by the rules of the suite.
func matches(pattern, name string) bool {
	if expression, ok := strings.CutPrefix(pattern, "/"); ok {
		return regexp.MustCompile(expression).MatchString(name)
	}
	return pattern == name
}

// checkExceptions fails the test for each exception without a test of the suite, for example after
// a rename.
func checkExceptions(t *testing.T, all *verdicts) {
	t.Helper()
	for _, pattern := range exceptionPatterns() {
		found := false
		for _, name := range all.passed {
			found = found || matches(pattern, name)
		}
		if !found {
			t.Errorf("the exception %q matches no test of the suite", pattern)
		}
	}
}
