package commands

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/simba-resp/simba-resp/resp"
)

var configCommands = []command{
	{
		name: "config", arity: -2, group: "server", since: "2.0.0",
		summary: "A container for server configuration commands",
		subs:    configSubcommands,
	},
}

var configSubcommands = []command{
	{
		name: "get", arity: -3, flags: adminControl, since: "2.0.0", run: (*client).configGet,
		summary: "Get the values of configuration parameters",
		args:    "parameter [parameter ...]",
	},
	{
		name: "rewrite", arity: 2, flags: adminControl, since: "2.8.0", run: (*client).configRewrite,
		summary: "Refused: the server does not write its configuration file",
	},
	{
		name: "set", arity: -4, flags: adminControl | secret, since: "2.0.0", run: (*client).configSet,
		summary: "Set configuration parameters to the given values, all or none",
		tips:    []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
		args:    "parameter value [parameter value ...]",
	},
}

// Setting is a parameter of CONFIG GET and CONFIG SET. Its functions must be safe for concurrent
// use.
type Setting struct {
	Name string // lower case
	// Get returns the value in a form that Set takes.
	Get func() string
	// Set validates and applies a value. Its error says what is wrong with the value. If Set and
	// SetAll are nil, the setting cannot be changed while the server runs.
	Set func(string) error
	// Together names a group of settings that are valid only together, such as a certificate and
	// its key; "" = none. CONFIG SET calls the SetAll of any one setting of the group, with all new
	// values by name. SetAll applies all or none.
	Together string
	SetAll   func(map[string]string) error
}

func (s *Setting) immutable() bool { return s.Set == nil && s.SetAll == nil }

// mergeSettings returns others, the settings of this package, and constants that Redis tools
// expect. If others has a setting, mergeSettings omits its own setting of the same name.
func (x *Commands) mergeSettings(others []Setting) []Setting {
	appendonly := "yes"
	if x.info.Durability == "memory" {
		appendonly = "no"
	}
	own := []Setting{
		integerSetting("slowlog-log-slower-than", &x.slowlog.threshold, -1, math.MaxInt64),
		integerSetting("slowlog-max-len", &x.slowlog.limit, 0, maxSlowlogLimit),
		integerSetting("busy-reply-threshold", &x.scripting.busyAfter, 0, math.MaxInt64),
		integerSetting("lua-time-limit", &x.scripting.busyAfter, 0, math.MaxInt64), // the old name
		constantSetting("notify-keyspace-events", ""),
		flushSetting(),
		constantSetting("databases", "1"),
		constantSetting("save", ""),
		constantSetting("appendonly", appendonly),
		{Name: "maxmemory", Get: func() string { return strconv.FormatUint(x.memory.bytes.Load(), 10) }},
		constantSetting("maxmemory-policy", "noeviction"),
	}
	merged := others[:len(others):len(others)]
	for _, s := range own {
		if findSetting(others, s.Name) == nil {
			merged = append(merged, s)
		}
	}
	return merged
}

func constantSetting(name, value string) Setting {
	return Setting{Name: name, Get: func() string { return value }}
}

func integerSetting(name string, v *atomic.Int64, lo, hi int64) Setting {
	return Setting{
		Name: name,
		Get:  func() string { return decimal(v.Load()) },
		Set: func(s string) error {
			n, ok := parseInt([]byte(s))
			switch {
			case !ok:
				return replyError("argument couldn't be parsed into an integer")
			case n < lo || n > hi:
				return replyErrorf("argument must be between %d and %d inclusive", lo, hi)
			}
			v.Store(n)
			return nil
		},
	}
}

// findSetting returns the setting with that name, or nil. name is in lower case.
func findSetting(settings []Setting, name string) *Setting {
	for i := range settings {
		if settings[i].Name == name {
			return &settings[i]
		}
	}
	return nil
}

