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
		summary:    "Execute all commands issued after MULTI, one after the other; nothing blocks in between",
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
		group: "transactions", since: "2.2.0", run: (*client).unwatch,
		summary:    "Forget about watched keys: there are none",
		complexity: "O(1)",
	},
}
