package client

import "testing"

// reply is an error that a server answers.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

func TestAServerThatIsFullIsAskedAgain(t *testing.T) {
	for text, want := range map[string]bool{
		"ERR max number of clients reached": false,
		"ERR max number of blocked clients reached, three quarters of maxclients: ask again later, or without WAIT": false,
		"TRYAGAIN engine redis unavailable: EOF":  false,
		"ERR syntax error":                        true,
		"NOPERM User a has no permissions to run": true,
	} {
		if got := refused(reply(text)); got != want {
			t.Errorf("%s is for good: %v", text, got)
		}
	}
}