func (c *client) configGet(args [][]byte) error {
	var globs []string
	for _, a := range args[2:] {
		glob, err := parseGlob("parameter", a)
		if err != nil {
			return err
		}
		globs = append(globs, strings.ToLower(glob))
	}
	var found []*Setting
	for i := range c.x.settings {
		s := &c.x.settings[i]
		if matchesAny(globs, s.Name) {
			found = append(found, s)
		}
	}
	c.w.Map(len(found))
	for _, s := range found {
		c.w.BulkString(s.Name)
		c.w.BulkString(s.Get())
	}
	return nil
}

func matchesAny(globs []string, name string) bool {
	for _, g := range globs {
		if resp.Match(g, name) {
			return true
		}
	}
	return false
}

type assignment struct {
	setting  *Setting
	name     []byte // as the client wrote it
	value    string
	previous string // value before this CONFIG SET, for undo
}

func (x *Commands) parseConfigSet(args [][]byte) ([]assignment, error) {
	if len(args)%2 != 0 {
		return nil, errSyntax
	}
	var assignments []assignment
	for i := 2; i < len(args); i += 2 {
		a := assignment{name: args[i], value: string(args[i+1])}
		a.setting = findSetting(x.settings, strings.ToLower(string(a.name)))
		switch {
		case a.setting == nil:
			return nil, replyErrorf("ERR Unknown option or number of arguments for CONFIG SET - '%s'", shorten(a.name))
		case a.setting.immutable():
			return nil, configSetError(a.name, "can't set immutable config")
		}
		for _, before := range assignments {
			if before.setting == a.setting {
				return nil, configSetError(a.name, "duplicate parameter")
			}
		}
		assignments = append(assignments, a)
	}
	return assignments, nil
}

func configSetError(name []byte, problem string) error {
	return replyErrorf("ERR CONFIG SET failed (possibly related to argument '%s') - %s", shorten(name), problem)
}

func (c *client) configSet(args [][]byte) error {
	assignments, err := c.x.parseConfigSet(args)
	if err == nil {
		err = c.x.assign(assignments)
	}
	if err != nil {
		return err
	}
	c.w.Simple("OK")
	return nil
}

// assign applies all assignments. If one fails, it undoes the earlier ones.
func (x *Commands) assign(assignments []assignment) error {
	x.settingMu.Lock()
	defer x.settingMu.Unlock()
	steps := stepsOf(assignments)
	for i, step := range steps {
		for _, a := range step {
			a.previous = a.setting.Get()
		}
		err := step.set(func(a *assignment) string { return a.value })
		if err == nil {
			continue
		}
		for _, done := range slices.Backward(steps[:i]) {
			if undo := done.set(func(a *assignment) string { return a.previous }); undo != nil {
				x.log.Error("cannot restore a setting after a failed CONFIG SET", "setting", done[0].setting.Name, "err", undo)
			}
		}
		return configSetError(step[0].name, err.Error())
	}
	return nil
}

// step has the assignments that one call of Set or SetAll applies: those of a group, or a single
// one.
type step []*assignment

// stepsOf makes a step for each group, and for each assignment without a group.
func stepsOf(assignments []assignment) []step {
	var steps []step
	at := make(map[string]int)
	for i := range assignments {
		a := &assignments[i]
		group := a.setting.Together
		if known, ok := at[group]; ok && group != "" {
			steps[known] = append(steps[known], a)
			continue
		}
		at[group] = len(steps)
		steps = append(steps, step{a})
	}
	return steps
}

// set applies value(a) for each assignment a of the step.
func (s step) set(value func(*assignment) string) error {
	if s[0].setting.SetAll == nil {
		return s[0].setting.Set(value(s[0]))
	}
	values := make(map[string]string, len(s))
	for _, a := range s {
		values[a.setting.Name] = value(a)
	}
	return s[0].setting.SetAll(values)
}

func (c *client) configRewrite([][]byte) error {
	return replyError("ERR CONFIG REWRITE is not supported: the server does not write its configuration file")
}
