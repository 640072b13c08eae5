package commands

var aclSubcommands = []command{
	{
		name: "cat", arity: -2, flags: control, since: "6.0.0", run: (*client).aclCat,
		summary:    "List the ACL categories or the commands inside a category",
		complexity: "O(1) since the categories and commands are a fixed set.",
		args:       []argument{{name: "categoryname", kind: str, optional: true}},
	},
	{
		name: "deluser", arity: -3, flags: adminControl, since: "6.0.0", run: (*client).aclReadOnly,
		summary:    "Refused: users are kept in their file",
		complexity: "O(1)",
		args:       []argument{{name: "username", kind: str, multiple: true}},
	},
	{
		name: "dryrun", arity: -4, flags: adminControl | secret, since: "7.0.0", run: (*client).aclDryRun,
		summary:    "Returns whether the user can execute the given command without executing the command.",
		complexity: "O(1).",
		args: []argument{{name: "username", kind: str}, {name: "command", kind: str},
			{name: "arg", kind: str, optional: true, multiple: true}},
	},
	{
		name: "genpass", arity: -2, flags: control, since: "6.0.0", run: (*client).aclGenPass,
		summary:    "Generate a pseudorandom secure password to use for ACL users",
		complexity: "O(1)",
		args:       []argument{{name: "bits", kind: integer, optional: true}},
	},
	{
		name: "getuser", arity: 3, flags: adminControl, since: "6.0.0", run: (*client).aclGetUser,
		summary:    "Get the rules for a specific ACL user",
		complexity: "O(N). Where N is the number of password, command and pattern rules that the user has.",
		args:       []argument{{name: "username", kind: str}},
	},
	{
		name: "list", arity: 2, flags: adminControl, since: "6.0.0", run: (*client).aclList,
		summary:    "List the current ACL rules in ACL config file format",
		complexity: "O(N). Where N is the number of configured users.",
	},
	{
		name: "load", arity: 2, flags: adminControl, since: "6.0.0", run: (*client).aclLoad,
		summary:    "Reload the ACLs from the configured ACL file",
		complexity: "O(N). Where N is the number of configured users.",
	},
	{
		name: "log", arity: -2, flags: adminControl, since: "6.0.0", run: (*client).aclLogShow,
		summary:    "List latest events denied because of ACLs in place",
		complexity: "O(N) with N being the number of entries shown.",
		args: []argument{{name: "operation", kind: oneof, optional: true, args: []argument{
			{name: "count", kind: integer}, {name: "reset", token: "RESET", kind: pureToken}}}},
	},
	{
		name: "save", arity: 2, flags: adminControl, since: "6.0.0", run: (*client).aclReadOnly,
		summary:    "Refused: the server does not write the file of its users",
		complexity: "O(1)",
	},
	{
		name: "setuser", arity: -3, flags: adminControl | secret, since: "6.0.0", run: (*client).aclReadOnly,
		summary:    "Refused: users are kept in their file",
		complexity: "O(1)",
		args: []argument{{name: "username", kind: str},
			{name: "rule", kind: str, optional: true, multiple: true}},
	},
	{
		name: "users", arity: 2, flags: adminControl, since: "6.0.0", run: (*client).aclUsers,
		summary:    "List the username of all the configured ACL rules",
		complexity: "O(N). Where N is the number of configured users.",
	},
	{
		name: "whoami", arity: 2, flags: control, since: "6.0.0", run: (*client).aclWhoami,
		summary:    "Return the name of the user associated to the current connection",
		complexity: "O(1)",
	},
}
