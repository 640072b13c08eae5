package commands

const (
	scriptFlags   = noscript | stale | skipMonitor | mayReplicate | noMandatoryKeys | movableKeys
	scriptRead    = scriptFlags | readonly
	scriptKeyArg  = 2 // the number of keys
	anyKeyWritten = "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE"
	anyKeyRead    = "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS"
)

// How the keys of a script may be used.
var (
	scriptKeysWritten = keys{flags: []string{"RW", "access", "update"}}
	scriptKeysRead    = keys{flags: []string{"RO", "access"}}
)

// scriptArgs are the arguments of EVAL and its kin, which name their script in one of two ways.
func scriptArgs(name string) []argument {
	return []argument{{name: name, kind: str}, {name: "numkeys", kind: integer},
		{name: "key", kind: key, optional: true, multiple: true}, {name: "arg", kind: str, optional: true, multiple: true}}
}

const scriptComplexity = "Depends on the script that is executed."

var scriptingCommands = []command{
	{
		name: "eval", arity: -3, flags: scriptFlags | longArgs, categories: catScripting,
		keys: scriptKeysWritten, keyCount: scriptKeyArg, keyNotes: anyKeyWritten,
		group: "scripting", since: "2.6.0", keyed: eval,
		summary:    "Execute a Lua script server side: all of what it does, or nothing if it fails",
		complexity: scriptComplexity, args: scriptArgs("script"),
	},
	{
		name: "evalsha", arity: -3, flags: scriptFlags, categories: catScripting,
		keys: scriptKeysWritten, keyCount: scriptKeyArg,
		group: "scripting", since: "2.6.0", keyed: evalStored,
		summary:    "Execute a Lua script server side",
		complexity: scriptComplexity, args: scriptArgs("sha1"),
	},
	{
		name: "evalsha_ro", arity: -3, flags: scriptRead, categories: catScripting,
		keys: scriptKeysRead, keyCount: scriptKeyArg,
		group: "scripting", since: "7.0.0", keyed: evalStoredRO,
		summary:    "Execute a read-only Lua script server side",
		complexity: scriptComplexity, args: scriptArgs("sha1"),
	},
	{
		name: "eval_ro", arity: -3, flags: scriptRead | longArgs, categories: catScripting,
		keys: scriptKeysRead, keyCount: scriptKeyArg, keyNotes: anyKeyRead,
		group: "scripting", since: "7.0.0", keyed: evalRO,
		summary:    "Execute a read-only Lua script server side",
		complexity: scriptComplexity, args: scriptArgs("script"),
	},
	{
		name: "script", arity: -2, group: "scripting", since: "2.6.0",
		summary:    "A container for Lua scripts management commands",
		complexity: "Depends on subcommand.",
		subs: []command{
			{
				name: "debug", arity: 3, flags: noscript, categories: catScripting, since: "3.2.0", run: onScripts(scriptDebug),
				summary:    "Turn the debug mode off, which it always is.",
				complexity: "O(1)",
				args: []argument{{name: "mode", kind: oneof, args: []argument{
					{name: "yes", token: "YES", kind: pureToken},
					{name: "sync", token: "SYNC", kind: pureToken},
					{name: "no", token: "NO", kind: pureToken},
				}}},
			},
			{
				name: "exists", arity: -3, flags: noscript, categories: catScripting, since: "2.6.0", run: onScripts(scriptExists),
				summary:    "Check existence of scripts in the script cache.",
				complexity: "O(N) with N being the number of scripts to check (so checking a single script is an O(1) operation).",
				tips:       []string{"request_policy:all_shards", "response_policy:agg_logical_and"},
				args:       []argument{{name: "sha1", kind: str, multiple: true}},
			},
			{
				name: "flush", arity: -2, flags: noscript | audited, categories: catScripting, since: "2.6.0", run: onScripts(scriptFlush),
				summary:    "Remove all the scripts from the script cache.",
				complexity: "O(N) with N being the number of scripts in cache",
				tips:       []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
				args: []argument{{name: "async", kind: oneof, optional: true, args: []argument{
					{name: "async", token: "ASYNC", kind: pureToken},
					{name: "sync", token: "SYNC", kind: pureToken},
				}}},
			},
			{
				name: "kill", arity: 2, flags: noscript | allowBusy | audited, categories: catScripting, since: "2.6.0", run: onScripts(scriptKill),
				summary:    "Kill the scripts that have run too long.",
				complexity: "O(1)",
				tips:       []string{"request_policy:all_shards", "response_policy:one_succeeded"},
			},
			{
				name: "load", arity: 3, flags: noscript | stale | longArgs, categories: catScripting, since: "2.6.0", run: onScripts(scriptLoad),
				summary:    "Load the specified Lua script into the script cache.",
				complexity: "O(N) with N being the length in bytes of the script body.",
				tips:       []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
				args:       []argument{{name: "script", kind: str}},
			},
		},
	},
}
