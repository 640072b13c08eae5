package zookeeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
)

// kind is the state of a latch node.
type kind string

const (
	// The node is new. Its creator has not written the outcome yet.
	kindAsking kind = "asking"
	// The contender owns the mutex if the node is the first.
	kindOwner kind = "owner"
	// The contender is blocked. It owns the mutex as soon as the node is the first.
	kindBlocked kind = "blocked"
	// The contender polls. When the node is the first, the contender still needs another ACQUIRE to
	// own the mutex.
	kindPolling kind = "polling"
)

// record is the data of a lease node, which other servers read. It is JSON, so that people can read
// it too. Times are in milliseconds. Every write or deletion names the node's version, so that no
// server undoes a change of which it does not know.
type record struct {
	Mutex     string `json:"mutex"`
	Contender string `json:"contender"`
	Kind      kind   `json:"kind"`
	// Creator is the Backend.id of the server that created the node. Server is the Backend.id of
	// the server that the contender last asked.
	Creator    string `json:"keeper"`
	Server     string `json:"server"`
	TTL        int64  `json:"ttl"`
	Transition int64  `json:"transition"`
	// Acquired is when the windows began, in Unix milliseconds on the ensemble's clock; 0 = when
	// this record was written.
	Acquired int64 `json:"acquired,omitempty"`
	// Over says that a server has reported the end of the lease. Only a renewal for the same owner
	// clears it. A server may still renew if the lease has not ended by that server's own clock.
	Over bool `json:"over,omitempty"`
	// Session is the Backend.binding of the lease. It names the connection that the lease is bound
	// to, and the server of that connection. "" = none.
	Session string `json:"session,omitempty"`
	// Listening says that a polling waiter subscribes to its own channel at a server other than the
	// creator.
	Listening bool `json:"listening,omitempty"`
	// Idle says that a polling waiter is the first, and has missed its reservation or was
	// unreachable. Another contender may delete its node.
	Idle bool `json:"idle,omitempty"`
	// Lapse is how long after this write a polling waiter keeps its queue entry.
	Lapse int64 `json:"lapse,omitempty"`
	// Reserved is how long after this write the mutex is reserved for a polling waiter.
	Reserved int64 `json:"turn,omitempty"`
}

func (r *record) encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic("zookeeper: cannot encode a record: " + err.Error())
	}
	return b
}

// errNoRecord is returned when a lease node holds data that no server writes.
var errNoRecord = errors.New("zookeeper: a lease node does not hold a lease")

// decodeRecord parses the data of a lease node. Anybody with access to the ensemble may have
// written it. So decodeRecord rejects what no server writes, such as an empty owner or values that
// could overflow.
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
	// maxLapse is the largest Lapse. A waiter may ask at the start of the longest lease (MaxTTL +
	// MaxTransition). It keeps its queue entry for the longest queue grace (MaxTTL) after the
	// lease.
	maxLapse = 3 * simba.MaxTTL
	// lastInstant bounds a clock in Unix milliseconds (year 2248), so that its nanoseconds fit an
	// int64.
	lastInstant = 1 << 43
)

func (r *record) check() error {
	if err := errors.Join(simba.CheckMutex(r.Mutex), simba.CheckContender(r.Contender)); err != nil {
		return err
	}
	switch r.Kind {
	case kindAsking, kindOwner, kindBlocked, kindPolling:
	default:
		return fmt.Errorf("unknown kind %q", r.Kind)
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
			return fmt.Errorf("%s is %d ms, not between 0 and %d", f.name, f.ms, f.limit)
		}
	}
	return nil
}

// began returns when the windows of an owner began, in Unix milliseconds on the ensemble's clock.
func (r *record) began(stat *zk.Stat) int64 {
	if r.Acquired != 0 {
		return r.Acquired
	}
	return stat.Mtime
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
