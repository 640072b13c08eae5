package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/simba-resp/simba-resp/access"
	"github.com/simba-resp/simba-resp/commands"
)

// openUsers reads the file of users, if there is one, and sets the password of the default user. It
// returns all errors.
func (c *config) openUsers() (wrong configErrors) {
	users, err := access.Open(commands.Catalog(), access.Options{
		Path:      c.ACLFile,
		Password:  c.RequirePass,
		Protected: c.requiresPasswords(),
	})
	c.users = users
	var several access.Errors
	errors.As(err, &several) // Open returns no other error
	for _, fault := range several {
		wrong = append(wrong, fmt.Errorf("--aclfile: %w", fault))
	}
	return wrong
}

// hasAuth reports whether a password, a file of users or --insecure is given. The file may have
// users without a password: see requiresPasswords.
func (c *config) hasAuth() bool {
	return c.RequirePass != "" || c.RequirePassFile != "" || c.ACLFile != "" || c.Insecure
}

// requiresPasswords reports whether each enabled user of the file must have a password.
func (c *config) requiresPasswords() bool { return c.ACLFile != "" && c.exposed() }

// exposed reports whether other machines can connect without a client certificate. With --insecure
// it returns false.
func (c *config) exposed() bool {
	return !c.Insecure && slices.ContainsFunc(c.listeners(), func(l listener) bool {
		open, err := isPublic(l.addr)
		return err == nil && open && !c.needsCertificate(l)
	})
}
