package zookeeper

import (
	"encoding/json"
	"slices"

	"github.com/simba-resp/simba-resp"
)

// kind says what the contender of a latch node has when the node is the first.
type kind string

const (
	kindOwner   kind = "owner"   // the mutex, with the windows in the record
	kindBlocked kind = "blocked" // the mutex. Its windows begin when its server learns of it
	kindPolling kind = "polling" // nothing before the next ACQUIRE; the mutex may be reserved for it
)

// record is the data of a lease node, which other servers read. It is JSON, so that people can read
// it too. Times are in milliseconds.
type record struct {
	Mutex      string `json:"mutex"`
	Contender  string `json:"contender"`
	Kind       kind   `json:"kind"`
	TTL        int64  `json:"ttl"`
	Transition int64  `json:"transition"`
	// Acquired is when the windows of an owner began, in Unix milliseconds on the ensemble's clock.
	Acquired int64 `json:"acquired,omitempty"`
	// AcquiredMark is the proxy.From.Acquired of an owner.
	AcquiredMark int64 `json:"mark,omitempty"`
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("zookeeper: cannot encode: " + err.Error())
	}
	return b
}

// decodeRecord parses the data of a lease node. Anybody with access to the ensemble may have
// written it. So ok is false for what no server writes, such as an empty owner or values that could
// overflow.
func decodeRecord(b []byte) (r record, ok bool) {
	ok = json.Unmarshal(b, &r) == nil && r.isValid()
	return r, ok
}

// lastInstant bounds a clock in Unix milliseconds (year 2248), so that its nanoseconds fit an
// int64.
const lastInstant = 1 << 43

func (r *record) isValid() bool {
	within := func(ms, limit int64) bool { return ms >= 0 && ms <= limit }
	return simba.CheckMutex(r.Mutex) == nil && simba.CheckContender(r.Contender) == nil &&
		slices.Contains([]kind{kindOwner, kindBlocked, kindPolling}, r.Kind) &&
		within(r.TTL, simba.MaxTTL.Milliseconds()) && within(r.Transition, simba.MaxTransition.Milliseconds()) &&
		within(r.Acquired, lastInstant)
}
