package commands

// simbaGroup are this server's own commands.
const simbaGroup = "simba"

// The keys of SIMBA.*: the mutex is always the first argument, so that proxies
// and cluster clients route by it.
var (
	mutexWritten = keys{1, 1, 1, []string{"RW", "access", "update"}}
	mutexRead    = keys{1, 1, 1, []string{"RO", "access"}}
)

// Arguments that most of SIMBA.* take.
var (
	mutexArg     = argument{name: "mutex", kind: key}
	contenderArg = argument{name: "contender", kind: str}
	ttlArg       = argument{name: "ttl", kind: integer}
	transition   = argument{name: "ms", token: "TRANSITION", kind: integer, optional: true}
	tokenOption  = argument{name: "token", token: "TOKEN", kind: integer, optional: true}
	countOption  = argument{name: "count", token: "COUNT", kind: integer, optional: true}
)

var simbaCommands = []command{
	{
		name: "simba.acquire", arity: -4, flags: write | denyoom | renewing | noscript | blocking, keys: mutexWritten, actor: contenderActor,
		group: simbaGroup, since: "0.1.0", run: (*client).simbaAcquire,
		summary:    "Takes a mutex, renews it for its owner, or queues or waits for it",
		complexity: "O(1), O(log N) with N waiters of the mutex",
		args: []argument{mutexArg, contenderArg, ttlArg, transition,
			{name: "patience", kind: oneof, optional: true, args: []argument{
				{name: "ms", token: "WAIT", kind: integer},
				{name: "noqueue", token: "NOQUEUE", kind: pureToken},
			}},
			{name: "session", token: "SESSION", kind: pureToken, optional: true},
		},
	},
	{
		name: "simba.guard", arity: -4, flags: write | fast, keys: mutexWritten, actor: contenderActor,
		group: simbaGroup, since: "0.1.0", run: (*client).simbaGuard,
		summary:    "Renews the lease, only if still the owner",
		complexity: "O(1)",
		args:       []argument{mutexArg, contenderArg, ttlArg, transition, tokenOption},
	},
	{
		name: "simba.release", arity: -3, flags: write | fast, keys: mutexWritten, actor: contenderActor,
		group: simbaGroup, since: "0.1.0", run: (*client).simbaRelease,
		summary:    "Gives the mutex up, or the place in its queue",
		complexity: "O(1), O(log N) with N waiters of the mutex",
		args:       []argument{mutexArg, contenderArg, tokenOption},
	},
	{
		name: "simba.owner", arity: 2, flags: readonly | fast, keys: mutexRead,
		group: simbaGroup, since: "0.1.0", run: (*client).simbaOwner,
		summary:    "Shows who owns the mutex, by which token and until when",
		complexity: "O(1)",
		args:       []argument{mutexArg},
	},
	{
		name: "simba.queue", arity: -2, flags: readonly, keys: mutexRead,
		group: simbaGroup, since: "0.1.0", run: (*client).simbaQueue,
		summary:    "Lists who waits for the mutex, in order",
		complexity: "O(N) with N waiters returned",
		args:       []argument{mutexArg, countOption},
	},
	{
		name: "simba.scan", arity: -2, flags: readonly,
		group: simbaGroup, since: "0.1.0", run: (*client).simbaScan,
		summary:    "Iterates over the mutexes that are held or waited for",
		complexity: "O(1) a call, O(N) for a whole iteration over N mutexes",
		tips:       []string{"nondeterministic_output", "request_policy:special"},
		args: []argument{{name: "cursor", kind: integer},
			{name: "pattern", token: "MATCH", kind: pattern, optional: true}, countOption,
			{name: "state", token: "STATE", kind: oneof, optional: true, args: []argument{
				{name: "held", token: "held", kind: pureToken},
				{name: "contended", token: "contended", kind: pureToken},
			}},
		},
	},
	{
		name: "simba.check", arity: 3, flags: readonly | fast, keys: mutexRead,
		group: simbaGroup, since: "0.1.0", run: (*client).simbaCheck,
		summary:    "Tells whether a token is the current tenure's: the check that a protected resource makes",
		complexity: "O(1)",
		args:       []argument{mutexArg, {name: "token", kind: integer}},
	},
	{
		name: "simba.break", arity: -2, flags: write | admin, keys: mutexWritten,
		group: simbaGroup, since: "0.1.0", run: (*client).simbaBreak,
		summary:    "Frees the mutex whoever owns it; the next waiter gets it",
		complexity: "O(1), O(log N) with N waiters of the mutex",
		args:       []argument{mutexArg, {name: "text", token: "REASON", kind: str, optional: true}},
	},
	{
		name: "simba.history", arity: -2, flags: readonly, keys: mutexRead,
		group: simbaGroup, since: "0.1.0", run: (*client).simbaHistory,
		summary:    "Lists what happened to the mutex and its queue, from old to new",
		complexity: "O(N) with N events kept by the server",
		args: []argument{mutexArg, countOption,
			{name: "seq", token: "SINCE", kind: integer, optional: true}},
	},
	{
		name: "simba.help", arity: 1, flags: loading | stale | fast,
		group: simbaGroup, since: "0.1.0", run: (*client).simbaHelp,
		summary:    "Shows helpful text about the SIMBA commands",
		complexity: "O(1)",
	},
}
