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

// rules are those for mutexes, channels or contenders.
type rules struct {
	all  bool // everything is allowed, and list is empty
	list []pattern
}

type pattern struct {
	glob  string
	allow Use // 0 except for mutexes
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

	keys       rules
	channels   rules
	contenders rules // as:

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
func (u *User) MayUse(mutex string, use Use) bool { return u.allowed(&u.keys, mutex, use) }

func (u *User) allowed(r *rules, name string, use Use) bool {
	return r.all || slices.ContainsFunc(r.list, func(p pattern) bool {
		return p.allow&use == use && u.catalog.match(p.glob, name)
	})
}

// MayUseChannel reports whether a rule for channels matches this channel.
func (u *User) MayUseChannel(channel string) bool { return u.allowed(&u.channels, channel, 0) }

// MayUsePattern reports whether the user may subscribe to a glob of channels. As in Redis, a rule
// for channels must be exactly that glob.
func (u *User) MayUsePattern(glob string) bool { return u.channels.all || u.channels.index(glob) >= 0 }

// MayActAs reports whether the user may act as a contender. If the user has as: rules, one of them
// must match. Without as: rules, the default user may act as any contender. Any other user may act
// as its own name, and as ids that begin with its name and a colon.
func (u *User) MayActAs(contender string) bool {
	switch {
	case u.NamesContenders():
		return u.allowed(&u.contenders, contender, 0)
	case u.name == DefaultName:
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
func (u *User) NamesContenders() bool { return u.contenders.all || len(u.contenders.list) > 0 }

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
func (u *User) Keys() string { return u.keys.text("", "%R~", "%W~", "~") }

// Channels returns the rules for channels, "" if there are none.
func (u *User) Channels() string { return u.channels.text("&") }

// Contenders returns the rules for contender ids, "" if there are none.
func (u *User) Contenders() string { return u.contenders.text(asPrefix) }

// text returns the rules. prefixes has the prefix of a rule for each Use.
func (r *rules) text(prefixes ...string) string {
	if r.all {
		return prefixes[len(prefixes)-1] + "*"
	}
	words := make([]string, len(r.list))
	for i, p := range r.list {
		words[i] = prefixes[p.allow] + p.glob
	}
	return strings.Join(words, " ")
}

// String returns the user's line in a file of users.
func (u *User) String() string {
	words := append([]string{"user", u.name}, u.Flags()...)
	for _, hash := range u.Passwords() {
		words = append(words, "#"+hash)
	}
	reset := "resetchannels"
	if u.channels.all {
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
