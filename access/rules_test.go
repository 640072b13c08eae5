package access

import (
	"slices"
	"strings"
	"testing"
)

func TestNewUserHasNoRights(t *testing.T) {
	u := user(t, "a")
	if u.Enabled() || u.NeedsNoPassword() || u.Unlimited() || runs(u) != "" || u.MayUse("m", 0) || u.MayUseChannel("c") || u.MayUsePattern("*") {
		t.Errorf("a new user has rights: %s", u)
	}
	if u.Verify(nil) || u.Verify([]byte("x")) {
		t.Error("a new user can authenticate")
	}
}

func TestLaterCommandRulesOverrideEarlierOnes(t *testing.T) {
	for _, c := range []struct{ rules, runs, shown string }{
		{"+get", "get", "-@all +get"},
		{"+GET", "get", "-@all +get"},
		{"+get -get", "", "-@all -get"},
		{"-get +get", "get", "-@all +get"},
		{"+@all", "get set keys flushall config config|get config|set ping", "+@all"},
		{"allcommands -keys", "get set flushall config config|get config|set ping", "+@all -keys"},
		{"+@all -@dangerous", "get set config ping", "+@all -@dangerous"},
		{"+@read -@dangerous +keys", "get keys", "-@all +@read -@dangerous +keys"},
		{"+get +@all -@all", "", "-@all"},
		{"+get nocommands +set", "set", "-@all +set"},
		{"+config|get", "config|get", "-@all +config|get"},
		{"+config -config|set", "config config|get", "-@all +config -config|set"},
		{"+config|get +config", "config config|get config|set", "-@all +config"},
		{"+config -config", "", "-@all -config"},
		{"+@list", "", "-@all +@list"},
		{"+@admin", "config|get config|set", "-@all +@admin"},
		{"+@slow -@admin", "set keys flushall config", "-@all +@slow -@admin"},
		{"+get reset", "", "-@all"},
	} {
		u := user(t, "a", strings.Fields(c.rules)...)
		if runs(u) != c.runs || u.Commands() != c.shown {
			t.Errorf("%s: runs %q, want %q; shown as %q, want %q", c.rules, runs(u), c.runs, u.Commands(), c.shown)
		}
	}
}

func TestOneRuleMustAllowTheWholeUse(t *testing.T) {
	u := user(t, "a", "~rw*", "%R~r*", "%w~w*", "%WR~x", "%R~y", "%W~y")
	for _, c := range []struct {
		mutex string
		use   Use
		may   bool
	}{
		{"rw1", Read | Write, true}, {"r1", Read, true}, {"r1", Write, false}, {"r1", Read | Write, false}, {"r1", 0, true},
		{"w1", Write, true}, {"w1", Read, false}, {"w1", 0, true}, {"x", Read | Write, true}, {"other", 0, false},
		{"y", Read | Write, true}, // one pattern, given twice
	} {
		if u.MayUse(c.mutex, c.use) != c.may {
			t.Errorf("MayUse(%s, %b) is %v, want %v", c.mutex, c.use, !c.may, c.may)
		}
	}
	split := user(t, "a", "%R~*", "%W~z*")
	if split.MayUse("z", Read|Write) {
		t.Error("MayUse is true, although each of two rules allows only a part of the use")
	}
	if want := "~rw* %R~r* %W~w* ~x ~y"; u.Keys() != want {
		t.Errorf("Keys: %q, want %q", u.Keys(), want)
	}
	if all := user(t, "a", "~x", "allkeys"); !all.MayUse("y", Read|Write) || all.Keys() != "~*" {
		t.Errorf("Keys of a user with allkeys: %q; want ~*", all.Keys())
	}
	if none := user(t, "a", "allkeys", "resetkeys", "~x"); none.MayUse("y", 0) || !none.MayUse("x", Write) {
		t.Errorf("Keys of a user with resetkeys: %q; want only ~x", none.Keys())
	}
}

func TestChannelRulesMatchChannelsAndEqualGlobs(t *testing.T) {
	u := user(t, "a", "&news.*")
	if !u.MayUseChannel("news.a") || u.MayUseChannel("other") || !u.MayUsePattern("news.*") || u.MayUsePattern("news.a*") {
		t.Errorf("the channel rules of %s match the wrong channels or patterns", u)
	}
	if all := user(t, "a", "allchannels"); !all.MayUseChannel("x") || !all.MayUsePattern("*") || all.Channels() != "&*" {
		t.Errorf("allchannels does not allow all channels: %s", all)
	}
}

func TestUserActsAsItsOwnNamesByDefault(t *testing.T) {
	own := user(t, "billing")
	named := user(t, "billing", "as:worker-*", "as:me")
	any := user(t, "billing", "allcontenders")
	first := user(t, DefaultName)
	bound := user(t, DefaultName, "as:x")
	reset := user(t, "billing", "as:*", "resetcontenders")
	for _, c := range []struct {
		id                                     string
		own, named, any, first, bound, resetTo bool
	}{
		{"billing", true, false, true, true, false, true},
		{"billing:1", true, false, true, true, false, true},
		{"billing:", true, false, true, true, false, true},
		{"billing2", false, false, true, true, false, false},
		{"worker-1", false, true, true, true, false, false},
		{"me", false, true, true, true, false, false},
		{"x", false, false, true, true, true, false},
		{"", false, false, true, true, false, false},
	} {
		for i, u := range []*User{own, named, any, first, bound, reset} {
			if want := []bool{c.own, c.named, c.any, c.first, c.bound, c.resetTo}[i]; u.MayActAs(c.id) != want {
				t.Errorf("%s: MayActAs(%q) is %v, want %v", u, c.id, !want, want)
			}
		}
	}
	if own.NamesContenders() || !named.NamesContenders() || !any.NamesContenders() || reset.NamesContenders() {
		t.Error("NamesContenders is true for a user without rules as:, or false for a user with such rules")
	}
}

