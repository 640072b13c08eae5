package client

import (
	"errors"
	"strings"
	"testing"
)

// serverError is an error reply of a server.
type serverError string

func (r serverError) Error() string { return string(r) }
func (serverError) RedisError()     {}

func TestMisconfiguredMatchesOnlyTheEngineError(t *testing.T) {
	for text, want := range map[string]bool{
		"ERR engine mysql misconfigured: table simba_mutex does not exist": true,
		"ERR engine zookeeper misconfigured: x":                            true,
		"ERR engine zookeeper is not misconfigured: x":                     false,
		"ERR the engine misconfigured: x":                                  false,
		"TRYAGAIN engine mysql unavailable: misconfigured: maybe":          false,
	} {
		if got := misconfigured(serverError(text)); got != want {
			t.Errorf("misconfigured(%q) is %v, want %v", text, got, want)
		}
		if misconfigured(errors.New(text)) {
			t.Errorf("misconfigured(%q) is true for an error that is not a reply", text)
		}
	}
}

func TestAServerWithoutTheCommandsIsNamed(t *testing.T) {
	err := requestError(serverError("ERR unknown command 'simba.acquire', with args beginning with: 'job'"))
	if !strings.HasPrefix(err.Error(), "not a simba-resp server? ERR unknown command") || !refused(err) {
		t.Errorf("the error is %v; want the question whether it is a simba-resp server, and a refusal", err)
	}
}
