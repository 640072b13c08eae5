package script

// Error is the error of a script, with the text of Redis' error reply.
type Error string

func (e Error) Error() string { return string(e) }

// StoppedError is returned by Run for a script that was killed or took too much memory. Running
// the script again would not help.
type StoppedError struct{ text Error }

func (e *StoppedError) Error() string { return string(e.text) }

// Unwrap returns the Error with the text of the reply.
func (e *StoppedError) Unwrap() error { return e.text }

// The errors of Run and Kill that concern no particular line of a script.
const (
	// ErrNoScript is returned by Run for a SHA that the cache does not have.
	ErrNoScript Error = "NOSCRIPT No matching script. Please use EVAL."
	// ErrBusy is returned by Run if all slots have scripts that have run for longer than
	// Config.BusyAfter.
	ErrBusy Error = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
	// ErrNotBusy is returned by Kill if no script has run longer than Config.BusyAfter.
	ErrNotBusy Error = "NOTBUSY No scripts in execution right now."
)
