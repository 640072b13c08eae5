package proxy

import (
	"strconv"
	"strings"
)

// Binding encodes a session of a server for the record of a lease that is bound to it; 0 = "". server
// names the server among those of the store, without a colon.
func Binding(server string, session uint64) string {
	if session == 0 {
		return ""
	}
	return server + ":" + strconv.FormatUint(session, 10)
}

// BoundSession returns the session in a Binding, or 0 if it is not one of this server.
func BoundSession(server, binding string) uint64 {
	text, _ := strings.CutPrefix(binding, server+":")
	session, _ := strconv.ParseUint(text, 10, 64) // fails for another server's
	return session
}
