package commands

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/access"
)

// This file decides whether a user may run a command. It compares the user's rules with the
// command's keys, channels and contenders.

var (
	contenderActor = actor{ids: func(args [][]byte) [][]byte { return args[2:3] }}
	oldMembers     = actor{ids: func(args [][]byte) [][]byte { return args[2:] }}
	oneValue       = actor{values: true, ids: func(args [][]byte) [][]byte { return args[2:3] }}
	secondValue    = actor{values: true, ids: func(args [][]byte) [][]byte { return args[3:4] }}
	fieldValues    = actor{values: true, ids: func(args [][]byte) [][]byte { return everySecond(args[2:]) }}
	pairValues     = fieldValues // of MSET, where each value follows its key
	// A message on the channel of a mutex may be a notice, which names the contender that took or
	// released the mutex. A contender of Simba on the JVM becomes the owner when a notice names it.
	// So a user must not forge notices of other contenders.
	noticeOwner = actor{values: true, ids: func(args [][]byte) [][]byte { return namedByNotice(args[1], args[2]) }}
)

// namedByNotice returns the contenders that a message names if it is a notice of a mutex. Readers
// may split a notice at any @@ in it. So namedByNotice returns all parts.
func namedByNotice(channel, message []byte) [][]byte {
	owner, acquired := bytes.CutPrefix(message, []byte(simba.AcquiredNotice("")))
	owner, released := bytes.CutPrefix(owner, []byte(simba.ReleasedNotice("")))
	if !acquired && !released {
		return nil
	}
	if _, ok := noticesOf(string(channel)); !ok {
		return nil
	}
	return bytes.Split(owner, []byte("@@"))
}

func noticesOf(channel string) (mutex string, ok bool) {
	if mutex, ok = simba.CutMutexChannel(channel); !ok {
		mutex, _, ok = simba.CutContenderChannel(channel)
	}
	return mutex, ok
}

func everySecond(args [][]byte) (ids [][]byte) {
	for i := 0; i < len(args); i += 2 {
		ids = append(ids, args[i])
	}
	return ids
}

// denial is the error of a command that the user may not run.
type denial struct {
	reason denialReason
	object string // the command, key, channel or contender
	inExec bool   // EXEC runs the command; the user was allowed to run it when the client queued it
}

func (d *denial) Error() string { return d.replyText() }

func (d *denial) replyText() string {
	words := &denialWords[d.reason]
	switch {
	case d.inExec:
		return execDenial + words.exec
	case d.reason == deniedCommand:
		return fmt.Sprintf(words.direct, d.object)
	}
	return words.direct
}

type denialReason uint8

const (
	deniedCommand denialReason = iota
	deniedKey
	deniedChannel
	deniedContender
	deniedAuth // the password was wrong
	denialReasons
)

// denialWords has the texts of each denial. name is for statistics and the audit log, and dryrun for
// ACL DRYRUN. exec is for a command in EXEC, script for a command in a script, and direct for any
// other command. Redis has all texts except those for contenders.
var denialWords = [denialReasons]struct{ name, direct, exec, script, dryrun string }{
	deniedCommand: {
		"command",
		"NOPERM this user has no permissions to run the '%s' command",
		"no permission to execute the command or subcommand",
		"ERR The user executing the script can't run this command or subcommand",
		"This user has no permissions to run the '%s' command",
	},
	deniedKey: {
		"key",
		"NOPERM this user has no permissions to access one of the keys used as arguments",
		"no permission to touch the specified keys",
		"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments",
		"This user has no permissions to access the '%s' key",
	},
	deniedChannel: {
		"channel",
		"NOPERM this user has no permissions to access one of the channels used as arguments",
		"no permission to access one of the channels used as arguments",
		"ERR The user executing the script can't publish to the channel mentioned in the command",
		"This user has no permissions to access the '%s' channel",
	},
	deniedContender: {
		"contender",
		"NOPERM this user has no permissions to act as one of the contenders used as arguments",
		"no permission to act as one of the contenders used as arguments",
		"ERR The user executing the script can't act as one of the contenders mentioned in the command arguments",
		"This user has no permissions to act as the '%s' contender",
	},
	deniedAuth: {name: "auth"},
}

