package commands

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp/access"
	"github.com/simba-resp/simba-resp/resp"
)

// command is a row of the table.
type command struct {
	name       string // lower case; "kill" is the name of CLIENT KILL
	arity      int    // number of arguments, the name included; -n = n or more
	flags      flag
	categories category // in addition to those of the family, and to those that follow from flags
	keys       keys
	keyCount   int // index of the number of keys; the keys follow it; 0 = see the field keys
	channels   channelUse
	actor      actor
	group      string // "" = that of the family
	since      string // first version with the command: of this server for SIMBA.*, else of Redis
	summary    string
	args       string    // the arguments, in the notation of Redis' documentation
	subs       []command // the subcommands of a container, without HELP, which newEntry adds

	// run executes the command. It writes one reply, or returns the error that is the reply.
	run func(c *client, args [][]byte) error
	// keyed runs the command in a transaction of the keyspace; nil = the command cannot run in one.
	// EXEC and scripts run several commands in one transaction. Outside EXEC and scripts, each
	// call has a transaction of its own if run is nil.
	keyed keyedCommand
}

// family is the rows of one part of the table, with what they have in common.
type family struct {
	group      string
	categories category // of the commands and subcommands, but not of containers that only contain
	rows       []command
}

// keys says which arguments are keys. The zero value means none.
type keys struct {
	first, last, step int
	use               access.Use // how the command uses the keys
	channels          bool       // the arguments are channels, which clients route like keys
}

// oneKey returns keys for a command whose first argument is a key.
func oneKey(use access.Use) keys { return keys{first: 1, last: 1, step: 1, use: use} }

// manyKeys returns keys for a command whose arguments are all keys.
func manyKeys(use access.Use) keys { return keys{first: 1, last: -1, step: 1, use: use} }

// keyPairs are the keys of a command whose arguments are keys, each followed by its new value.
var keyPairs = keys{first: 1, last: -1, step: 2, use: valueWritten}

// How commands use keys.
const (
	existence    access.Use = 0 // also the type of a key, and its size
	valueRead               = access.Read
	valueWritten            = access.Write
)

// channelUse is how a command uses the channels among its arguments.
type channelUse uint8

const (
	noChannels    channelUse = iota
	publishes                // to the channel in the first argument
	listens                  // to the channels in all arguments
	listensByGlob            // to the globs in all arguments
)

// actor says which arguments of a command are the ids of the contenders that it acts for.
type actor struct {
	ids func(args [][]byte) [][]byte // nil = none
	// values says that the ids are values that the command writes, for example to a lock key. Lock
	// code for Redis often writes random values. So a user without a rule for contenders may write
	// any value, except ids that belong to another user (access.User.MayName).
	values bool
}

// simbaGroup is the group of this server's own commands.
const simbaGroup = "simba"

// flag is a set of properties of a command.
type flag uint32

// The flags that COMMAND INFO shows, in its order.
const (
	write flag = 1 << iota
	readonly
	denyoom
	admin
	pubsub
	noscript
	blocking
	loading
	stale
	skipMonitor
	skipSlowlog
	fast
	noAuth // served before AUTH
	noMandatoryKeys
	noMulti // refused inside MULTI
	allowBusy
	movableKeys
	shownFlags = iota
)

// The flags that only this server uses.
const (
	immediate    flag = 1 << (shownFlags + iota) // runs inside MULTI instead of being queued
	unqueued                                     // refused inside MULTI: has no reply or several
	subMode                                      // allowed on a RESP2 connection with subscriptions
	secret                                       // arguments may include a password; not logged
	unmonitored                                  // client.run does not show it to MONITOR
	longArgs                                     // arguments may be longer than resp.Limits.Arg
	mayReplicate                                 // no write, but has an effect that a failed script must undo
	audited                                      // logged by audit; catAdmin implies it
	renewing                                     // denyoom does not apply to a renewal
)

const (
	control      = noscript | loading | stale
	adminHidden  = admin | unmonitored
	adminControl = adminHidden | control
)

var flagNames = [shownFlags]string{"write", "readonly", "denyoom", "admin", "pubsub", "noscript", "blocking",
	"loading", "stale", "skip_monitor", "skip_slowlog", "fast", "no_auth", "no_mandatory_keys", "no_multi", "allow_busy", "movablekeys"}

