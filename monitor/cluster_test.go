package monitor

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/simba-resp/simba-resp/engine"
)

func TestMembersOfAClusterAreReadyWhileThereIsALeader(t *testing.T) {
	var state atomic.Pointer[Cluster]
	src := sources(t)
	src.Cluster = func() Cluster { return *state.Load() }
	src.Backend.(*engine.Engine).Stop()
	s := New(Config{Logger: quiet})
	must(t, s.Open(src))
	url := "http://" + serve(t, s)
	for _, test := range []struct {
		state         Cluster
		ready, leader int
		up, leads     string
	}{
		{Cluster{Term: 3}, 503, 404, "0", "0"},
		{Cluster{Term: 3, HasLeader: true}, 200, 404, "1", "0"},
		{Cluster{Term: 3, HasLeader: true, Serves: true}, 503, 503, "0", "1"}, // its store does not answer
	} {
		state.Store(&test.state)
		if got, body := get(t, url+"/readyz"); got != test.ready {
			t.Errorf("%+v: /readyz replies %d %s, want %d", test.state, got, body, test.ready)
		}
		if got, body := get(t, url+"/leader"); got != test.leader {
			t.Errorf("%+v: /leader replies %d %s, want %d", test.state, got, body, test.leader)
		}
		_, text := get(t, url+"/metrics")
		for _, want := range []string{"simba_cluster_leader " + test.leads, "simba_cluster_term 3", `simba_store_up{engine="embedded"} ` + test.up} {
			if !strings.Contains(text, "\n"+want+"\n") {
				t.Errorf("%+v: /metrics has no line %q", test.state, want)
			}
		}
	}
}
