package zookeeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
)

// kind is what a latch node stands for.
type kind string

const (
	kindAsking  kind = "asking"  // was just made: its server has yet to see, or to write, what came of it
	kindOwner   kind = "owner"   // holds the mutex when it is the first
	kindBlocked kind = "blocked" // waits on a connection: owns the mutex as soon as it is the first
	kindPolling kind = "polling" // waits without a connection: owns nothing before it asks again
)

// record is what a lease node says about its latch node, for the other servers: JSON,
// so that people can read it too. Times are milliseconds. The node's version counts
// its changes: whoever writes or deletes it names the version that he knows, so
// nobody undoes what he has not seen.
type record struct {
	Mutex     string `json:"mutex"`
	Contender string `json:"contender"`
	Kind      kind   `json:"kind"`
	// Keeper is the server that keeps the node, and Server the one whose client the
	// rest is about, each by a name of its process.
	Creator    string `json:"keeper"`
	Server     string `json:"server"`
	TTL        int64  `json:"ttl"`
	Transition int64  `json:"transition"`
	// Acquired is when the windows began, on the ensemble's clock; 0 = when this
	// record was written.
	Acquired int64 `json:"acquired,omitempty"`
	// Over says that somebody was told that the lease has ended, which was made so by writing this. Only
	// a renewal by the clock of a server that knows better takes it back; it is about no other client.
	Over bool `json:"over,omitempty"`
	// Session is the connection that the lease is bound to, with its server.
	Session string `json:"session,omitempty"`
	// Listening says that a polling waiter can be reached through another server
	// than the one that keeps its node.
	Listening bool `json:"listening,omitempty"`
	// Idle says that a polling waiter is the first, and has had its turn or cannot be
	// told of it: who wants the mutex may delete its node.
	Idle bool `json:"idle,omitempty"`
	// Lapse is for how long a polling waiter keeps its place from here.
	Lapse int64 `json:"lapse,omitempty"`
	// Turn is for how long the mutex is kept for a polling waiter from here.
	Reserved int64 `json:"turn,omitempty"`
}

func (r *record) encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic("zookeeper: a record does not encode: " + err.Error())
	}
	return b
}

// errNoRecord is decodeRecord's when a lease node holds something else than a server writes.
var errNoRecord = errors.New("zookeeper: a lease node does not hold a lease")

// decodeRecord reads what a lease node says. Whoever may write to the ensemble may have written it, so what no server
// would write is refused: what is reckoned with it must not overflow, nor end in a tenure of nobody.
func decodeRecord(b []byte) (record, error) {
	var r record
	err := json.Unmarshal(b, &r)
	if err == nil {
		err = r.check()
	}
	if err != nil {
		return record{}, fmt.Errorf("%w: %w", errNoRecord, err)
	}
	return r, nil
}

const (
	// longestLapse is that of who asks at the beginning of the longest lease.
	maxLapse = 3 * simba.MaxTTL
	// lastInstant bounds a clock, Unix milliseconds: the nanoseconds of one that shows more do not fit (year 2248).
	lastInstant = 1 << 43
)

func (r *record) check() error {
	if err := errors.Join(simba.CheckMutex(r.Mutex), simba.CheckContender(r.Contender)); err != nil {
		return err
	}
	switch r.Kind {
	case kindAsking, kindOwner, kindBlocked, kindPolling:
	default:
		return fmt.Errorf("kind %q", r.Kind)
	}
	for _, f := range []struct {
		name      string
		ms, limit int64
	}{
		{"ttl", r.TTL, simba.MaxTTL.Milliseconds()},
		{"transition", r.Transition, simba.MaxTransition.Milliseconds()},
		{"lapse", r.Lapse, maxLapse.Milliseconds()},
		{"turn", r.Reserved, simba.MaxTTL.Milliseconds()},
		{"acquired", r.Acquired, lastInstant},
	} {
		if f.ms < 0 || f.ms > f.limit {
			return fmt.Errorf("%s %d", f.name, f.ms)
		}
	}
	return nil
}

// began is when the windows of an owner began, on the ensemble's clock.
func (r *record) began(stat *zk.Stat) int64 {
	if r.Acquired != 0 {
		return r.Acquired
	}
	return stat.Mtime
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
