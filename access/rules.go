package access

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
)

// The errors of rules. Where Redis has the same error, the text is that of Redis.
var (
	errRule             = errors.New("Syntax error")
	errUnknownCommand   = errors.New("Unknown command or category name in ACL")
	errHash             = errors.New("The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters")
	errNoSuchPassword   = errors.New("The password you are trying to remove from the user does not exist")
	errKeysCovered      = errors.New("Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns")
	errChannelsCovered  = errors.New("Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels")
	errContenderCovered = errors.New("Adding a pattern after as:* (or the 'allcontenders' flag) is not valid and does not have any effect. Try 'resetcontenders' to start with an empty list of contenders")
	errSelector         = errors.New("selectors are not supported: add a second user")
	errFirstArgument    = errors.New("rules for a first argument are not supported: allow or deny the whole command")
	errLongGlob         = errors.New("the pattern is too long, at most 1024 bytes are allowed")
)

// asPrefix begins a rule for contender ids.
const asPrefix = "as:"

// maxGlob is the maximum length of a pattern in bytes. It bounds the time of a match.
const maxGlob = 1024

// apply applies a rule to a user that is not in use yet.
func (u *User) apply(rule string) error {
	if rule == "" {
		return nil
	}
	if done := u.applyWord(strings.ToLower(rule)); done {
		return nil
	}
	switch rule[0] {
	case '>':
		u.addPassword(sha256.Sum256([]byte(rule[1:])))
		return nil
	case '<':
		return u.removePassword(sha256.Sum256([]byte(rule[1:])))
	case '#', '!':
		return u.applyHash(rule)
	case '~':
		return u.keys.add(rule[1:], Read|Write, errKeysCovered)
	case '%':
		return u.applyPermission(rule)
	case '&':
		return u.channels.add(rule[1:], 0, errChannelsCovered)
	case '+', '-':
		return u.applyCommand(strings.ToLower(rule))
	case '(':
		return errSelector
	}
	if n := len(asPrefix); len(rule) >= n && strings.EqualFold(rule[:n], asPrefix) {
		return u.contenders.add(rule[n:], 0, errContenderCovered)
	}
	return errRule
}

// applyWord applies a rule that is a keyword. It reports whether the rule is a keyword.
func (u *User) applyWord(word string) bool {
	switch word {
	case "on":
		u.enabled = true
	case "off":
		u.enabled = false
	case "nopass":
		u.passwords, u.noPass = nil, true
	case "resetpass":
		u.passwords, u.noPass = nil, false
	case "allkeys", "~*":
		u.keys = rules{all: true}
	case "resetkeys":
		u.keys = rules{}
	case "allchannels", "&*":
		u.channels = rules{all: true}
	case "resetchannels":
		u.channels = rules{}
	case "allcontenders", asPrefix + "*":
		u.contenders = rules{all: true}
	case "resetcontenders":
		u.contenders = rules{}
	case "allcommands", "+@all":
		u.allowAll(true)
	case "nocommands", "-@all":
		u.allowAll(false)
	case "reset":
		*u = *newUser(u.catalog, u.name)
	case "sanitize-payload", "skip-sanitize-payload", "clearselectors":
		// Redis writes these rules into its files. They have no meaning here.
	default:
		return false
	}
	return true
}

func (u *User) addPassword(p digest) {
	u.noPass = false
	if !slices.Contains(u.passwords, p) {
		u.passwords = append(u.passwords, p)
	}
}

func (u *User) removePassword(p digest) error {
	i := slices.Index(u.passwords, p)
	if i < 0 {
		return errNoSuchPassword
	}
	u.passwords = slices.Delete(u.passwords, i, i+1)
	return nil
}

// applyHash adds (#) or removes (!) a password by its hash.
func (u *User) applyHash(rule string) error {
	var p digest
	if len(rule) != 1+2*len(p) || strings.ToLower(rule) != rule {
		return errHash
	}
	if _, err := hex.Decode(p[:], []byte(rule[1:])); err != nil {
		return errHash
	}
	if rule[0] == '!' {
		return u.removePassword(p)
	}
	u.addPassword(p)
	return nil
}

// applyPermission applies a rule %R~, %W~ or %RW~.
func (u *User) applyPermission(rule string) error {
	letters, glob, ok := strings.Cut(rule[1:], "~")
	var allow Use
	for _, letter := range strings.ToUpper(letters) {
		switch {
		case letter == 'R' && allow&Read == 0:
			allow |= Read
		case letter == 'W' && allow&Write == 0:
			allow |= Write
		default:
			return errRule
		}
	}
	if !ok || allow == 0 {
		return errRule
	}
	if glob == "*" && allow == Read|Write {
		u.keys = rules{all: true}
		return nil
	}
	return u.keys.add(glob, allow, errKeysCovered)
}

// add adds a pattern. If everything is allowed already, it returns the error covered.
func (r *rules) add(glob string, allow Use, covered error) error {
	switch i := r.index(glob); {
	case r.all:
		return covered
	case len(glob) > maxGlob:
		return errLongGlob
	case i >= 0:
		r.list[i].allow |= allow
	default:
		r.list = append(r.list, pattern{glob, allow})
	}
	return nil
}

func (r *rules) index(glob string) int {
	return slices.IndexFunc(r.list, func(p pattern) bool { return p.glob == glob })
}

// allowAll allows or denies all commands, including those of later versions.
func (u *User) allowAll(yes bool) {
	u.allCommands, u.commandText = yes, nil
	for id := range u.catalog.commands {
		u.allow(id, yes)
	}
}

func (u *User) allow(id int, yes bool) {
	if yes {
		u.commands[id/64] |= 1 << (id % 64)
	} else {
		u.commands[id/64] &^= 1 << (id % 64)
	}
}

// applyCommand applies a rule for a command or a category, in lower case.
func (u *User) applyCommand(rule string) error {
	what := rule[1:]
	ids, known := u.catalog.named(what)
	if !known {
		name, argument, nested := strings.Cut(what, "|")
		id, ok := u.catalog.byName[name]
		switch {
		case nested && (argument == "" || name == ""):
			return errRule
		case nested && ok && (u.catalog.subs[id] == nil || strings.Contains(argument, "|")):
			return errFirstArgument
		}
		return errUnknownCommand
	}
	for _, id := range ids {
		u.allow(id, rule[0] == '+')
	}
	// This rule replaces earlier rules for the same command and its subcommands.
	u.commandText = slices.DeleteFunc(u.commandText, func(earlier string) bool {
		rest, same := strings.CutPrefix(earlier[1:], what)
		return same && (rest == "" || rest[0] == '|')
	})
	u.commandText = append(u.commandText, rule)
	return nil
}

// finish completes a user after its last rule.
func (u *User) finish() *User {
	every := true
	for id := range u.catalog.commands {
		every = every && u.MayRun(id)
	}
	u.unlimited = every && u.keys.all && u.channels.all && (u.contenders.all || u.name == DefaultName && !u.NamesContenders())
	return u
}
