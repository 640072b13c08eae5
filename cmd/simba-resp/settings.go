package main

import (
	"fmt"
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

// redisNames are the names that Redis' CONFIG has for the same thing.
var redisNames = map[string]string{"log-level": "loglevel"}

// list returns every field but the secret ones.
func (s *settings) list() []commands.Setting {
	var all []commands.Setting
	for _, f := range fields {
		if f.secret {
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
