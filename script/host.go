package script

// A Host runs the commands that a script calls. It belongs to one Run and is used by its
// goroutine only.
type Host interface {
	// Call runs a command, the name first, and returns its reply in RESP of version proto,
	// 2 or 3; an error is an error reply. The arguments are valid during the call, the
	// reply until the next one.
	Call(args [][]byte, proto int) []byte
	// ForbidWrites is called first for a script that declares that it does not write.
	ForbidWrites()
}
