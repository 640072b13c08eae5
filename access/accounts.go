package access

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
)

// Account is a user's name with the user's current rules. Each connection keeps the Account of its
// user. An Account is safe for concurrent use.
type Account struct {
	name string
	user atomic.Pointer[User]
}

// Name returns the user's name.
func (a *Account) Name() string { return a.name }

// User returns the current rules, or nil if the user was removed or a is nil.
func (a *Account) User() *User {
	if a == nil {
		return nil
	}
	return a.user.Load()
}

// Options configure the users of a server. The zero value gives only the default user, with all
// rights and no password.
type Options struct {
	// Path is the file of users; "" = only the default user.
	Path string
	// Password is the default user's password, "" = none. If it is set, the file must have no line
	// for the default user.
	Password string
	// If Protected is true, Open and Load fail if a user can log in with an empty password.
	Protected bool
}

// Accounts holds all users of a server. It is safe for concurrent use.
type Accounts struct {
	catalog *Catalog
	options Options

	mu             sync.Mutex // serializes Load and Protect; guards options.Protected
	byName         atomic.Pointer[map[string]*Account]
	defaultAccount *Account // never removed
}

// ErrNoFile is returned by Load when Options.Path is empty.
var ErrNoFile = errors.New("there is no file of users")

// Open reads the users. Its error has type Errors.
func Open(c *Catalog, o Options) (*Accounts, error) {
	a := &Accounts{catalog: c, options: o}
	users, err := a.read()
	if err != nil {
		return nil, err
	}
	a.defaultAccount = &Account{name: DefaultName}
	a.byName.Store(&map[string]*Account{DefaultName: a.defaultAccount})
	a.install(users)
	return a, nil
}

// Load reads the file again and replaces all users. On an error it changes nothing. It returns the
// accounts whose user was added, changed or removed. Its error is ErrNoFile or has type Errors.
func (a *Accounts) Load() (changed []*Account, err error) {
	if a.options.Path == "" {
		return nil, ErrNoFile
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	users, err := a.read()
	if err != nil {
		return nil, err
	}
	return a.install(users), nil
}

// read returns the users of the file. If the file has no default user, read adds one.
func (a *Accounts) read() (map[string]*User, error) {
	users := make(map[string]*User)
	if path := a.options.Path; path != "" {
		info, err := os.Stat(path)
		if err == nil && !info.Mode().IsRegular() { // a read of a pipe may never end
			err = fmt.Errorf("%s is not a file", path)
		}
		var text []byte
		if err == nil {
			text, err = os.ReadFile(path)
		}
		if err != nil {
			return nil, Errors{err}
		}
		var wrong Errors
		users, wrong = parse(a.catalog, path, text)
		if users[DefaultName] != nil && a.options.Password != "" {
			wrong = append(wrong, fmt.Errorf("%s has a line for the user '%s', and requirepass is set too: give the password in that line", path, DefaultName))
		}
		if len(wrong) > 0 {
			return nil, wrong
		}
	}
	if users[DefaultName] == nil {
		users[DefaultName] = a.defaultUser()
	}
	if a.options.Protected {
		if err := protect(users); err != nil {
			return nil, err
		}
	}
	for _, u := range users {
		u.users = users
	}
	return users, nil
}

// defaultUser returns a user with all rights, as Redis' default user has, and the configured
// password.
func (a *Accounts) defaultUser() *User {
	u := newUser(a.catalog, DefaultName)
	for _, word := range []string{"on", "nopass", "allkeys", "allchannels", "allcommands"} {
		u.applyWord(word)
	}
	if a.options.Password != "" {
		_ = u.apply(">" + a.options.Password) // apply never fails for a password
	}
	return u.finish()
}

// protect returns an error if an enabled user needs no password, or has the empty one.
func protect(users map[string]*User) error {
	var open []string
	for _, name := range slices.Sorted(maps.Keys(users)) {
		if users[name].Verify(nil) {
			open = append(open, name)
		}
	}
	if open == nil {
		return nil
	}
	return Errors{fmt.Errorf("other machines may connect, and these users are on without a password: %v", open)}
}

// install replaces the users. It returns the accounts whose user was added, changed or removed.
func (a *Accounts) install(users map[string]*User) (changed []*Account) {
	old := *a.byName.Load()
	accounts := make(map[string]*Account, len(users))
	for name, u := range users {
		account := old[name]
		if account == nil {
			account = &Account{name: name}
		}
		if before := account.user.Load(); before == nil || !before.equal(u) {
			changed = append(changed, account)
		}
		account.user.Store(u) // even if u is unchanged, because MayName depends on the other users
		accounts[name] = account
	}
	a.byName.Store(&accounts)
	for name, account := range old {
		if users[name] == nil {
			account.user.Store(nil)
			changed = append(changed, account)
		}
	}
	return changed
}

// Default returns the default user's account.
func (a *Accounts) Default() *Account { return a.defaultAccount }

// Find returns the account of that name, or nil if there is none.
func (a *Accounts) Find(name string) *Account { return (*a.byName.Load())[name] }

// Names returns the names of all users, sorted.
func (a *Accounts) Names() []string { return slices.Sorted(maps.Keys(*a.byName.Load())) }

// Digest returns a digest of all users, with their passwords and rights.
func (a *Accounts) Digest() string {
	h := sha256.New()
	for _, name := range a.Names() {
		if u := a.Find(name).User(); u != nil { // else Load has removed it meanwhile
			fmt.Fprintln(h, u)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Authenticate returns the account of that name if its user is enabled and has that password.
// Otherwise it returns nil. An unknown name takes as long as a wrong password.
func (a *Accounts) Authenticate(name, password []byte) *Account {
	account := a.Find(string(name))
	if u := cmp.Or(account.User(), unknownUser); !u.Verify(password) {
		return nil
	}
	return account
}

// unknownUser stands for every user that does not exist. It is off. Authenticate compares the
// password with that of unknownUser, so that an unknown name takes as long as a known one.
var unknownUser = &User{passwords: make([]digest, 1)}

// Protect sets Options.Protected. If protected is true, and a current user can log in with an empty
// password, Protect changes nothing and returns an error of type Errors.
func (a *Accounts) Protect(protected bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if protected {
		if err := protect(a.defaultAccount.User().users); err != nil {
			return err
		}
	}
	a.options.Protected = protected
	return nil
}
