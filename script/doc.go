// Package script runs Lua scripts as Redis 7.0 does: KEYS, ARGV and redis.call, with the same
// conversions and errors. It has the parts of Lua and of Redis' library that scripts of locks use.
// The scripts run in gopher-lua, a Lua compiler and virtual machine in Go. The package knows Lua and
// RESP. A Host runs the commands.
//
//	Run ── cache ── slot ── state ── redis.call ── Host.Call
//	        │        │        │
//	        │        │        └ a Lua state with the sandbox; the meter bounds a script
//	        │        └ one for each processor; a script waits for one, or fails with BUSY
//	        └ compiled scripts by SHA1
//
// Scripts run in parallel. The Host's transaction makes each of them atomic.
//
// # Bounds
//
// A script sees and changes nothing of an earlier one. States are reused, but all tables that
// scripts share are read-only. A state is discarded if its script was stopped, if the reply was too
// long, or if gopher-lua panicked.
//
// A script can always be ended. The virtual machine checks a context before each instruction. The
// context is a meter: every 256 steps it reads the clock, and once a millisecond it checks SCRIPT
// KILL, the caller and the heap. Library functions count steps for their work too. Those of
// gopher-lua do not, so the string and table functions are implemented here.
//
// Memory is bounded. A string has at most 1 MiB, a reply 16 MiB. A script ends when the heap has
// grown by Config.Memory. gopher-lua does not bound the operator .., so it is compiled as a call
// (see rewrite.go). Calls and syntax nest at most 1,000 times.
//
// # Lua 5.1
//
// The compiler and the virtual machine of gopher-lua differ from Lua 5.1 in ways that scripts
// notice. So the syntax tree is rewritten before it is compiled:
//
//   - assign.go: assignments, loops and iterators
//   - capture.go: variables that closures share
//   - constants.go: constant expressions
//   - arithmetic.go: operators
//   - jumps.go: loops whose first instruction is a jump
//
// numbers.go converts numbers to text and to integers as C does. TestRandomProgramsAnswerAsOnRedis
// searches for more differences. docs/reference/redis-keys.md lists the known ones.
//
// # Limits of the approach
//
// The meter measures the heap of the whole server. If the heap grows by Config.Memory for another
// reason while a script of more than a millisecond runs, the script ends. A script can take
// somewhat more than Config.Memory before the meter notices.
//
// Compiling is not metered. Source that would take long to compile is refused by size.
package script
