package commands

import (
	"strings"
)

// oneKey returns keys for a command whose first argument is a key.
func oneKey(flags ...string) keys { return keys{1, 1, 1, flags} }

var (
	keyArg     = argument{name: "key", kind: key}
	fieldArg   = argument{name: "field", kind: str}
	fieldsArg  = argument{name: "field", kind: str, multiple: true}
	valueArg   = argument{name: "value", kind: str}
	fieldValue = argument{name: "field_value", kind: block, multiple: true, args: []argument{fieldArg, valueArg}}

	keyValues = argument{name: "key_value", kind: block, multiple: true, args: []argument{keyArg, valueArg}}

	memberArg   = argument{name: "member", kind: str}
	startArg    = argument{name: "start", kind: integer}
	stopArg     = argument{name: "stop", kind: integer}
	withScores  = argument{name: "withscores", token: "WITHSCORES", kind: pureToken, optional: true}
	limitOption = argument{name: "offset_count", token: "LIMIT", kind: block, optional: true, args: []argument{
		{name: "offset", kind: integer}, {name: "count", kind: integer},
	}}
)

// manyKeys returns keys for a command whose arguments are all keys.
func manyKeys(flags ...string) keys { return keys{1, -1, 1, flags} }

var (
	keysArg = argument{name: "key", kind: key, multiple: true}

	expireCondition = argument{name: "condition", kind: oneof, optional: true, args: []argument{
		{name: "nx", token: "NX", kind: pureToken}, {name: "xx", token: "XX", kind: pureToken},
		{name: "gt", token: "GT", kind: pureToken}, {name: "lt", token: "LT", kind: pureToken},
	}}
)

const unixTime kind = "unix-time"

// expiryOptions returns an argument that is one of EX, PX, EXAT and PXAT, or the option that the
// parameter other names.
func expiryOptions(other string) argument {
	return argument{name: "expiration", kind: oneof, optional: true, args: []argument{
		{name: "seconds", token: "EX", kind: integer}, {name: "milliseconds", token: "PX", kind: integer},
		{name: "unix-time-seconds", token: "EXAT", kind: unixTime},
		{name: "unix-time-milliseconds", token: "PXAT", kind: unixTime},
		{name: strings.ToLower(other), token: other, kind: pureToken},
	}}
}

var keyRead = keys{1, 1, 1, []string{"RO"}}
