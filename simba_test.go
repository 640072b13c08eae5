package simba

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNamesOfMutexesAndContenders(t *testing.T) {
	for _, c := range []struct {
		name             string
		mutex, contender bool
	}{
		{"job", true, true},
		{"orders:eu/1.2_3-4#5", true, true},
		{"größe-日本", true, true},
		{"a@b", true, true},
		{"counter:1234@host", true, true},
		{"a@@b", true, false},
		{"@@", true, false},
		{"", false, false},
		{" ", false, false},
		{"a b", false, false},
		{"a\tb", false, false},
		{"a\x00b", false, false},
		{"a\x7f", false, false},
		{"{a}", false, false},
		{"é{", false, false},
		{"a\u00a0b", false, false}, // no-break space
		{"a\u200bb", false, false}, // zero width
		{"a\xff", false, false},
		{strings.Repeat("x", MaxContenderLen), true, true},
		{strings.Repeat("x", MaxContenderLen+1), true, false},
		{strings.Repeat("x", MaxMutexLen), true, false},
		{strings.Repeat("x", MaxMutexLen+1), false, false},
	} {
		for _, check := range []struct {
			argument string
			err      error
			want     bool
		}{{"mutex", CheckMutex(c.name), c.mutex}, {"contender", CheckContender(c.name), c.contender}} {
			if (check.err == nil) != check.want {
				t.Errorf("check of %q as %s: %v; want valid: %v", c.name, check.argument, check.err, check.want)
			}
			var bad *NameError
			if check.err != nil && (!errors.As(check.err, &bad) || bad.Argument != check.argument) {
				t.Errorf("check of %q: %v; want a *NameError with Argument %q", c.name, check.err, check.argument)
			}
		}
	}
}

func TestContenderChannelIsParsedBack(t *testing.T) {
	for _, c := range [][2]string{{"job", "a"}, {"a:b", "c:d"}, {"m", "simba:x"}} {
		m, who, ok := ParseContenderChannel(ContenderChannel(c[0], c[1]))
		if !ok || m != c[0] || who != c[1] {
			t.Errorf("ParseContenderChannel of the channel of %q: %q, %q, %v; want the same names", c, m, who, ok)
		}
	}
	for _, channel := range []string{"", "simba:{m}", "simba:{m}:", "simba:{}:c", "simba-events:{m}:c", "other"} {
		if m, who, ok := ParseContenderChannel(channel); ok {
			t.Errorf("ParseContenderChannel(%q) returned %q, %q; want no contender's channel", channel, m, who)
		}
	}
}

// FuzzEventJSON compares the encoder with the standard library's.
func FuzzEventJSON(f *testing.F) {
	f.Add("job", "a", "")
	f.Add("a\"b\\c", "größe", "stuck\n\x01<&>\u2028")
	f.Add("\xff\xfe", "\xed\xa0\x80", "\x7f")
	f.Fuzz(func(t *testing.T, mutex, owner, reason string) {
		e := Event{Seq: 1<<64 - 1, At: 1790000000000, Kind: EventBroken, Mutex: mutex, Owner: owner, Token: 7, Reason: reason}
		var got struct {
			Seq                         uint64
			At                          int64
			Event, Mutex, Owner, Reason string
			Token                       uint64
		}
		line := e.AppendJSON(nil)
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("AppendJSON wrote invalid JSON %s: %v", line, err)
		}
		clean := func(s string) string {
			if utf8.ValidString(s) {
				return s
			}
			return strings.ToValidUTF8(string([]rune(s)), "\ufffd")
		}
		if got.Seq != uint64(e.Seq) || got.At != e.At || got.Event != "broken" || got.Token != 7 ||
			got.Mutex != clean(mutex) || got.Owner != clean(owner) || got.Reason != clean(reason) {
			t.Errorf("AppendJSON wrote %s, which is decoded as %+v; want the event", line, got)
		}
	})
}

func TestNoTwoMutexesHaveAKeyInCommon(t *testing.T) {
	names := []string{"m", "a b", "{", "}", "{}", "a}b", "a}:b", "a}:contender", "simba:{m}", "simba:{m}:token", "simba:{m}:tenure", "simba:{}", "simba:{", "\x00\xff", strings.Repeat("x", 70_000)}
	owner := map[string]Key{}
	for _, m := range names {
		for _, key := range []string{KeyOf(m), TaggedKeyOf(m)} {
			if got := ParseKey(key); got != (Key{Mutex: m}) {
				t.Errorf("ParseKey(%.40q), a key of the mutex %.40q, is %.40v", key, m, got)
			}
		}
		for part := range KeyPart(len(keySuffixes)) {
			k := Key{m, part}
			if got := ParseKey(k.String()); got != k {
				t.Errorf("ParseKey(%.40q) is %.40v, want %.40v", k.String(), got, k)
			}
			if other, taken := owner[k.String()]; taken {
				t.Errorf("%.40v and %.40v have the same key %.40q", k, other, k.String())
			}
			owner[k.String()] = k
		}
	}
	for _, key := range []string{"", "simba:{}", "simba:{}:token", "simba:{m}x", "simba:{m}:waiting", "simba-events:{m}"} {
		if got := ParseKey(key); got != (Key{Mutex: key}) {
			t.Errorf("ParseKey(%q) is %v, want the lock key of the mutex with that name", key, got)
		}
	}
}

func TestTheChannelsOfAnyMutexAreCutBack(t *testing.T) {
	for _, m := range []string{"m", "a b", "{", "a}b", "a}:b", "{}", strings.Repeat("x", 300)} {
		if got, ok := CutMutexChannel(MutexChannel(m)); got != m || !ok {
			t.Errorf("CutMutexChannel(%q) is %q, %v; want %q", MutexChannel(m), got, ok, m)
		}
		if got, ok := CutEventChannel(EventChannel(m)); got != m || !ok {
			t.Errorf("CutEventChannel(%q) is %q, %v; want %q", EventChannel(m), got, ok, m)
		}
		if got, who, ok := CutContenderChannel(ContenderChannel(m, "0:1@host")); got != m || who != "0:1@host" || !ok {
			t.Errorf("CutContenderChannel(%q) is %q, %q, %v; want %q, 0:1@host", ContenderChannel(m, "0:1@host"), got, who, ok, m)
		}
	}
}

func TestGlobsThatMayMatchChannels(t *testing.T) {
	type may struct{ mutexes, events bool }
	for glob, want := range map[string]may{
		"*": {true, true}, "simba*": {true, true}, "s?mba:*": {true, true}, `\simba*`: {true, true},
		"simba:*": {true, false}, "simba:{orders*": {true, false}, "simba:{m}:*": {true, false},
		"simba-events:{m}": {false, true}, "news:*": {}, "simbax*": {}, "other": {},
	} {
		if mutexes, events := MayMatchChannels(glob); (may{mutexes, events}) != want {
			t.Errorf("MayMatchChannels(%q) is %v, %v; want %+v", glob, mutexes, events, want)
		}
	}
}
