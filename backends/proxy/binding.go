package proxy

import (
	"strconv"
	"strings"
)

// Binding encodes a server and a session of that server as one string. An engine stores it in the
// record of a lease that is bound to the session. Binding returns "" if session is 0.
func Binding(server string, session uint64) string {
	if session == 0 {
		return ""
	}
	return server + ":" + strconv.FormatUint(session, 10)
}

// BoundSession returns the session in a string from Binding. It returns 0 if the session is not one
// of this server.
func BoundSession(server, binding string) uint64 {
	text, own := strings.CutPrefix(binding, server+":")
	if !own {
		return 0
	}
	session, _ := strconv.ParseUint(text, 10, 64) // Binding wrote a valid number
	return session
}
