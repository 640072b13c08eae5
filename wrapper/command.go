package wrapper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"

	"github.com/simba-resp/simba-resp/client"
)

// The exit codes of a command that cannot run, as in a shell.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// Command is a program with its arguments.
type Command struct {
	path string
	args []string // args[0] is the name
}

// StartError is returned when a command cannot run.
type StartError struct {
	name string
	err  error
}

// Error implements error.
func (e *StartError) Error() string {
	return fmt.Sprintf("the command %s cannot run: %v", strconv.Quote(e.name), e.err)
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.err }

// ExitCode returns the code of a shell: 127 if there is no such program, otherwise 126.
func (e *StartError) ExitCode() int {
	if errors.Is(e.err, exec.ErrNotFound) || errors.Is(e.err, fs.ErrNotExist) {
		return exitNotFound
	}
	return exitNotExecutable
}

// Find returns the command that args name: a program, found in PATH, and its arguments. The error
// is a *StartError.
func Find(args []string) (Command, error) {
	path, err := exec.LookPath(args[0])
	if err != nil && !errors.Is(err, exec.ErrDot) { // a shell, too, runs one in the current directory
		if cause := (*exec.Error)(nil); errors.As(err, &cause) {
			err = cause.Err
		}
		return Command{}, &StartError{args[0], err}
	}
	return Command{path: path, args: args}, nil
}

// environment returns the environment of this process, and variables with the mutex, the owner's id
// and the fencing token.
func environment(mutex string, owner client.Owner) []string {
	own := []string{
		"SIMBA_MUTEX=" + mutex, "SIMBA_OWNER=" + owner.ID, "SIMBA_TOKEN=" + strconv.FormatUint(owner.Token, 10),
	}
	cmd := exec.Cmd{Env: append(os.Environ(), own...)}
	return cmd.Environ() // of several values of a variable, it has the last one
}
