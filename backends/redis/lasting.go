package redis

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// This file decides which of Redis' errors are lasting: they come back until an operator acts. An
// error that is not listed counts as transient, since giving up too soon is worse than waiting too
// long.

var (
	// lastingCodes are codes of lasting errors.
	lastingCodes = []string{"WRONGTYPE", "NOPERM", "NOAUTH", "WRONGPASS", "DENIED"}

	// lastingTexts are the beginnings of lasting errors with the code ERR.
	lastingTexts = []string{
		"unknown command", "Unknown Redis command", "unknown subcommand",
		"AUTH ", "Client sent AUTH", "invalid password",
		"DB index is out of range", "invalid DB index", "SELECT is not allowed in cluster mode",
		"This instance has cluster support disabled",
	}

	// transientCodes are the codes of transient errors inside a script. Other errors inside a
	// script are lasting: our scripts fail only if a key or the user's rights are wrong.
	transientCodes = []string{
		"OOM", "READONLY", "LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MOVED", "ASK", "CROSSSLOT",
		"MISCONF", // Redis cannot write to its disk
	}

	// transientTexts are parts of transient errors inside a script that have no code of their own.
	transientTexts = []string{"Script killed", "non local key"}

	// deniedTexts are parts of Redis' error for a missing right inside a script. Redis up to 7.0
	// names neither the command nor the key.
	deniedTexts = []string{"NOPERM ", "The user executing the script can't "}

	// scriptPrefix and scriptSuffix match the part of an error that says where in a script it
	// occurred. Redis before 7 adds the prefix, Redis from 7 the suffix. An error that Lua raised
	// has the prefix too.
	scriptPrefix = regexp.MustCompile(`user_script: ?\d+: `)
	scriptSuffix = regexp.MustCompile(` script: [0-9a-f]{40}, on @user_script:\d+\.$`)
)

// lastingCause returns the cause of err in words for an operator if it is lasting, else nil. A
// lasting cause is an error of Redis, or errReply.
func lastingCause(err error) error {
	if errors.Is(err, errReply) {
		return err
	}
	if errors.Is(err, errMaxClients) {
		return errMaxClients
	}
	var redisErr redis.Error
	if !errors.As(err, &redisErr) {
		return nil
	}
	text, inScript := cutScriptPosition(redisErr.Error())
	code, rest, _ := strings.Cut(text, " ")
	begins := func(prefix string) bool { return strings.HasPrefix(rest, prefix) }
	contained := func(part string) bool { return strings.Contains(text, part) }
	switch {
	case slices.Contains(transientCodes, code), slices.ContainsFunc(transientTexts, contained):
		return nil
	case inScript && slices.ContainsFunc(deniedTexts, contained):
		return fmt.Errorf("%s: the user needs %s", strings.TrimPrefix(text, "ERR "), neededRights)
	case inScript, slices.Contains(lastingCodes, code), code == "ERR" && slices.ContainsFunc(lastingTexts, begins):
		return errors.New(strings.TrimPrefix(text, "ERR "))
	}
	return nil
}

// cutScriptPosition removes the position in a script from an error's text. inScript reports whether
// the text had such a position.
func cutScriptPosition(text string) (_ string, inScript bool) {
	if at := scriptSuffix.FindStringIndex(text); at != nil {
		text, inScript = text[:at[0]], true
	}
	if all := scriptPrefix.FindAllStringIndex(text, -1); all != nil {
		text, inScript = strings.TrimPrefix(text[all[len(all)-1][1]:], "-"), true
	}
	return text, inScript
}
