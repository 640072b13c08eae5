package commands

import (
	"context"
	"errors"
	"testing"
)

// fakeCluster has one member. It notes the names of its calls.
type fakeCluster struct {
	calls []string
	err   error
}

func (f *fakeCluster) State() ([]any, [][]any) {
	return []any{"name", "a", "id", "1f", "leader", "a", "term", int64(3), "committed", int64(9)},
		[][]any{{"name", "a", "addr", "h:1", "state", "voter", "reached", int64(1), "lag", int64(0)}}
}

func (f *fakeCluster) Remove(_ context.Context, name string) error {
	f.calls = append(f.calls, "remove "+name)
	return f.err
}

func (f *fakeCluster) Transfer(_ context.Context, to string) error {
	f.calls = append(f.calls, "transfer "+to)
	return f.err
}

func TestSimbaCluster(t *testing.T) {
	f := new(fakeCluster)
	s := newSite(t, Config{Cluster: f})
	p := s.dial()
	status := bulk("name") + bulk("a") + bulk("id") + bulk("1f") + bulk("leader") + bulk("a") + bulk("term") + ":3\r\n" + bulk("committed") + ":9\r\n" + bulk("members") + "*1\r\n"
	member := bulk("name") + bulk("a") + bulk("addr") + bulk("h:1") + bulk("state") + bulk("voter") + bulk("reached") + ":1\r\n" + bulk("lag") + ":0\r\n"
	p.expect("SIMBA.CLUSTER STATUS", "*12\r\n"+status+"*10\r\n"+member)
	p.do("HELLO 3")
	p.expect("SIMBA.CLUSTER STATUS", "%6\r\n"+status+"%5\r\n"+member)
	p.expect("SIMBA.CLUSTER REMOVE b", ok)
	p.expect("SIMBA.CLUSTER TRANSFER", ok)
	p.expect("SIMBA.CLUSTER TRANSFER b", ok)
	p.expect("SIMBA.CLUSTER TRANSFER b c", failed("ERR unknown subcommand or wrong number of arguments for 'TRANSFER'. Try SIMBA.CLUSTER HELP."))
	p.expect("SIMBA.CLUSTER REMOVE", failed("ERR wrong number of arguments for 'simba.cluster|remove' command"))
	f.err = errors.New("it leads")
	p.expect("SIMBA.CLUSTER REMOVE a", failed("ERR it leads"))
	want := []string{"remove b", "transfer ", "transfer b", "remove a"}
	if len(f.calls) != len(want) {
		t.Fatalf("calls %q, want %q", f.calls, want)
	}
	for i := range want {
		if f.calls[i] != want[i] {
			t.Errorf("calls %q, want %q", f.calls, want)
		}
	}
	for _, sub := range []string{"STATUS", "REMOVE a", "TRANSFER"} {
		if got := newSite(t, Config{}).dial().do("SIMBA.CLUSTER " + sub); got[:len("-ERR 'simba.cluster|")] != "-ERR 'simba.cluster|" {
			t.Errorf("a single server replies %q", got)
		}
	}
}
