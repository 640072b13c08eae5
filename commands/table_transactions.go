package commands

var transactionCommands = []command{
	{
		name: "discard", arity: 1, flags: control | fast | allowBusy | immediate, categories: catTransaction,
		group: "transactions", since: "2.0.0", run: (*client).discard,
		summary:    "Discard all commands issued after MULTI",
		complexity: "O(1)",
	},
	{
		name: "exec", arity: 1, flags: control | skipSlowlog | immediate | unmonitored, categories: catTransaction,
		group: "transactions", since: "1.2.0", run: (*client).exec,
		summary:    "Execute all commands issued after MULTI: in one step, unless SIMBA.* is among them; nothing blocks in between",
		complexity: "Depends on commands in the transaction",
	},
	{
		name: "multi", arity: 1, flags: control | fast | allowBusy | immediate, categories: catTransaction,
		group: "transactions", since: "1.2.0", run: (*client).multi,
		summary:    "Mark the start of a transaction block",
		complexity: "O(1)",
	},
	{
		name: "unwatch", arity: 1, flags: control | fast | allowBusy, categories: catTransaction,
		group: "transactions", since: "2.2.0", run: (*client).unwatch, keyed: unwatchKeyed,
		summary:    "Forget about all watched keys",
		complexity: "O(1)",
	},
	{
		name: "watch", arity: -2, flags: control | fast | allowBusy | immediate, categories: catTransaction,
		keys:  keys{1, -1, 1, []string{"RO"}},
		group: "transactions", since: "2.2.0", run: (*client).watchKeys,
		summary:    "Watch the given keys to determine execution of the MULTI/EXEC block",
		complexity: "O(1) for every key.",
		args:       []argument{{name: "key", kind: key, multiple: true}},
	},
}
