package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"slices"
	"strings"
)

// DefaultName is the user of connections that have not said who they are.
const DefaultName = "default"

// Use is how a command uses a mutex.
type Use uint8

// The uses; a command may have several. None at all is a look that shows only
// whether there is something: any rule for the mutex allows it.
const (
	Read Use = 1 << iota
	Write
)

type digest [sha256.Size]byte

// pattern is a rule for mutexes.
type pattern struct {
	glob  string
	allow Use
}

// User is what one user may do. It does not change; any goroutine may use it. The
// zero User may do nothing.
type User struct {
	catalog *Catalog
	name    string

	enabled   bool
	anyPass   bool // nopass
	passwords []digest

	commands    []uint64 // one bit a command of the catalog
	allCommands bool     // +@all came last: a rule for what the catalog will have one day
	commandText []string // the rules that led there, after +@all or -@all

	allKeys     bool
	keys        []pattern
	allChannels bool
	channels    []string

	allContenders bool
	contenders    []string // of as:, without it

	unlimited bool

	everyone map[string]*User // all users of the server, by name; it does not change either
}

// newUser returns a user that may do nothing, as Redis makes it.
func newUser(c *Catalog, name string) *User {
	return &User{catalog: c, name: name, commands: make([]uint64, (len(c.commands)+63)/64)}
}

// Name is the user's name.
func (u *User) Name() string { return u.name }

// Enabled reports whether the user is on: one that is off cannot authenticate.
func (u *User) Enabled() bool { return u.enabled }

// NeedsNoPassword reports whether any password will do (nopass).
func (u *User) NeedsNoPassword() bool { return u.anyPass }

// Unlimited reports whether the user may do everything, so that nothing else has to
// be asked.
func (u *User) Unlimited() bool { return u.unlimited }

// Verify reports whether the user is on and that is one of its passwords. The time
// that it takes tells nothing of them but how many there are.
func (u *User) Verify(password []byte) bool {
	given := digest(sha256.Sum256(password))
	right := 0
	for i := range u.passwords {
		right |= subtle.ConstantTimeCompare(given[:], u.passwords[i][:])
	}
	return u.enabled && (u.anyPass || right == 1)
}

// MayRun reports whether the user may run the command of that number.
func (u *User) MayRun(id int) bool { return u.commands[id/64]&(1<<(id%64)) != 0 }

// MayUse reports whether one rule allows all of that use of a mutex. Two that allow
// a part each are not enough, as in Redis.
func (u *User) MayUse(mutex string, use Use) bool {
	return u.allKeys || slices.ContainsFunc(u.keys, func(p pattern) bool {
		return p.allow&use == use && u.catalog.match(p.glob, mutex)
	})
}

// MayUseChannel reports whether a rule for channels names this one.
func (u *User) MayUseChannel(channel string) bool {
	return u.allChannels || slices.ContainsFunc(u.channels, func(glob string) bool { return u.catalog.match(glob, channel) })
}

// MayUsePattern reports whether the user may listen to a glob of channels: a rule
// must be that very glob, as in Redis.
func (u *User) MayUsePattern(glob string) bool {
	return u.allChannels || slices.Contains(u.channels, glob)
}

// MayActAs reports whether the user may act in the name of a contender. Without a
// rule as: the default user may in any, another one in those that are its own name
// or begin with it and a colon.
func (u *User) MayActAs(contender string) bool {
	if u.allContenders {
		return true
	}
	if len(u.contenders) > 0 {
		return slices.ContainsFunc(u.contenders, func(glob string) bool { return u.catalog.match(glob, contender) })
	}
	if u.name == DefaultName {
		return true
	}
	rest, own := strings.CutPrefix(contender, u.name)
	return own && (rest == "" || rest[0] == ':')
}

// MayName reports whether the user may write that as the owner of a lock. Lock code for
// Redis puts random values there, which are in nobody's name: with a rule as: it may be
// only what MayActAs allows, without one also what is not another user's, that is its
// name, or begins with that and a colon.
func (u *User) MayName(owner string) bool {
	return u.MayActAs(owner) || !u.NamesContenders() && !u.belongs(owner)
}

// belongs reports whether an id is some user's by its beginning.
func (u *User) belongs(id string) bool {
	for i := range min(len(id), maxName) + 1 { // no name is longer
		if (i == len(id) || id[i] == ':') && u.everyone[id[:i]] != nil {
			return true
		}
	}
	return false
}

// NamesContenders reports whether the user has a rule as:.
func (u *User) NamesContenders() bool { return u.allContenders || len(u.contenders) > 0 }

// Flags are the words of ACL GETUSER for what the user is.
func (u *User) Flags() []string {
	flags := []string{"off"}
	if u.enabled {
		flags[0] = "on"
	}
	if u.anyPass {
		flags = append(flags, "nopass")
	}
	return flags
}

// Passwords are the SHA-256 hashes of the passwords, in hex.
func (u *User) Passwords() []string {
	hashes := make([]string, len(u.passwords))
	for i, p := range u.passwords {
		hashes[i] = hex.EncodeToString(p[:])
	}
	return hashes
}

// Commands are the rules for commands.
func (u *User) Commands() string {
	base := "-@all"
	if u.allCommands {
		base = "+@all"
	}
	return strings.Join(append([]string{base}, u.commandText...), " ")
}

// Keys are the rules for mutexes, "" = none.
func (u *User) Keys() string {
	if u.allKeys {
		return "~*"
	}
	rules := make([]string, len(u.keys))
	for i, p := range u.keys {
		rules[i] = [...]string{Read: "%R~", Write: "%W~", Read | Write: "~"}[p.allow] + p.glob
	}
	return strings.Join(rules, " ")
}

// Channels are the rules for channels, "" = none.
func (u *User) Channels() string {
	if u.allChannels {
		return "&*"
	}
	return prefixed("&", u.channels)
}

// Contenders are the rules for contender ids, "" = none.
func (u *User) Contenders() string {
	if u.allContenders {
		return asPrefix + "*"
	}
	return prefixed(asPrefix, u.contenders)
}

func prefixed(prefix string, globs []string) string {
	rules := make([]string, len(globs))
	for i, g := range globs {
		rules[i] = prefix + g
	}
	return strings.Join(rules, " ")
}

// String is the user's line in a file of users.
func (u *User) String() string {
	words := append([]string{"user", u.name}, u.Flags()...)
	for _, hash := range u.Passwords() {
		words = append(words, "#"+hash)
	}
	reset := "resetchannels"
	if u.allChannels {
		reset = ""
	}
	for _, rules := range []string{u.Keys(), reset, u.Channels(), u.Contenders(), u.Commands()} {
		if rules != "" {
			words = append(words, rules)
		}
	}
	return strings.Join(words, " ")
}

// equal reports whether two users may do the same by the same rules.
func (u *User) equal(v *User) bool { return u.String() == v.String() }
