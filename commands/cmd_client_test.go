package commands

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func fields(line string) map[string]string {
	m := make(map[string]string)
	for _, f := range strings.Fields(line) {
		k, v, _ := strings.Cut(f, "=")
		m[k] = v
	}
	return m
}

func lines(reply string) []string {
	_, text, _ := strings.Cut(reply, "\r\n")
	return strings.Split(strings.TrimSpace(text), "\n")
}

func TestClientListShowsTheStateOfConnections(t *testing.T) {
	withTicket(t, func(t *testing.T, s *site, _ *oneTicket) {
		me, blocked, sub, multi, mon, fresh := s.dial(), s.dial(), s.dial(), s.dial(), s.dial(), s.dial()
		_ = fresh
		blocked.send("SIMBA.ACQUIRE m c 1 WAIT 0")
		sub.send("HELLO 3", "SUBSCRIBE a b", "PSUBSCRIBE *", "SSUBSCRIBE s")
		for range 5 {
			sub.reply()
		}
		multi.send("MULTI", "PING", "PING")
		for range 3 {
			multi.reply()
		}
		mon.do("MONITOR")
		me.do("CLIENT SETNAME me")
		me.do("CLIENT SETINFO lib-name simba-go")
		me.do("CLIENT SETINFO LIB-VER 1.2")
		time.Sleep(5 * time.Second)

		byID := make(map[string]map[string]string)
		for _, l := range lines(me.do("CLIENT LIST")) {
			f := fields(l)
			byID[f["id"]] = f
		}
		for _, tt := range []struct{ id, field, want string }{
			{"1", "name", "me"}, {"1", "flags", "N"}, {"1", "cmd", "client|list"}, {"1", "age", "5"}, {"1", "idle", "0"},
			{"1", "lib-name", "simba-go"}, {"1", "lib-ver", "1.2"}, {"1", "user", "default"}, {"1", "resp", "2"},
			{"2", "flags", "b"}, {"2", "cmd", "simba.acquire"}, {"2", "idle", "5"},
			{"3", "flags", "P"}, {"3", "sub", "2"}, {"3", "psub", "1"}, {"3", "ssub", "1"}, {"3", "resp", "3"},
			{"4", "flags", "x"}, {"4", "multi", "2"}, {"1", "multi", "-1"},
			{"5", "flags", "O"}, {"5", "cmd", "monitor"},
			{"6", "flags", "N"}, {"6", "cmd", "NULL"},
		} {
			if got := byID[tt.id][tt.field]; got != tt.want {
				t.Errorf("connection %s: %s=%s, want %s", tt.id, tt.field, got, tt.want)
			}
		}
		if got := lines(me.do("CLIENT INFO")); len(got) != 1 || fields(got[0])["id"] != "1" {
			t.Errorf("CLIENT INFO shows %q, want connection 1", got)
		}
	})
}

func TestClientSetInfoChecksItsValues(t *testing.T) {
	p := newSite(t, Config{}).dial()
	p.expect("CLIENT SETINFO nonsense x", failed("ERR Unrecognized option 'nonsense'"))
	p.expect(`CLIENT SETINFO LIB-NAME "a b"`, failed("ERR LIB-NAME cannot contain spaces, newlines or special characters."))
	p.expect(`CLIENT SETINFO lib-ver "1\n2"`, failed("ERR lib-ver cannot contain spaces, newlines or special characters."))
}

func TestClientTrackingIsRefused(t *testing.T) {
	p := newSite(t, Config{}).dial()
	if got := p.do("CLIENT TRACKING ON OPTIN"); !strings.HasPrefix(got, "-ERR client side caching is not supported") {
		t.Errorf("CLIENT TRACKING ON replied %q, want an error", got)
	}
	p.expect("CLIENT MAINT_NOTIFICATIONS ON", failed("ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP."))
}

func TestClientKill(t *testing.T) {
	for _, tt := range []struct {
		command, reply string
		killed         []int // indexes of the killed peers; 0 is the caller
	}{
		{"CLIENT KILL ID 2", ":1\r\n", []int{1}},
		{"CLIENT KILL TYPE pubsub", failed("ERR CLIENT KILL serves only the filters ADDR, ID, SKIPME and USER: this is a lock server"), nil},
		{"CLIENT KILL USER default", ":3\r\n", []int{1, 2, 3}},
		{"CLIENT KILL USER default SKIPME no", ":4\r\n", []int{0, 1, 2, 3}},
		{"CLIENT KILL ID 1", ":0\r\n", nil},
		{"CLIENT KILL ID 1 SKIPME NO", ":1\r\n", []int{0}},
		{"CLIENT KILL ID 2 USER default", ":1\r\n", []int{1}},
		{"CLIENT KILL ADDR pipe", ":3\r\n", []int{1, 2, 3}},
		{"CLIENT KILL pipe", ok, []int{0, 1, 2, 3}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, Config{})
			me := s.dial()
			me.do("PING")
			first := s.dial()
			peers := []*peer{me, first, s.dial(), s.dial()}
			peers[2].do("SUBSCRIBE a")
			me.expect(tt.command, tt.reply)
			synctest.Wait()
			alive := make(map[uint64]bool)
			for _, c := range s.server.Conns() {
				alive[c.ID()] = true
			}
			for _, i := range tt.killed {
				if alive[uint64(i+1)] {
					t.Errorf("after %s connection %d is still open", tt.command, i+1)
				}
			}
			if got := 4 - len(alive); got != len(tt.killed) {
				t.Errorf("%s killed %d connections, want %d", tt.command, got, len(tt.killed))
			}
		})
	}
}
