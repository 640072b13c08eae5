package access

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
)

// Account is a user as connections hold it: by what name, and what its rules are
// now. Any goroutine may use it.
type Account struct {
	name string
	user atomic.Pointer[User]
}

// Name is the user's name.
func (a *Account) Name() string { return a.name }

// User is what the user may do now; nil = the user was removed, for ever.
func (a *Account) User() *User { return a.user.Load() }

// Options say who the users of a server are. The zero value: the default user, who
// may do everything without a password.
type Options struct {
	// Path is the file of users; "" = there is only the default user.
	Path string
	// Password is that of the default user, "" = none. It is refused beside a file
	// that has a line for that user.
	Password string
	// Protected refuses users that are on and need no password.
	Protected bool
}

// Accounts are all users of a server. Any goroutine may use it.
type Accounts struct {
	catalog *Catalog
	options Options

	mu     sync.Mutex // serializes Load and Protect
	byName atomic.Pointer[map[string]*Account]
	first  *Account // the default user's, which is never removed
}

// ErrNoFile is returned by Load when there is no file of users.
var ErrNoFile = errors.New("there is no file of users")

// Open reads the users. Its error is of type Errors.
func Open(c *Catalog, o Options) (*Accounts, error) {
	a := &Accounts{catalog: c, options: o}
	users, err := a.read()
	if err != nil {
		return nil, err
	}
	a.first = &Account{name: DefaultName}
	a.byName.Store(&map[string]*Account{DefaultName: a.first})
	a.install(users)
	return a, nil
}

// Load reads the file again and puts its users in the place of the old ones, all or
// none. It returns the accounts whose user has changed or is gone. Its error is
// ErrNoFile or of type Errors.
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

// maxFile bounds the file: one that is larger is some other file.
const maxFile = 16 << 20

// read returns the users of the file, and the default one if the file has none.
func (a *Accounts) read() (map[string]*User, error) {
	users := make(map[string]*User)
	if path := a.options.Path; path != "" {
		info, err := os.Stat(path)
		if err == nil && !info.Mode().IsRegular() { // to read a pipe may take for ever
			err = fmt.Errorf("%s is not a file", path)
		}
		if err == nil && info.Size() > maxFile {
			err = fmt.Errorf("%s has %d bytes, at most %d are allowed", path, info.Size(), maxFile)
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
		u.everyone = users
	}
	return users, nil
}

// defaultUser returns the user that Redis has without any configuration, but for
// the password.
func (a *Accounts) defaultUser() *User {
	u := newUser(a.catalog, DefaultName)
	for _, word := range []string{"on", "nopass", "allkeys", "allchannels", "allcommands"} {
		u.applyWord(word)
	}
	if a.options.Password != "" {
		_ = u.apply(">" + a.options.Password) // a password is never refused
	}
	return u.finish()
}

// protect refuses users that are on without a password.
func protect(users map[string]*User) error {
	var open []string
	for _, name := range slices.Sorted(maps.Keys(users)) {
		if users[name].enabled && users[name].anyPass {
			open = append(open, name)
		}
	}
	if open == nil {
		return nil
	}
	return Errors{fmt.Errorf("other machines may connect, and these users are on without a password: %v", open)}
}

// install makes these the users and returns the accounts that differ by it.
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
		account.user.Store(u) // in any case: it knows who the others are now
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

// Default is the account of the default user.
func (a *Accounts) Default() *Account { return a.first }

// Find returns the account of that name, nil if there is none.
func (a *Accounts) Find(name string) *Account { return (*a.byName.Load())[name] }

// Names are those of all users, sorted.
func (a *Accounts) Names() []string { return slices.Sorted(maps.Keys(*a.byName.Load())) }

// Authenticate returns the account of that name if its user is on and that is one
// of its passwords, else nil. An unknown name takes the time of a wrong password.
func (a *Accounts) Authenticate(name, password []byte) *Account {
	account := (*a.byName.Load())[string(name)]
	var u *User
	if account != nil {
		u = account.User()
	}
	if u == nil {
		nobody.Verify(password)
		return nil
	}
	if !u.Verify(password) {
		return nil
	}
	return account
}

// nobody stands for a user that does not exist.
var nobody = &User{passwords: make([]digest, 1)}

// Protect sets Options.Protected from now on. It changes nothing and returns an error of
// type Errors if users are on without a password that must not be.
func (a *Accounts) Protect(yes bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if yes {
		users := make(map[string]*User)
		for name, account := range *a.byName.Load() {
			users[name] = account.User() // under mu nobody is removed
		}
		if err := protect(users); err != nil {
			return err
		}
	}
	a.options.Protected = yes
	return nil
}