// category is a set of ACL categories.
type category uint32

// The categories, in the order of Redis. Redis has no catSimba.
const (
	catKeyspace category = 1 << iota
	catRead
	catWrite
	_ // set; this server has no command in the categories named _
	catSortedSet
	_ // list
	catHash
	catString
	_ // bitmap
	_ // hyperloglog
	_ // geo
	_ // stream
	catPubsub
	catAdmin
	catFast
	catSlow
	catBlocking
	catDangerous
	catConnection
	catTransaction
	catScripting
	catSimba
)

var categoryNames = [...]string{"keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap", "hyperloglog",
	"geo", "stream", "pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction", "scripting", "simba"}

func (c *command) acl() category {
	set, flags := c.categories, c.flags
	if set&catScripting != 0 {
		flags &^= write | readonly // a script is in neither category, as in Redis
	}
	for _, implied := range [...]struct {
		flag flag
		cats category
	}{
		{write, catWrite}, {readonly, catRead}, {pubsub, catPubsub}, {blocking, catBlocking},
		{admin, catAdmin | catDangerous}, {fast, catFast},
	} {
		if flags&implied.flag != 0 {
			set |= implied.cats
		}
	}
	if c.flags&fast == 0 {
		set |= catSlow
	}
	if c.group == simbaGroup {
		set |= catSimba
	}
	return set
}

// members returns the names of the bits in a set.
func members[S ~uint32](set S, names []string) (found []string) {
	for i, name := range names {
		if set&(1<<i) != 0 {
			found = append(found, name)
		}
	}
	return found
}

type entry struct {
	*command
	id        int    // its index in table.all, and in Catalog
	full      string // with the container's name, such as "client|kill"
	container *entry // nil = this is no subcommand
	subs      []*entry
	bySub     map[string]*entry
	tally     tally
}

func (e *entry) has(f flag) bool { return e.flags&f != 0 }

// accepts reports whether n arguments fit the arity. n counts the names of the command and of its
// container too.
func (e *entry) accepts(n int) bool {
	if e.arity < 0 {
		return n >= -e.arity
	}
	return n == e.arity
}

// keysOf returns the keys among the arguments of a command. If the argument with the number of keys
// is invalid, keysOf returns none, as in Redis.
func (e *entry) keysOf(args [][]byte) (found [][]byte) {
	if e.keyCount > 0 {
		after := args[e.keyCount+1:]
		if n, ok := parseInt(args[e.keyCount]); ok && n >= 0 && n <= int64(len(after)) {
			return after[:n]
		}
		return nil
	}
	last := e.keys.last
	if last < 0 {
		last += len(args)
	}
	for i := e.keys.first; i <= last && i < len(args); i += e.keys.step {
		found = append(found, args[i])
	}
	return found
}

// call is one run of a command by a client.
type call struct {
	entry   *entry
	args    [][]byte
	conn    *resp.Conn
	account *access.Account
	started time.Duration // since the server's start
	parked  time.Duration // how long the command has waited or paused so far
	took    time.Duration // without parked; set when the command has ended
	err     error         // the reply, nil = no error
}

// table finds commands by name. It does not change after newTable.
type table struct {
	entries []*entry // in the order of the families
	byName  map[string]*entry
}

// maxName is the longest name that lookup finds, in bytes.
const maxName = 32

func newTable(families []family) *table {
	t := &table{byName: make(map[string]*entry)}
	for i := range families {
		for _, row := range families[i].rows {
			e := newEntry(row, &families[i], nil)
			t.entries = append(t.entries, e)
			t.byName[e.name] = e
		}
	}
	id := 0
	for e := range t.all() {
		e.id = id
		id++
	}
	return t
}

