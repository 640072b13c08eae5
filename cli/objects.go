package cli

// Object is an object that a command prints with --json. The tag doc of a field says what the field
// means.
type Object struct {
	Command string // one or several commands, in Markdown
	Value   any
}

// Objects returns all objects, in the order of the page of the command line.
//
// The names of their fields follow one rule. A time is in Unix milliseconds, and is called at, now
// or since, or ends in _at. A duration ends in _ms, and a size in _bytes. Other names are those of
// the wire. A null is something that does not exist, or that the server does not know.
func Objects() []Object {
	return []Object{
		{"`owner`, `list`", Tenure{}},
		{"`list`, if the owner is not known", Hidden{}},
		{"`queue`", Waiter{}},
		{"`history`, `watch`", Event{}},
		{"`why`", Why{}},
		{"`break`", Broken{}},
		{"`status`", Status{}},
	}
}
