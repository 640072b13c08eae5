package zookeeper

import (
	"testing"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// goodRecords returns records of each kind.
func goodRecords() (list []record) {
	for _, k := range []kind{kindOwner, kindBlocked, kindPolling} {
		list = append(list, record{
			Mutex: "größe", Contender: "c1", Kind: k, TTL: simba.MaxTTL.Milliseconds(), Transition: simba.MaxTransition.Milliseconds(),
			Acquired: 1790000000000,
		})
	}
	return list
}

func TestInvalidLeaseNodeIsRejected(t *testing.T) {
	for _, r := range goodRecords() {
		if got, ok := decodeRecord(encode(r)); !ok || got != r {
			t.Errorf("decodeRecord of %s: %+v, %v; want the same record", encode(r), got, ok)
		}
	}
	for _, data := range []string{
		"", "null", "{}", "[]", "c1",
		`{"mutex":"m","contender":"a","kind":"owner","ttl":-1}`,
		`{"mutex":"m","contender":"a","kind":"owner","ttl":9223372036854775807}`,
		`{"mutex":"m","contender":"a","kind":"owner","transition":9223372036854775807}`,
		`{"mutex":"m","contender":"a","kind":"owner","acquired":9223372036854775807}`,
		`{"mutex":"m","contender":"a","kind":"king"}`,
		`{"mutex":"m","contender":"","kind":"owner"}`,
		`{"mutex":"../..\u0000","contender":"a","kind":"owner"}`,
	} {
		if r, ok := decodeRecord([]byte(data)); ok {
			t.Errorf("decodeRecord of %s: %+v; want no record", data, r)
		}
	}
}

// FuzzRecord decodes any data of a lease node. decodeRecord rejects it, or gives windows that a
// client can ask for. Encoded again, the record is the same.
func FuzzRecord(f *testing.F) {
	for _, r := range goodRecords() {
		f.Add(encode(r))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rec, ok := decodeRecord(data)
		if !ok {
			return
		}
		if again, ok := decodeRecord(encode(rec)); !ok || again != rec {
			t.Errorf("record %+v, encoded and decoded: %+v, %v; want the same record", rec, again, ok)
		}
		if proxy.Between(0, rec.TTL) > simba.MaxTTL || proxy.Between(0, rec.Transition) > simba.MaxTransition || rec.Acquired < 0 {
			t.Errorf("record %s has windows beyond the limits", data)
		}
	})
}
