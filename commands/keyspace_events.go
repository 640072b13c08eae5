package commands

import (
	"strings"
	"sync/atomic"

	"github.com/simba-resp/simba-resp"
)

// keyEvents is the value of notify-keyspace-events: bit i stands for keyEventLetters[i].
type keyEvents struct{ letters atomic.Uint32 }

// keyEventLetters are the letters of Redis, in the order in which Redis shows them.
const keyEventLetters = "g$lshzxetdnKEm"

var (
	allKeyEvents = letterSet("g$lshzxetd") // the letters for which A stands
	hiddenByA    = letterSet("n")          // Redis does not show n beside A
)

// keyEventKinds maps letters to what an engine publishes. The events of the other letters cannot
// happen to lock keys.
var keyEventKinds = map[rune]simba.KeyEvents{
	'K': simba.KeyEventsByKey, 'E': simba.KeyEventsByEvent,
	'g': simba.KeyEventGeneric, '$': simba.KeyEventString, 'x': simba.KeyEventExpired,
}

func letterSet(letters string) (set uint32) {
	for _, l := range letters {
		set |= 1 << strings.IndexRune(keyEventLetters, l)
	}
	return set
}

func parseKeyEvents(s string) (set uint32, err error) {
	for _, l := range []byte(s) {
		switch i := strings.IndexByte(keyEventLetters, l); {
		case l == 'A':
			set |= allKeyEvents
		case i >= 0:
			set |= 1 << i
		default:
			return 0, replyError("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")
		}
	}
	return set, nil
}

func formatKeyEvents(set uint32) string {
	var b strings.Builder
	if set&allKeyEvents == allKeyEvents {
		b.WriteByte('A')
		set &^= allKeyEvents | hiddenByA
	}
	for i := range len(keyEventLetters) {
		if set&(1<<i) != 0 {
			b.WriteByte(keyEventLetters[i])
		}
	}
	return b.String()
}

// kindsOf returns the events that an engine must publish for a set of letters.
func kindsOf(set uint32) (kinds simba.KeyEvents) {
	for i, l := range keyEventLetters {
		if set&(1<<i) != 0 {
			kinds |= keyEventKinds[l]
		}
	}
	return kinds
}

// keyEventsSetting is the setting notify-keyspace-events. An engine without a keyspace has no
// events.
func (x *Commands) keyEventsSetting() Setting {
	const name = "notify-keyspace-events"
	if x.keyspace == nil {
		return constantSetting(name, "")
	}
	return Setting{
		Name: name,
		Get:  func() string { return formatKeyEvents(x.keyEvents.letters.Load()) },
		Set: func(s string) error {
			set, err := parseKeyEvents(s)
			if err != nil {
				return err
			}
			x.keyEvents.letters.Store(set)
			x.keyspace.SetKeyEvents(kindsOf(set))
			return nil
		},
	}
}
