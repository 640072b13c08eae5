package main

import (
	"cmp"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/simba-resp/simba-resp/commands"
)

// settings is the configuration as CONFIG GET shows it and CONFIG SET changes it.
type settings struct {
	mu sync.Mutex
	c  config // current values, protected by mu

	// live applies a change, for each setting that can change at run time.
	live map[string]func(*config) error
	// tls applies changes of TLS settings, all together.
	tls func(*config) error
}

func newSettings(a *app) *settings {
	return &settings{c: *a.cfg, tls: a.reloadTLS, live: map[string]func(*config) error{
		"handoff-window": func(c *config) error { a.engine.SetHandoffWindow(c.HandoffWindow); return nil },
		"queue-grace":    func(c *config) error { a.engine.SetQueueGrace(c.QueueGrace); return nil },
		"timeout":        func(c *config) error { a.server.SetIdleTimeout(c.Timeout); return nil },
		"maxmemory":      func(c *config) error { a.handler.SetMaxMemory(c.MaxMemory); return nil },
		"log-level":      func(c *config) error { a.log.level.Set(c.level()); return nil },
		"maxclients": func(c *config) error {
			if most := c.clientLimit(); c.MaxClients > most {
				return fmt.Errorf("the limit of open files allows %d clients", most)
			}
			a.server.SetMaxClients(c.MaxClients)
			return nil
		},
	}}
}

// aliases returns parameters that tools for Redis read from every server. Here they have other
// names or are parts of another setting. None can change at run time.
func aliases(a *app) []commands.Setting {
	constant := func(name, value string) commands.Setting {
		return commands.Setting{Name: name, Get: func() string { return value }}
	}
	// Validate has checked the address. The listeners know the port that replaced port 0.
	host, _, _ := net.SplitHostPort(cmp.Or(a.cfg.Addr, a.cfg.TLSAddr))
	dir := ""
	if a.hasDisk() {
		dir = a.cfg.DataDir
		// Absolute as in Redis, unless there is no working directory.
		if abs, err := filepath.Abs(dir); err == nil {
			dir = abs
		}
	}
	return []commands.Setting{
		constant("bind", host),
		constant("port", strconv.Itoa(portOf(a.ln))),
		constant("tls-port", strconv.Itoa(portOf(a.tlsLn))),
		constant("dir", dir),
	}
}

// redisNames maps names of flags to Redis' names of the same settings, which CONFIG uses.
var redisNames = map[string]string{"log-level": "loglevel"}

// list returns all settings but secret ones and those of other engines.
func (s *settings) list() []commands.Setting {
	var all []commands.Setting
	for _, f := range s.c.fields() {
		if f.secret || f.engine != "" && f.engine != s.c.Engine {
			continue
		}
		setting := commands.Setting{Name: f.name, Get: func() string { return s.get(f) }}
		if name, ok := redisNames[f.name]; ok {
			setting.Name = name
		}
		if apply, ok := s.live[f.name]; ok {
			setting.Set = func(text string) error { return s.set(map[string]string{f.name: text}, apply) }
		}
		if slices.Contains(tlsLive, f.name) {
			setting.Together = "tls"
			setting.SetAll = func(texts map[string]string) error { return s.set(texts, s.tls) }
		}
		all = append(all, setting)
	}
	return all
}

func (s *settings) get(f field) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.value.String()
}

// reload reads the TLS files again.
func (s *settings) reload() error { return s.set(nil, s.tls) }

// set changes settings, by name, if the configuration stays valid.
func (s *settings) set(texts map[string]string, apply func(*config) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.c
	for name, text := range texts {
		f := next.field(name)
		if _, ok := f.value.(choice); ok { // upper or lower case, as in Redis
			text = strings.ToLower(text)
		}
		if err := f.value.Set(text); err != nil {
			return err
		}
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
