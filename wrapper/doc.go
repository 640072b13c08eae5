// Package wrapper runs a command for as long as its process owns a mutex.
//
//	│◄──────── TTL window ────────►│◄──── transition window, the grace ───►│
//	│                              │                            │          │
//	renewal request sent           SIGTERM                      SIGKILL    the lease ends
//
// A renewal that succeeds begins both windows anew. If none succeeds, the command gets SIGTERM at
// the end of the TTL window. It gets SIGKILL when a quarter of the grace is left, or half a second
// if that is more. So the command has ended before the server grants the mutex to another
// contender. If an administrator breaks the mutex, the command gets SIGTERM at once.
//
// The command is a process group. The run ends when all processes of the group have ended. A
// process that leaves the group is not part of the command.
//
// On Linux the kernel kills the first process when the wrapper dies.
//
// If the wrapper is in the foreground of a terminal, the command takes its place there. A shell may
// run other processes in the wrapper's process group, such as a pager. The terminal then goes to
// the group that needs it. A signal that would stop the wrapper first stops the command. When the
// wrapper continues, it checks the lease before the command continues.
package wrapper
