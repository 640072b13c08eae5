package commands

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/simba-resp/simba-resp/access"
)

var (
	// ErrNotAuthenticated is returned when the credentials are wrong, or when there are none and
	// the default user needs a password.
	ErrNotAuthenticated = errors.New("authentication required")
	// ErrForbidden is returned when the user may not run the command.
	ErrForbidden = errors.New("the user has no permission")
)

// Credentials are what an HTTP request says about its sender.
type Credentials struct {
	Given          bool   // the request has a name and a password
	Name, Password string // an empty name means the default user
	Certificate    string // common name of the verified client certificate, "" = none
	RemoteAddr     string // host:port
}

// Authorize checks that the sender of an HTTP request may run a command. Otherwise it returns
// ErrNotAuthenticated or ErrForbidden. It identifies the sender by name and password, else by
// certificate. Without either, the sender is the default user. Authorize counts and logs denials
// and wrong passwords. After a wrong password it delays its return as AUTH delays the reply, but at
// most until ctx ends.
func (x *Commands) Authorize(ctx context.Context, c Credentials, command string) error {
	user, err := x.httpUser(ctx, c, command)
	if errors.Is(err, ErrForbidden) {
		d := &denial{reason: deniedCommand, object: command}
		x.observers.denied(user, c.RemoteAddr, d, httpContext)
	}
	return err
}

// MayRun reports whether Authorize would allow the command. If the command is not allowed, MayRun
// neither counts nor logs a denial, because the caller serves the request all the same. It treats
// wrong passwords as Authorize does.
func (x *Commands) MayRun(ctx context.Context, c Credentials, command string) bool {
	_, err := x.httpUser(ctx, c, command)
	return err == nil
}

// httpUser returns the sender's name. If the sender may not run the command, it also returns
// ErrForbidden. If the sender is not authenticated, it returns ErrNotAuthenticated and no name.
func (x *Commands) httpUser(ctx context.Context, c Credentials, command string) (name string, err error) {
	u := x.httpAccount(ctx, c).User()
	switch e := x.table.named([]byte(command)); {
	case u == nil:
		return "", ErrNotAuthenticated
	case u.Unlimited() || u.MayRun(e.id):
		return u.Name(), nil
	}
	return u.Name(), ErrForbidden
}

// httpContext is the context of HTTP requests in the audit log.
const httpContext = "http"

// httpAccount returns the account of the sender, nil if the sender is not authenticated.
func (x *Commands) httpAccount(ctx context.Context, c Credentials) *access.Account {
	if c.Given {
		name := cmp.Or(c.Name, access.DefaultName)
		return x.login([]byte(name), []byte(c.Password), c.RemoteAddr, func(d time.Duration) {
			select {
			case <-time.After(d):
			case <-ctx.Done():
			}
		})
	}
	if account := x.gate.byCertificate(c.Certificate); account != nil {
		return account
	}
	if x.gate.requireAuth() {
		return nil
	}
	return x.gate.users.Default()
}
