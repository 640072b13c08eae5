package cli

import (
	"bytes"
	"strings"
	"testing"
)

// toTenure reads both fields from maps of RESP3 and from arrays of RESP2.
func TestTenureHasItsStartAndItsConnection(t *testing.T) {
	for name, reply := range map[string]any{
		"RESP3": map[any]any{
			"owner": "alice", "token": int64(1), "acquired_at": int64(5000), "now": int64(7000), "transition": int64(9000),
			"since": int64(4000), "connection": map[any]any{"id": int64(3), "addr": "192.0.2.1:5", "name": "worker\x1b"},
		},
		"RESP2": []any{
			"owner", "alice", "token", int64(1), "acquired_at", int64(5000), "now", int64(7000), "transition", int64(9000),
			"since", int64(4000), "connection", []any{"id", int64(3), "addr", "192.0.2.1:5", "name", "worker\x1b"},
		},
	} {
		tenure, err := toTenure("job", reply)
		if err != nil || tenure.Since == nil || *tenure.Since != 4000 || tenure.Connection == nil || *tenure.Connection != (Connection{3, "192.0.2.1:5", "worker\x1b"}) {
			t.Errorf("%s: toTenure returned %+v, %v; want since 4000 and a connection", name, tenure, err)
		}
		var out bytes.Buffer
		if err := printTenure(&out, tenure); err != nil || !strings.Contains(out.String(), " (3.0s)\n") || !strings.Contains(out.String(), `3 from 192.0.2.1:5, name worker\x1b`) {
			t.Errorf("%s: printTenure printed\n%s (error %v), want 3.0s and the escaped connection", name, &out, err)
		}
	}
}

// In each reply, a lease without end ends 24 hours from now. A contender's lease does so only in
// its first millisecond.
func TestLeaseWithoutEndHasNoExpiry(t *testing.T) {
	const day = 86_400_000
	for name, row := range map[string]struct {
		passed, ttlAt, ttl int64
		ends               bool
	}{
		"key without expiry":     {3, 1000 + 3 + day, day, false},
		"lease of 24 h, new":     {0, 1000 + day, day, true},
		"lease of 24 h, later":   {3, 1000 + day, day - 3, true},
		"key with a long expiry": {3, 1000 + 2*day, 2*day - 3, true},
	} {
		tenure, err := toTenure("job", []any{"owner", "alice", "token", int64(1), "acquired_at", int64(1000), "now", 1000 + row.passed,
			"ttl_at", row.ttlAt, "transition_at", row.ttlAt, "ttl", row.ttl, "transition", row.ttl})
		if err != nil || (tenure.TTL != nil) != row.ends || (tenure.TransitionAt != nil) != row.ends {
			t.Errorf("%s: toTenure returned %+v, %v; want an expiry: %v", name, tenure, err, row.ends)
		}
	}
}

func TestReplyOfAnotherServerIsAnError(t *testing.T) {
	if _, err := toTenure("job", "PONG"); err == nil {
		t.Error("toTenure accepted a string")
	}
	if _, err := records("PONG", nil); err == nil {
		t.Error("records accepted a string")
	}
	if _, _, err := toPage([]any{"x", []any{}}, nil); err == nil {
		t.Error("toPage accepted the cursor x")
	}
}
