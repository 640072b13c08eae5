package script

// Host runs the commands that a script calls. A Run uses its Host in one goroutine only.
type Host interface {
	// Call runs a command, whose name is args[0]. It returns the reply in RESP2. Errors are error
	// replies. args is valid during the call. The reply is valid until the next call.
	Call(args [][]byte) []byte
}
