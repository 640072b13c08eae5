package proxy

import (
	"strconv"
	"strings"
)

// Binding returns the name of a server's connection among those of all servers, for the records of
// leases that are bound to it; "" = no connection.
func Binding(server string, session uint64) string {
	if session == 0 {
		return ""
	}
	return server + ":" + strconv.FormatUint(session, 10)
}

// BoundSession returns the connection that a binding names, 0 if it is none of that server.
func BoundSession(server, binding string) uint64 {
	text, own := strings.CutPrefix(binding, server+":")
	if !own {
		return 0
	}
	session, _ := strconv.ParseUint(text, 10, 64) // it was made by Binding
	return session
}
