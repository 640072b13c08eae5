package commands

import (
	"errors"
	"sync/atomic"
	"testing"
)

func TestConfigSetIsAllOrNothing(t *testing.T) {
	var level, secret atomic.Value
	level.Store("info")
	secret.Store("old")
	s := newSite(t, Config{Settings: []Setting{
		{Name: "loglevel", Get: func() string { return level.Load().(string) }, Set: func(v string) error {
			if v == "loud" {
				return errors.New("no such level")
			}
			level.Store(v)
			return nil
		}},
		{Name: "requirepass", Get: func() string { return secret.Load().(string) }, Set: func(v string) error {
			secret.Store(v)
			return nil
		}},
		{Name: "addr", Get: func() string { return "here" }},
		{Name: "maxmemory", Get: func() string { return "17" }},
	}})
	p := s.dial()
	p.expect("CONFIG SET requirepass new LogLevel loud", failed("ERR CONFIG SET failed (possibly related to argument 'LogLevel') - no such level"))
	if got := secret.Load(); got != "old" {
		t.Errorf("requirepass is %q after a CONFIG SET that failed, want old", got)
	}
	p.expect("CONFIG SET requirepass new addr there", failed("ERR CONFIG SET failed (possibly related to argument 'addr') - can't set immutable config"))
	p.expect("CONFIG SET requirepass new nonsense there", failed("ERR Unknown option or number of arguments for CONFIG SET - 'nonsense'"))
	if got := secret.Load(); got != "old" {
		t.Errorf("requirepass is %q after a refused CONFIG SET, want old", got)
	}
	p.expect("CONFIG SET requirepass new loglevel debug", ok)
	if level.Load() != "debug" || secret.Load() != "new" {
		t.Errorf("after CONFIG SET loglevel is %v and requirepass is %v, want debug and new", level.Load(), secret.Load())
	}
	p.expect("CONFIG GET log*", bulks("loglevel", "debug"))
	p.expect("CONFIG GET maxmemory", bulks("maxmemory", "17"))
	p.expect("CONFIG REWRITE", failed("ERR CONFIG REWRITE is not supported: the server does not write its configuration file"))
}

func TestSlowlogSettingsAreChecked(t *testing.T) {
	p := newSite(t, Config{}).dial()
	p.expect("CONFIG SET slowlog-max-len 10001", failed("ERR CONFIG SET failed (possibly related to argument 'slowlog-max-len') - argument must be between 0 and 10000 inclusive"))
	p.expect("CONFIG SET slowlog-log-slower-than -2", failed("ERR CONFIG SET failed (possibly related to argument 'slowlog-log-slower-than') - argument must be between -1 and 9223372036854775807 inclusive"))
}
