package commands

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/access"
	"github.com/simba-resp/simba-resp/resp"
)

// This file decides what a user may do, by the user's rules and by the keys, channels and
// contenders of a command.

// Catalog returns all commands for the rules of users.
func Catalog() *access.Catalog {
	var list []access.Command
	for e := range newTable().all() {
		list = append(list, access.Command{Name: e.full, Categories: slices.Collect(members(e.acl(), categoryNames[:]))})
	}
	return access.NewCatalog(list, categoryNames[:], resp.Match)
}

// channelUse is how a command uses the channels among its arguments.
type channelUse uint8

// The uses. Channels begin at the first argument.
const (
	noChannels    channelUse = iota
	publishes                // to one
	listens                  // to all arguments
	listensByGlob            // to globs of channels
)

// actor says which arguments of a command are the ids of the contenders that it acts for.
type actor struct {
	ids func(args [][]byte) [][]byte // nil = none
	// values says that the ids are values, such as those of lock keys. Lock code for Redis often
	// chooses them at random. So a rule of the user need not allow them, but they must not belong
	// to another user (access.User.MayName).
	values bool
}

var (
	contenderActor = actor{ids: func(args [][]byte) [][]byte { return args[2:3] }}
	oldMembers     = actor{ids: func(args [][]byte) [][]byte { return args[2:] }}
	newMembers     = actor{ids: func(args [][]byte) [][]byte {
		if a, err := parseQueueAdd(args); err == nil {
			return everySecond(args[len(args)-2*len(a.members)+1:])
		}
		return nil // the command will fail
	}}
	oneValue    = actor{values: true, ids: func(args [][]byte) [][]byte { return args[2:3] }}
	secondValue = actor{values: true, ids: func(args [][]byte) [][]byte { return args[3:4] }}
	fieldValues = actor{values: true, ids: func(args [][]byte) [][]byte { return everySecond(args[2:]) }}
	// A notice names the contender that took or released the mutex. Contenders that use scripts
	// publish notices about themselves. A forged notice may do harm: contenders of Simba on the
	// JVM become owners when a notice names them.
	noticeOwner = actor{values: true, ids: func(args [][]byte) [][]byte { return namedByNotice(args[1], args[2]) }}
)

// namedByNotice returns the contenders that a message names if it is a notice of a mutex. A reader
// may split a message with several @@ at any of them, so namedByNotice returns all parts.
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

// noticesOf returns the mutex whose notices a channel carries.
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

// notKey marks arguments that are routed like keys but are no keys.
const notKey = "not_key"

// use returns how the keys are used, by their flags of Redis.
func (k *keys) use() (u access.Use) {
	for _, f := range k.flags {
		switch f {
		case "access":
			u |= access.Read
		case "insert", "update", "delete":
			u |= access.Write
		}
	}
	return u
}

// denial is the error of a command that the user may not run.
type denial struct {
	reason denialReason
	object string // the command, key, channel or contender
	words  string // text of the reply
}

func (d *denial) Error() string { return d.words }

// direct sets the words for a command outside EXEC and scripts.
func (d *denial) direct() *denial {
	d.words = denialWords[d.reason].direct
	if d.reason == deniedCommand {
		d.words = fmt.Sprintf(d.words, d.object)
	}
	return d
}

// inExec sets the words for a command that was allowed when it was queued.
func (d *denial) inExec() *denial {
	d.words = execDenial + denialWords[d.reason].exec
	return d
}

// denialReason is the permission that a user lacks.
type denialReason uint8

const (
	deniedCommand denialReason = iota
	deniedKey
	deniedChannel
	deniedContender
	deniedAuth // the password was wrong
	denialReasons
)

// denialWords has the texts of a denial for each use. They are those of Redis, except for
// contenders.
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

// deny returns why u may not run the command in args, or nil. The arity has been checked.
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
	if e.keys.first == 0 && e.keyCount == 0 || slices.Contains(e.keys.flags, notKey) {
		return nil
	}
	use := e.keyUse
	if e.full == "set" && !slices.ContainsFunc(args[3:], func(a []byte) bool { return equalFold(a, "GET") }) {
		use = access.Write // SET reads only with GET
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
	if e.actor.ids == nil || e.actor.values && e.keys.first > 0 && parseKey(args[e.keys.first]).Part != simba.KeyLock {
		return nil
	}
	return firstNot(e.actor.ids(args), func(id []byte) bool {
		if e.actor.values {
			return u.MayName(string(id))
		}
		return u.MayActAs(string(id))
	})
}

// firstNot returns the first argument that is not allowed, nil if all are. An empty argument that
// is not allowed is not nil.
func firstNot(args [][]byte, allowed func([]byte) bool) []byte {
	for _, a := range args {
		if !allowed(a) {
			return append([]byte{}, a...)
		}
	}
	return nil
}

// mayListen reports whether a user may subscribe to a channel. A rule for channels may allow it. So
// may a rule for keys, if the channel belongs to a mutex that the user may read. For the channel of
// a contender the user must also be allowed to act as it, because the server takes its subscriber
// for the contender. In simba:m:<id> the end of m is ambiguous. If the channel may
// belong to another contender too, only a rule for channels allows it.
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

// mayPublish reports whether a user may publish to a channel. A rule for channels may allow it. So
// may a rule for keys, if the channel has notices of a mutex that the user may write. Only the
// server publishes on an event channel, so only a rule for channels allows that.
func mayPublish(u *access.User, channel string) bool {
	if u.MayUseChannel(channel) {
		return true
	}
	m, ok := noticesOf(channel)
	return ok && u.MayUse(m, access.Write)
}