func newEntry(row command, f *family, container *entry) *entry {
	if row.run == nil && row.keyed != nil {
		row.run = (*client).runKeyed
	}
	if row.run != nil {
		row.categories |= f.categories
	}
	row.group = cmp.Or(row.group, f.group)
	if row.acl()&catAdmin != 0 {
		row.flags |= audited
	}
	e := &entry{command: &row, full: row.name, container: container}
	if container != nil {
		e.full = container.name + "|" + row.name
	}
	if row.subs == nil {
		return e
	}
	e.bySub = make(map[string]*entry)
	help := command{name: "help", arity: 2, flags: loading | stale, since: "5.0.0", run: (*client).help,
		summary: "Show helpful text about the different subcommands"}
	for _, sub := range append(slices.Clip(row.subs), help) {
		s := newEntry(sub, f, e)
		e.subs = append(e.subs, s)
		e.bySub[s.name] = s
	}
	return e
}

// all yields every command, each container before its subcommands.
func (t *table) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, e := range t.entries {
			if !yield(e) {
				return
			}
			for _, s := range e.subs {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// find returns the command that args call. If the call is invalid, find returns the entry and an
// error. For an unknown command the entry is nil.
func (t *table) find(args [][]byte) (*entry, error) {
	e := lookup(t.byName, args[0])
	if e == nil {
		if err := notServed(args[0]); err != nil {
			return nil, err
		}
		return nil, unknownCommand(args)
	}
	if e.bySub != nil && len(args) > 1 {
		sub := lookup(e.bySub, args[1])
		if sub == nil {
			return e, replyErrorf("ERR unknown subcommand '%s'. Try %s HELP.",
				shorten(args[1]), strings.ToUpper(e.name))
		}
		e = sub
	}
	if !e.accepts(len(args)) {
		return e, arityError(e)
	}
	return e, nil
}

func arityError(e *entry) error {
	return replyErrorf("ERR wrong number of arguments for '%s' command", e.full)
}

// tryHelp returns the error for a subcommand with too many arguments. Handlers use it if the arity
// of the subcommand has no upper limit.
func tryHelp(e *entry, args [][]byte) error {
	return replyErrorf("ERR unknown subcommand or wrong number of arguments for '%s'. Try %s HELP.",
		shorten(args[1]), strings.ToUpper(e.container.name))
}

// named returns the command with a full name, such as "get" or "client|kill". It returns nil
// if there is no such command.
func (t *table) named(name []byte) *entry {
	head, sub, nested := strings.Cut(string(name), "|")
	e := lookup(t.byName, []byte(head))
	if e != nil && nested {
		e = lookup(e.bySub, []byte(sub))
	}
	return e
}

// lookup finds a name in any case, without allocating.
func lookup(byName map[string]*entry, name []byte) *entry {
	var folded [maxName]byte
	if len(name) > len(folded) {
		return nil
	}
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		folded[i] = c
	}
	return byName[string(folded[:len(name)])]
}

// unknownCommand quotes the first arguments, as Redis does.
func unknownCommand(args [][]byte) error {
	var quoted strings.Builder
	for _, a := range args[1:] {
		room := 128 - quoted.Len()
		if room <= 0 {
			break
		}
		quoted.WriteByte('\'')
		quoted.Write(a[:min(len(a), room)])
		quoted.WriteString("' ")
	}
	return replyErrorf("ERR unknown command '%s', with args beginning with: %s", shorten(args[0]), quoted.String())
}

// usage returns the syntax of a command in one line, such as "SIMBA.QUEUE mutex [COUNT count]".
func usage(c *command) string { return strings.TrimSpace(strings.ToUpper(c.name) + " " + c.args) }

func (c *client) help([][]byte) error {
	container := c.call.entry.container
	lines := []string{strings.ToUpper(container.name) + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"}
	for _, s := range container.subs {
		lines = append(lines, usage(s.command), "    "+strings.TrimSuffix(s.summary, ".")+".")
	}
	c.writeLines(lines)
	return nil
}

// writeFlag writes 1 or 0.
func writeFlag(w *resp.Writer, yes bool) {
	if yes {
		w.Int(1)
	} else {
		w.Int(0)
	}
}

// writeStrings writes an array of bulk strings.
func writeStrings(w *resp.Writer, list []string) {
	w.Array(len(list))
	for _, s := range list {
		w.BulkString(s)
	}
}

func (c *client) writeLines(lines []string) {
	c.w.Array(len(lines))
	for _, l := range lines {
		c.w.Simple(l)
	}
}
