package script

// Error is why a script has failed, in the words of Redis for the wire.
type Error string

func (e Error) Error() string { return string(e) }

// A StoppedError is returned by Run for a script that was killed or took too much memory: to
// run it again would be no use.
type StoppedError struct{ text Error }

func (e *StoppedError) Error() string { return string(e.text) }

// Unwrap returns the Error with the words for the wire.
func (e *StoppedError) Unwrap() error { return e.text }

// Errors that concern no particular line of a script.
const (
	// ErrNoScript is returned by Run for a SHA that the cache does not hold.
	ErrNoScript Error = "NOSCRIPT No matching script. Please use EVAL."
	// ErrBusy is returned by Run if it got no turn because the scripts that run have all run
	// longer than Config.BusyAfter.
	ErrBusy Error = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
	// ErrNotBusy is returned by Kill if no script has run longer than Config.BusyAfter.
	ErrNotBusy Error = "NOTBUSY No scripts in execution right now."
)
