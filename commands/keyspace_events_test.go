package commands

import (
	"testing"

	"github.com/simba-resp/simba-resp"
)

func TestNotifyKeyspaceEventsIsFormattedAsInRedis(t *testing.T) {
	redis := realRedis(t)
	ours, theirs := newLockSite(t).dial(), redis(t)
	for _, letters := range []string{"KEA", "EK", "EA", "AKE", "Kg", "g$lshzxetdmnKE", "g$lshzxetdKE", "lshzetdmn", "xE", "E$x", "KEAmn", "KEn", "A", "q", "KEé", ""} {
		for _, command := range []string{`CONFIG SET notify-keyspace-events "` + letters + `"`, "CONFIG GET notify-keyspace-events"} {
			want, got := theirs.do(command), ours.do(command)
			if got != want {
				t.Errorf("%s:\n  ours %q\ntheirs %q", command, got, want)
			}
		}
	}
}

func TestLettersSelectKeyEvents(t *testing.T) {
	for letters, want := range map[string]simba.KeyEvents{
		"":      0,
		"Kg":    simba.KeyEventsByKey | simba.KeyEventGeneric,
		"E$x":   simba.KeyEventsByEvent | simba.KeyEventString | simba.KeyEventExpired,
		"KElsh": simba.KeyEventsByKey | simba.KeyEventsByEvent,
		"KEA":   simba.KeyEventsByKey | simba.KeyEventsByEvent | simba.KeyEventGeneric | simba.KeyEventString | simba.KeyEventExpired,
	} {
		set, err := parseKeyEvents(letters)
		if got := kindsOf(set); err != nil || got != want {
			t.Errorf("the letters %q select %b, %v; want %b", letters, got, err, want)
		}
	}
}
