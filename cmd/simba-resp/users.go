package main

import (
	"errors"
	"fmt"

	"github.com/simba-resp/simba-resp/access"
	"github.com/simba-resp/simba-resp/commands"
)

// openUsers reads the users: those of the file, if there is one, and the default
// one. It returns all that is wrong with them.
func (c *config) openUsers() (wrong faults) {
	users, err := access.Open(commands.Catalog(), access.Options{
		Path:      c.ACLFile,
		Password:  c.RequirePass,
		Protected: c.protectsUsers(),
	})
	if err == nil {
		c.users = users
		return nil
	}
	several := access.Errors(nil)
	if !errors.As(err, &several) {
		several = access.Errors{err}
	}
	for _, fault := range several {
		wrong = append(wrong, fmt.Errorf("--aclfile: %w", fault))
	}
	return wrong
}

// judgesClients reports whether clients have to prove who they are, or whether the user has said that they
// need not. Of users in a file each is looked at: see exposed.
func (c *config) judgesClients() bool {
	return c.RequirePass != "" || c.RequirePassFile != "" || c.ACLFile != "" || c.Insecure
}

// protectsUsers reports whether each user that is on must have a password. Without a file, Validate names the
// flags that are missing.
func (c *config) protectsUsers() bool { return c.ACLFile != "" && c.exposed() }

// exposed reports whether other machines may connect and have to prove who they are by a password.
func (c *config) exposed() bool {
	open := func(addr string) bool {
		is, err := opensToOthers(addr)
		return err == nil && is
	}
	return !c.Insecure && (open(c.Addr) || open(c.TLSAddr) && c.TLSAuthClients != authYes)
}
