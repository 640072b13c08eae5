package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"slices"
	"strings"
)

// DefaultName is the name of the user that connections have before they authenticate.
const DefaultName = "default"

// Use is how a command uses a mutex.
type Use uint8

// The uses. A command may have several. A command without a use shows only whether the mutex
// exists. Any rule for the mutex allows such a command.
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

// User holds the rules of one user. It is immutable. The zero User has no rights.
type User struct {
	catalog *Catalog
	name    string

	enabled   bool
	noPass    bool // any password is accepted
	passwords []digest

	commands    []uint64 // one bit for each command of the catalog
	allCommands bool     // +@all is a rule, and no rule -@all follows it
	commandText []string // the rules for commands after the last +@all or -@all

	allKeys     bool
	keys        []pattern
	allChannels bool
	channels    []string

	allContenders bool
	contenders    []string // the globs of the as: rules

	unlimited bool

	users map[string]*User // all users of the server, by name; immutable
}

// newUser returns a user without rights, like a new user in Redis.
func newUser(c *Catalog, name string) *User {
	return &User{catalog: c, name: name, commands: make([]uint64, (len(c.commands)+63)/64)}
}

// Name returns the user's name.
func (u *User) Name() string { return u.name }

// Enabled reports whether the user is on. A user that is off cannot authenticate.
func (u *User) Enabled() bool { return u.enabled }

// NeedsNoPassword reports whether any password is accepted (rule nopass).
func (u *User) NeedsNoPassword() bool { return u.noPass }

// Unlimited reports whether the user has all rights. Then callers need no other check.
func (u *User) Unlimited() bool { return u.unlimited }

// Verify reports whether the user is enabled and has that password. Its time depends only on the
// number of passwords.
func (u *User) Verify(password []byte) bool {
	given := digest(sha256.Sum256(password))
	right := 0
	for i := range u.passwords {
		right |= subtle.ConstantTimeCompare(given[:], u.passwords[i][:])
	}
	return u.enabled && (u.noPass || right == 1)
}

// MayRun reports whether the user may run the command of that number.
func (u *User) MayRun(id int) bool { return u.commands[id/64]&(1<<(id%64)) != 0 }

// MayUse reports whether one rule allows the whole use of a mutex. As in Redis, two rules do not
// add up if each allows only a part.
func (u *User) MayUse(mutex string, use Use) bool {
	return u.allKeys || slices.ContainsFunc(u.keys, func(p pattern) bool {
		return p.allow&use == use && u.catalog.match(p.glob, mutex)
	})
}

// MayUseChannel reports whether a rule for channels matches this channel.
func (u *User) MayUseChannel(channel string) bool {
	return u.allChannels || slices.ContainsFunc(u.channels, func(glob string) bool { return u.catalog.match(glob, channel) })
}

// MayUsePattern reports whether the user may subscribe to a glob of channels. As in Redis, a rule
// for channels must be exactly that glob.
func (u *User) MayUsePattern(glob string) bool {
	return u.allChannels || slices.Contains(u.channels, glob)
}

// MayActAs reports whether the user may act as a contender. If the user has as: rules, one of them
// must match. Without as: rules, the default user may act as any contender. Any other user may act
// as its own name, and as ids that begin with its name and a colon.
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

// MayName reports whether the user may write owner as the owner of a lock. Lock code for Redis
// writes random values, which belong to no user. If the user has as: rules, MayActAs must allow
// owner. Without as: rules, owner may also be any id that belongs to no other user.
func (u *User) MayName(owner string) bool {
	return u.MayActAs(owner) || !u.NamesContenders() && !u.belongsToUser(owner)
}

// belongsToUser reports whether an id is a user's name, or begins with a user's name and a colon.
func (u *User) belongsToUser(id string) bool {
	for i := range min(len(id), maxName) + 1 { // no name is longer than maxName
		if (i == len(id) || id[i] == ':') && u.users[id[:i]] != nil {
			return true
		}
	}
	return false
}

// NamesContenders reports whether the user has as: rules.
func (u *User) NamesContenders() bool { return u.allContenders || len(u.contenders) > 0 }

// Flags returns the flags of ACL GETUSER.
func (u *User) Flags() []string {
	flags := []string{"off"}
	if u.enabled {
		flags[0] = "on"
	}
	if u.noPass {
		flags = append(flags, "nopass")
	}
	return flags
}

// Passwords returns the SHA-256 hashes of the passwords, in hex.
func (u *User) Passwords() []string {
	hashes := make([]string, len(u.passwords))
	for i, p := range u.passwords {
		hashes[i] = hex.EncodeToString(p[:])
	}
	return hashes
}

// Commands returns the rules for commands in one text.
func (u *User) Commands() string {
	base := "-@all"
	if u.allCommands {
		base = "+@all"
	}
	return strings.Join(append([]string{base}, u.commandText...), " ")
}

// Keys returns the rules for mutexes, "" if there are none.
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

// Channels returns the rules for channels, "" if there are none.
func (u *User) Channels() string {
	if u.allChannels {
		return "&*"
	}
	return prefixed("&", u.channels)
}

// Contenders returns the rules for contender ids, "" if there are none.
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

// String returns the user's line in a file of users.
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

// equal reports whether two users have the same rules.
func (u *User) equal(v *User) bool { return u.String() == v.String() }
