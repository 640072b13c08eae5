package commands

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/simba-resp/simba-resp/access"
)

// Errors of Commands.Authorize.
var (
	// ErrNotAuthenticated is returned when the credentials are wrong, or when there are none and
	// the default user needs a password.
	ErrNotAuthenticated = errors.New("authentication required")
	// ErrForbidden is returned when the user may not run the command.
	ErrForbidden = errors.New("the user has no permission")
)

// Credentials are what an HTTP request presents.
type Credentials struct {
	Given          bool   // it has a name and a password
	Name, Password string // an empty name is that of the default user
	Certificate    string // common name of the verified client certificate, "" = none
	RemoteAddr     string // host:port
}

// Authorize checks that the sender of an HTTP request may run a command. It counts and logs a
// denial as that of a command. A name and password go before a certificate; without either the
// sender is the default user. Wrong passwords are delayed, counted and logged as those of AUTH are.
// The delay ends early when ctx does.
func (x *Commands) Authorize(ctx context.Context, c Credentials, command string) error {
	user, err := x.httpUser(ctx, c, command)
	if errors.Is(err, ErrForbidden) {
		d := &denial{reason: deniedCommand, object: command}
		x.aclLog.add(httpClient(c, user), aclRecord{reason: d.reason, context: httpContext, object: d.object, user: user})
		x.audit.denied([]slog.Attr{slog.String("user", user), slog.String("addr", c.RemoteAddr)}, d, httpContext)
	}
	return err
}

// MayRun is Authorize for a request that is served anyway: it counts and logs no denial.
func (x *Commands) MayRun(ctx context.Context, c Credentials, command string) bool {
	_, err := x.httpUser(ctx, c, command)
	return err == nil
}

// httpUser returns the name of the sender, and why it may not run the command.
func (x *Commands) httpUser(ctx context.Context, c Credentials, command string) (name string, err error) {
	account := x.httpAccount(ctx, c)
	if account == nil {
		return "", ErrNotAuthenticated
	}
	u := account.User()
	switch e := x.table.named([]byte(command)); {
	case u == nil: // removed since
		return "", ErrNotAuthenticated
	case u.Unlimited() || u.MayRun(e.id):
		return u.Name(), nil
	}
	return u.Name(), ErrForbidden
}

// httpContext is the context of ACL LOG and of the audit log for HTTP requests.
const httpContext = "http"

// httpClient is the client of an HTTP request in ACL LOG.
func httpClient(c Credentials, user string) string { return "addr=" + c.RemoteAddr + " user=" + user }

// httpAccount returns the account of a request, nil if it has none.
func (x *Commands) httpAccount(ctx context.Context, c Credentials) *access.Account {
	if c.Given {
		return x.httpLogin(ctx, c)
	}
	if account := x.users.Find(c.Certificate); c.Certificate != "" && account != nil {
		if u := account.User(); u != nil && u.Enabled() {
			return account
		}
	}
	if x.RequireAuth() {
		return nil
	}
	return x.users.Default()
}

func (x *Commands) httpLogin(ctx context.Context, c Credentials) *access.Account {
	name, host := []byte(cmp.Or(c.Name, access.DefaultName)), hostOf(c.RemoteAddr)
	sleep(ctx, x.loginDelays.beforeCheck(host))
	if account := x.users.Authenticate(name, []byte(c.Password)); account != nil {
		return account
	}
	short := string(shorten(name))
	x.aclLog.add(httpClient(c, short), aclRecord{reason: deniedAuth, context: httpContext, object: httpContext, user: short})
	x.audit.failedLogin(name, c.RemoteAddr)
	sleep(ctx, x.loginDelays.failed(host))
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
