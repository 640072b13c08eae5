package commands

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

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

func constantSetting(name, value string) Setting {
	return Setting{Name: name, Get: func() string { return value }}
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
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

// settings are the parameters of CONFIG GET and CONFIG SET. The list does not change after New.
type settings struct {
	list []Setting
	log  *slog.Logger
	mu   sync.Mutex // held during CONFIG SET, which sets all its parameters or none
}

// add appends those settings whose name the list lacks.
func (s *settings) add(more ...Setting) {
	for _, m := range more {
		if s.find(m.Name) == nil {
			s.list = append(s.list, m)
		}
	}
}

// find returns the setting with that name, in any case. It returns nil if there is none.
func (s *settings) find(name string) *Setting {
	name = strings.ToLower(name)
	for i := range s.list {
		if s.list[i].Name == name {
			return &s.list[i]
		}
	}
	return nil
}

type assignment struct {
	setting  *Setting
	name     []byte // as the client wrote it
	value    string
	previous string // value before this CONFIG SET, for undo
}

func (s *settings) parse(args [][]byte) ([]assignment, error) {
	if len(args)%2 != 0 {
		return nil, errSyntax
	}
	var assignments []assignment
	for i := 2; i < len(args); i += 2 {
		a := assignment{name: args[i], value: string(args[i+1])}
		a.setting = s.find(string(a.name))
		switch {
		case a.setting == nil:
			return nil, replyErrorf("ERR Unknown option or number of arguments for CONFIG SET - '%s'", shorten(a.name))
		case a.setting.immutable():
			return nil, configSetError(a.name, "can't set immutable config")
		}
		if slices.ContainsFunc(assignments, func(before assignment) bool { return before.setting == a.setting }) {
			return nil, configSetError(a.name, "duplicate parameter")
		}
		assignments = append(assignments, a)
	}
	return assignments, nil
}

func configSetError(name []byte, problem string) error {
	return replyErrorf("ERR CONFIG SET failed (possibly related to argument '%s') - %s", shorten(name), problem)
}

// assign applies all assignments. If one fails, it undoes the earlier ones.
func (s *settings) assign(assignments []assignment) error {
	s.mu.Lock()
	defer s.mu.Unlock()
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
				s.log.Error("cannot restore a setting after a failed CONFIG SET", "setting", done[0].setting.Name, "err", undo)
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
