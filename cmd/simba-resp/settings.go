package main

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"

	"github.com/simba-resp/simba-resp/commands"
)

// settings is the configuration as CONFIG GET shows it and CONFIG SET changes it.
type settings struct {
	mu sync.Mutex
	c  config // guarded by mu; the one that the server started with stays as it is

	// live says how a change takes effect, for those that can change at run time.
	live map[string]func(*config) error
}

func newSettings(a *app) *settings {
	return &settings{c: *a.cfg, live: map[string]func(*config) error{
		"handoff-window": func(c *config) error { a.engine.SetHandoffWindow(c.HandoffWindow); return nil },
		"queue-grace":    func(c *config) error { a.engine.SetQueueGrace(c.QueueGrace); return nil },
		"timeout":        func(c *config) error { a.server.SetIdleTimeout(c.Timeout); return nil },
		"log-level":      func(c *config) error { a.level.Set(c.level()); return nil },
		"maxclients": func(c *config) error {
			if most := clientLimit(); c.MaxClients > most {
				return fmt.Errorf("the limit of open files allows %d clients", most)
			}
			a.server.SetMaxClients(c.MaxClients)
			return nil
		},
	}}
}

// aliases are parameters of Redis that tools ask every server for; ours have other
// names, or are parts of another. None can change while the server runs.
func aliases(a *app) []commands.Setting {
	constant := func(name, value string) commands.Setting {
		return commands.Setting{Name: name, Get: func() string { return value }}
	}
	// Addr was valid, so the parts are there; the listener knows which port 0 became.
	host, _, _ := net.SplitHostPort(a.cfg.Addr)
	_, port, _ := net.SplitHostPort(a.ln.Addr().String())
	dir := ""
	if a.store != nil {
		dir = a.cfg.DataDir
		if abs, err := filepath.Abs(dir); err == nil { // Redis' is absolute; without a working directory ours is not
			dir = abs
		}
	}
	return []commands.Setting{constant("bind", host), constant("port", port), constant("dir", dir)}
}

// redisNames are the names that Redis' CONFIG has for the same thing.
var redisNames = map[string]string{"log-level": "loglevel"}

// redisWords are the words that Redis' CONFIG SET has for a value of ours.
var redisWords = map[string]map[string]string{
	"log-level": {"verbose": "debug", "notice": "info", "warning": "warn"},
}

// list returns every field but the secret ones and those of other engines.
func (s *settings) list() []commands.Setting {
	var all []commands.Setting
	for _, f := range fields {
		if f.secret || f.engine != "" && f.engine != s.c.Engine {
			continue
		}
		setting := commands.Setting{Name: f.name, Get: func() string { return s.get(f) }}
		if name, ok := redisNames[f.name]; ok {
			setting.Name = name
		}
		if apply, ok := s.live[f.name]; ok {
			setting.Set = func(text string) error { return s.set(f, text, apply) }
		}
		all = append(all, setting)
	}
	return all
}

func (s *settings) get(f field) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.value(&s.c).String()
}

// set changes one field if the whole is still valid with it.
func (s *settings) set(f field, text string, apply func(*config) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.c
	if _, ok := f.value(&next).(choice); ok { // Redis takes words in any case
		text = strings.ToLower(text)
	}
	if word, ok := redisWords[f.name][text]; ok {
		text = word
	}
	if err := f.value(&next).Set(text); err != nil {
		return err
	}
	if wrong := next.Validate(); len(wrong) > 0 {
		return wrong
	}
	if err := apply(&next); err != nil {
		return err
	}
	s.c = next
	return nil
}
