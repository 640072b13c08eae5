package proxy

import (
	"strconv"
	"strings"
)

// Binding encodes server and connection as one text, which the records of bound leases store. It is
// "" if session is 0.
func Binding(server string, session uint64) string {
	if session == 0 {
		return ""
	}
	return server + ":" + strconv.FormatUint(session, 10)
}

// BoundSession returns the connection of a text that Binding made, 0 if it is none of that server.
func BoundSession(server, binding string) uint64 {
	text, own := strings.CutPrefix(binding, server+":")
	if !own {
		return 0
	}
	session, _ := strconv.ParseUint(text, 10, 64) // it was made by Binding
	return session
}
