// Package cli holds the subcommands of simba-resp that are clients of a running server.
//
// A command is a cobra.Command. [AddConnection] gives it the flags of the connection, and [Connect]
// returns a client of the server that they name. Errors are one line. An error with a method
// ExitCode sets the exit code of the process; otherwise it is 1.
//
// The package knows the server by its wire only. Names of mutexes and contenders can have any
// bytes, so [Printable] escapes everything that a person reads.
package cli
