// Package script runs Lua scripts as Redis does: KEYS, ARGV, redis.call and what belongs to
// them, with the conversions and the errors of Redis 7.0. It knows Lua and RESP; commands run in a
// Host.
//
//	Run ── cache ── slot ── state ── redis.call ── Host.Call
//	        │        │        │
//	        │        │        └ a Lua machine with the sandbox; the meter ends what runs too far
//	        │        └ one for each processor; who finds none waits, or is told BUSY
//	        └ compiled scripts by SHA1
//
// Scripts run side by side; that each is atomic is the work of the Host's transaction.
//
// # What a script cannot do
//
// See or change anything of a script before it: a state is used again, but all that scripts share
// is behind empty fronts that refuse writes. A state that a script has left with an
// error is thrown away.
//
// Go on without end: the virtual machine asks a context before each instruction whether it
// is done, and the context is a meter that looks each 256 steps at the clock, SCRIPT KILL, the
// caller and the heap. Library functions whose work is not small count steps too. The pattern
// matcher, the string library and the others that can take long are therefore this
// package's, not gopher-lua's; they are also closer to Lua 5.1.
//
// Take all memory: no string is longer than 1 MiB, no reply than 16 MiB, and a script ends
// when the heap has grown by Config.Memory while it ran. The operators .. and # are
// compiled as calls (see rewrite.go), because the machine bounds neither. Stacks are bounded:
// 1,000 calls, 16 coroutines inside each other, 1,000 levels of syntax.
//
// # Lua 5.1
//
// The compiler and the machine of gopher-lua differ from Lua 5.1 in ways that scripts notice. The
// syntax tree is rewritten before it is compiled, into one that they run right: assign.go has
// assignments, loops and iterators, capture.go variables that functions share, constants.go what Lua
// computes when it compiles, arithmetic.go the operators, jumps.go the starts of loops. The machine
// also loses values at a yield: yield.go. Numbers and their text are C's (numbers.go).
// TestRandomProgramsAnswerAsOnRedis looks for more; what is known to differ is in
// docs/reference/redis-keys.md.
//
// # What remains
//
// The heap is that of the whole server. If it grows by Config.Memory for another reason while a
// script of more than a millisecond runs, and that is no garbage, the script ends for it. A
// script can take somewhat more than Config.Memory before that is seen.
//
// Compiling is not metered. What takes long there is refused by size.
//
// The words of errors that the virtual machine itself raises, such as calling nil, are
// gopher-lua's, and so is goto. There is no struct, no cmsgpack, and no setting of cjson. The random
// numbers of a run begin anywhere, where those of Redis go on from its start. What is no number has
// the sign that the processor gives it: that of Redis on x86-64.
package script