const execDenial = "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. " +
	"This command is no longer allowed for the following reason: "

// deny returns why u may not run the command, or nil. The caller has checked the arity.
func (e *entry) deny(u *access.User, args [][]byte) *denial {
	if u.Unlimited() {
		return nil
	}
	if !e.has(noAuth) && !u.MayRun(e.id) {
		return &denial{reason: deniedCommand, object: e.full}
	}
	if key := e.deniedKey(u, args); key != nil {
		return &denial{reason: deniedKey, object: string(shorten(key))}
	}
	if channel := e.deniedChannel(u, args); channel != nil {
		return &denial{reason: deniedChannel, object: string(shorten(channel))}
	}
	if id := e.deniedContender(u, args); id != nil {
		return &denial{reason: deniedContender, object: string(shorten(id))}
	}
	return nil
}

func (e *entry) deniedKey(u *access.User, args [][]byte) []byte {
	if e.keys.first == 0 && e.keyCount == 0 || e.keys.channels {
		return nil
	}
	use := e.keys.use
	switch { // with options, SET and DELEX read the key too
	case e.full == "set" && !slices.ContainsFunc(args[3:], func(a []byte) bool { return equalFold(a, "GET") || equalFold(a, "IFEQ") }):
		use = access.Write
	case e.full == "delex" && len(args) > 2:
		use |= access.Read
	}
	return firstNot(e.keysOf(args), func(key []byte) bool { return u.MayUse(parseKey(key).Mutex, use) })
}

func (e *entry) deniedChannel(u *access.User, args [][]byte) []byte {
	switch e.channels {
	case publishes:
		return firstNot(args[1:2], func(ch []byte) bool { return mayPublish(u, string(ch)) })
	case listens:
		return firstNot(args[1:], func(ch []byte) bool { return mayListen(u, string(ch)) })
	case listensByGlob:
		return firstNot(args[1:], func(glob []byte) bool { return u.MayUsePattern(string(glob)) })
	}
	return nil
}

func (e *entry) deniedContender(u *access.User, args [][]byte) []byte {
	if e.actor.ids == nil || e.actor.values && e.keys.first > 0 && e.keys.last == e.keys.first && parseKey(args[e.keys.first]).Part != simba.KeyLock {
		return nil
	}
	return firstNot(e.actor.ids(args), func(id []byte) bool {
		if e.actor.values {
			return u.MayName(string(id))
		}
		return u.MayActAs(string(id))
	})
}

// firstNot returns a copy of the first argument that is not allowed, nil if all are allowed. The
// copy of an empty argument is not nil.
func firstNot(args [][]byte, allowed func([]byte) bool) []byte {
	for _, a := range args {
		if !allowed(a) {
			return append([]byte{}, a...)
		}
	}
	return nil
}

// mayListen reports whether a user may subscribe to a channel. A rule for channels may allow any
// channel. A rule for keys allows the channels of the mutexes that the user may read. The server
// treats a subscriber of the channel simba:{m}:c as the contender c. So the user must also be
// allowed to act as c. A channel's name is ambiguous if m contains }:. Names of the old form
// simba:m:c are always ambiguous. Only a rule for channels allows ambiguous names.
func mayListen(u *access.User, channel string) bool {
	if u.MayUseChannel(channel) {
		return true
	}
	if m, ok := simba.CutMutexChannel(channel); ok {
		return u.MayUse(m, access.Read)
	}
	if m, ok := simba.CutEventChannel(channel); ok {
		return u.MayUse(m, access.Read)
	}
	m, contender, ok := simba.CutContenderChannel(channel)
	return ok && !strings.Contains(m, "}:") && u.MayUse(m, access.Read) && u.MayActAs(contender)
}

// mayPublish reports whether a user may publish to a channel. A rule for channels may allow any
// channel. If a rule for keys lets the user write a mutex, the user may publish on the mutex's
// channels for notices. Such a rule does not allow event channels.
func mayPublish(u *access.User, channel string) bool {
	if u.MayUseChannel(channel) {
		return true
	}
	m, ok := noticesOf(channel)
	return ok && u.MayUse(m, access.Write)
}
