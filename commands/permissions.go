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

// Catalog returns all commands as the rules of users name them.
func Catalog() *access.Catalog {
	var list []access.Command
	for e := range newTable().all() {
		list = append(list, access.Command{Name: e.full, Categories: slices.Collect(members(e.acl(), categoryNames[:]))})
	}
	return access.NewCatalog(list, categoryNames[:], resp.Match)
}

// channelUse is what a command does with the channels among its arguments.
type channelUse uint8

// The uses. Channels begin at the first argument.
const (
	noChannels    channelUse = iota
	publishes                // to one
	listens                  // to all arguments
	listensByGlob            // to globs of channels
)

// actor says in whose name a command acts: which of its arguments are contender ids.
type actor struct {
	ids func(args [][]byte) [][]byte // nil = none
	// values says that they are what lock code for Redis makes up at random, such as the values of
	// lock keys: they need not be names of the user's, but must not be another's
	// (access.User.MayName).
	values bool
}

var (
	contenderActor = actor{ids: func(args [][]byte) [][]byte { return args[2:3] }}
	oldMembers     = actor{ids: func(args [][]byte) [][]byte { return args[2:] }}
	newMembers     = actor{ids: func(args [][]byte) [][]byte {
		if a, err := parseQueueAdd(args); err == nil {
			return everySecond(args[len(args)-2*len(a.members)+1:])
		}
		return nil // it will fail
	}}
	oneValue    = actor{values: true, ids: func(args [][]byte) [][]byte { return args[2:3] }}
	secondValue = actor{values: true, ids: func(args [][]byte) [][]byte { return args[3:4] }}
	fieldValues = actor{values: true, ids: func(args [][]byte) [][]byte { return everySecond(args[2:]) }}
	// A notice names the contender that took the mutex or gave it up. Contenders with scripts of
	// their own publish those of themselves; of what another one is told to have done some believe
	// it: Simba's on the JVM are owners once they hear that they are.
	noticeOwner = actor{values: true, ids: func(args [][]byte) [][]byte { return namedByNotice(args[1], args[2]) }}
)

// namedByNotice are the contenders that a message names if it is a notice of a mutex. One that has
// several parts names each: who knows at which @@ its readers cut it.
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

// notKey marks arguments that are routed like keys but are none.
const notKey = "not_key"

// use is how the keys are used, by the flags of Redis that say it.
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

// denial is why a user may not run a command. It is the error of a command that is refused.
type denial struct {
	reason denialReason
	object string // the command, key, channel or contender
	words  string // of the reply
}

func (d *denial) Error() string { return d.words }

// direct gives the denial the words for who ran the command.
func (d *denial) direct() *denial {
	d.words = denialWords[d.reason].direct
	if d.reason == deniedCommand {
		d.words = fmt.Sprintf(d.words, d.object)
	}
	return d
}

// inExec gives the denial the words for a command that might have run when it was queued.
func (d *denial) inExec() *denial {
	d.words = execDenial + denialWords[d.reason].exec
	return d
}

// denialReason is what a user lacks the right for.
type denialReason uint8

const (
	deniedCommand denialReason = iota
	deniedKey
	deniedChannel
	deniedContender
	deniedAuth // the password was wrong
	denialReasons
)

// denialWords are what is told of a denial: by ACL LOG, to who runs a command, in EXEC if the rules
// have changed since it was queued, to a script, and by ACL DRYRUN. They are Redis' own, but for
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

// deny returns why u may not run the command in args, nil if it may. The arity has been checked.
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
		use = access.Write // only with GET does it read
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
	if e.actor.ids == nil || e.actor.values && e.keys.first > 0 && parseKey(args[e.keys.first]).Part != simba.KeyLock { // a token is nobody's name
		return nil
	}
	return firstNot(e.actor.ids(args), func(id []byte) bool {
		if e.actor.values {
			return u.MayName(string(id))
		}
		return u.MayActAs(string(id))
	})
}

// firstNot returns the first argument that is not allowed, nil if all are; never nil for one that
// is not.
func firstNot(args [][]byte, allowed func([]byte) bool) []byte {
	for _, a := range args {
		if !allowed(a) {
			return append([]byte{}, a...)
		}
	}
	return nil
}

// mayListen reports whether a user may subscribe to a channel: by a rule for channels, or since it
// is one of a mutex that the user may read. The channel of a contender is for who may act in its
// name: its subscriber is the one whom the server takes for reached. So it needs a rule for
// channels if it may be that of another contender too: of simba:m:<id> nobody knows where m ends.
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

// mayPublish reports whether a user may publish to a channel: by a rule for channels, or since it
// is one on which contenders tell each other of a mutex that the user may write. What the server
// itself says of a mutex, its events, nobody may say by a rule for the mutex.
func mayPublish(u *access.User, channel string) bool {
	if u.MayUseChannel(channel) {
		return true
	}
	m, ok := noticesOf(channel)
	return ok && u.MayUse(m, access.Write)
}
