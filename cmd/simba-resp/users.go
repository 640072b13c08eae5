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
		Protected: c.ACLFile != "" && c.exposed(), // without a file, Validate names the flags that are missing
	})
	if err == nil {
		c.users = users
		return nil
	}
	several := access.Faults(nil)
	if !errors.As(err, &several) {
		several = access.Faults{err}
	}
	for _, fault := range several {
		wrong = append(wrong, fmt.Errorf("--aclfile: %w", fault))
	}
	return wrong
}

// exposed reports whether other machines may connect and have to prove who they are.
func (c *config) exposed() bool {
	open, err := opensToOthers(c.Addr)
	return err == nil && open && !c.Insecure
}
