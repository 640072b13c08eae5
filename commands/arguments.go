package commands

// oneKey returns keys for a command whose first argument is a key.
func oneKey(flags ...string) keys { return keys{1, 1, 1, flags} }

// manyKeys returns keys for a command whose arguments are all keys.
func manyKeys(flags ...string) keys { return keys{1, -1, 1, flags} }

var keyRead = oneKey("RO")