func TestPasswordsAreStoredAsHashes(t *testing.T) {
	const hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" // of test
	u := user(t, "a", "on", ">one", "#"+hash, ">one")
	if !u.Verify([]byte("one")) || !u.Verify([]byte("test")) || u.Verify([]byte("two")) || u.Verify([]byte(hash)) || u.Verify(nil) {
		t.Errorf("Verify accepts a wrong password or refuses a right one of %s", u)
	}
	if p := u.Passwords(); len(p) != 2 || p[1] != hash || strings.Contains(u.String(), "one") {
		t.Errorf("Passwords does not list the two hashes, or the user shows a password: %s", u)
	}
	if off := user(t, "a", ">one"); off.Verify([]byte("one")) {
		t.Error("a user that is off can authenticate")
	}
	if open := user(t, "a", "on", ">one", "nopass"); !open.Verify([]byte("x")) || len(open.Passwords()) != 0 {
		t.Error("a user with nopass cannot authenticate with any password")
	}
	if again := user(t, "a", "on", "nopass", ">one"); again.Verify([]byte("x")) || again.NeedsNoPassword() {
		t.Error("after nopass and then a password, the user still needs no password")
	}
	if gone := user(t, "a", "on", ">one", ">two", "<one", "!"+user(t, "b", ">two").Passwords()[0]); gone.Verify([]byte("one")) || gone.Verify([]byte("two")) {
		t.Error("a removed password is accepted")
	}
	if none := user(t, "a", "on", ">one", "resetpass"); none.Verify([]byte("one")) || none.NeedsNoPassword() {
		t.Error("resetpass keeps a password")
	}
}

func TestUnlimitedMeansAllRights(t *testing.T) {
	all := []string{"allkeys", "allchannels", "allcommands", "allcontenders"}
	if !user(t, "a", all...).Unlimited() || !user(t, DefaultName, all[:3]...).Unlimited() || user(t, "a", all[:3]...).Unlimited() {
		t.Error("Unlimited is true for a user without all rights, or false for a user with all rights")
	}
	for _, less := range []string{"-ping", "resetkeys", "resetchannels", "-@read"} {
		if user(t, "a", append(slices.Clone(all), less)...).Unlimited() {
			t.Errorf("a user with all rights is still Unlimited after %s", less)
		}
	}
	if user(t, DefaultName, append(slices.Clone(all), "resetcontenders", "as:x")...).Unlimited() {
		t.Error("a user with a rule as: is unlimited")
	}
}

func TestInvalidRulesHaveErrors(t *testing.T) {
	for rules, want := range map[string]error{
		"nonsense": errRule, "+": errUnknownCommand, "+nonsense": errUnknownCommand, "-nonsense": errUnknownCommand, "+@nonsense": errUnknownCommand,
		"+config|nonsense": errUnknownCommand, "+@all|x": errUnknownCommand, "+config|": errRule, "+get|x": errFirstArgument,
		"+config|get|x": errFirstArgument, "#12": errHash, "!12": errHash, "#" + strings.Repeat("A", 64): errHash,
		"<one": errNoSuchPassword, "%~x": errRule, "%R": errRule, "%X~x": errRule, "%RR~x": errRule,
		"(+get)": errSelector, "allkeys ~x": errKeysCovered, "&* &x": errChannelsCovered, "as:* as:x": errContenderCovered,
		"~" + strings.Repeat("x", maxGlob+1): errLongGlob,
	} {
		u, last := newUser(small(), "a"), error(nil)
		for _, r := range strings.Fields(rules) {
			last = u.apply(r)
		}
		if last != want {
			t.Errorf("apply of the last rule of %q: %v, want %v", rules, last, want)
		}
	}
}

// FuzzUserRoundTrip checks that parse reads a user's String as the same user, and never panics.
func FuzzUserRoundTrip(f *testing.F) {
	for _, seed := range []string{
		"on >pw ~billing:* %R~shared &ch as:w-* +@read -keys +config|get", "reset on nopass ~* &* +@all", "%RW~x allcontenders -config +config|set",
		"#9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 !x (+get) <x", "as:", "~ & + - % # >", "+@all -@all +GET|x",
	} {
		f.Add(seed)
	}
	c := small()
	f.Fuzz(func(t *testing.T, rules string) {
		users, wrong := parse(c, "f", []byte("user a "+rules))
		u := users["a"]
		if u == nil || len(users) != 1 || len(wrong) > 0 {
			return
		}
		again, wrong := parse(c, "f", []byte(u.String()))
		if len(wrong) > 0 || again["a"] == nil || again["a"].String() != u.String() || runs(again["a"]) != runs(u) || again["a"].Unlimited() != u.Unlimited() {
			t.Errorf("String of the user with %q is %q, which parse reads as %v, %v", rules, u, again["a"], wrong)
		}
	})
}
