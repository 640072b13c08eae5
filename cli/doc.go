// Package cli holds the subcommands of simba-resp that are clients of a running server.
//
// A command is a cobra.Command. [AddConnection] gives it the flags of the connection, and [Connect]
// returns a client of the server that they name. Errors are one line. An error with a method
// ExitCode sets the exit code of the process; otherwise it is 1.
//
// The package knows the server by its wire only. Names of mutexes and contenders can have any
// bytes, so [Printable] escapes everything that a person reads.
//
// The names in the JSON of --json follow one rule. A time is in Unix milliseconds, and is called at,
// now or since, or ends in _at. A duration ends in _ms, and a size in _bytes. Other names are those
// of the wire. A null is something that does not exist, or that the server does not know. The tag
// doc of a field is its text on the page of the command line.
package cli
