package script

// Host runs the commands that a script calls. Only the goroutine of one Run uses it.
type Host interface {
	// Call runs a command. args begins with the command's name. It returns the reply in version
	// proto of RESP, 2 or 3. Errors are error replies. args is valid during the call, the reply
	// until the next call.
	Call(args [][]byte, proto int) []byte
	// ForbidWrites is called before a script with the flag no-writes.
	ForbidWrites()
}
