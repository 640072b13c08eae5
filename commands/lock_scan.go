package commands

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp"
)

// SCAN, KEYS, RANDOMKEY and DBSIZE look at the keyspace as a whole, which no transaction could
// keep still. Inside one they don't see what it has changed, and they cause no conflict.

// page returns a part of the keyspace that may be told.
func (t *keyTx) page(r simba.ScanRequest) (simba.ScanPage, error) {
	r.Held = true
	page, seq, err := t.c.scanPage(t.x.keyspace.Scan, r, t.giveWay)
	if err != nil {
		return page, err
	}
	t.giveWay()
	t.conn.RestOn(seq)
	return page, nil
}

// keyGlob picks keys by a glob, and says in which spelling. They are listed as mutexes are
// called; but a glob that begins with simba:{ asks for that spelling.
type keyGlob struct {
	glob   string
	tagged bool
}

func newKeyGlob(glob string) keyGlob {
	return keyGlob{glob, strings.HasPrefix(glob, "simba:{")}
}

func (g keyGlob) key(mutex string) string {
	if g.tagged {
		return simba.TaggedKeyOf(mutex)
	}
	return simba.KeyOf(mutex)
}

func (g keyGlob) match(mutex string) bool { return resp.Match(g.glob, g.key(mutex)) }

// keys returns the keys of mutexes.
func (g keyGlob) keys(mutexes []string) []string {
	for i, m := range mutexes {
		mutexes[i] = g.key(m)
	}
	return mutexes
}

func scan(t *keyTx, args [][]byte) error {
	s, err := parseKeyScan(args)
	if err != nil {
		return err
	}
	g := newKeyGlob(s.glob)
	if s.matching {
		s.Match = g.match
	}
	page, err := t.page(s.ScanRequest)
	if err != nil {
		return err
	}
	if s.typed {
		if page.Mutexes, err = t.ofType(page.Mutexes, s.kind); err != nil {
			return err
		}
	}
	found := g.keys(page.Mutexes)
	t.w.Array(2)
	t.w.BulkString(strconv.FormatUint(page.Cursor, 10))
	t.w.Array(len(found))
	for _, k := range found {
		t.w.BulkString(k)
	}
	return nil
}

// ofType keeps the mutexes that are a key of that type. It reads each in a transaction of its
// own, so that a lock that is renewed meanwhile does not make SCAN run again.
func (t *keyTx) ofType(mutexes []string, kind string) (list []string, err error) {
	var rests simba.Seq
	for _, m := range mutexes {
		t.step()
		var is string
		seq, err := t.x.keyspace.Update(func(tx simba.Tx) error {
			one := *t
			one.Tx = tx
			is = one.typeOf(simba.Key{Mutex: m})
			return nil
		})
		if err != nil {
			return nil, err
		}
		rests = max(rests, seq)
		if strings.EqualFold(is, kind) {
			list = append(list, m)
		}
	}
	t.conn.RestOn(rests)
	return list, nil
}

func keysOf(t *keyTx, args [][]byte) error {
	glob, err := parseGlob("pattern", args[1])
	if err != nil {
		return err
	}
	g := newKeyGlob(glob)
	var found []string
	for r := (simba.ScanRequest{Count: simba.MaxCount, Match: g.match}); ; {
		page, err := t.page(r)
		if err != nil {
			return err
		}
		found = append(found, g.keys(page.Mutexes)...)
		if r.Cursor = page.Cursor; r.Cursor == 0 {
			break
		}
	}
	slices.SortFunc(found, func(a, b string) int {
		t.step()
		return strings.Compare(a, b)
	})
	found = slices.Compact(found) // a scan may show one twice
	size := len("*1000000\r\n")
	for _, k := range found {
		size += len(k) + len("$100\r\n\r\n")
	}
	t.w.Grow(size)
	t.w.Array(len(found))
	for _, k := range found {
		t.step()
		t.w.BulkString(k)
	}
	return nil
}

// samples is how many keys RANDOMKEY picks one of: with fewer keys than that, each has about
// the same chance.
const samples = 1000

// randomkey scans from a random place. A cursor may be any number.
func randomkey(t *keyTx, _ [][]byte) error {
	var found []string
	for _, r := range [...]simba.ScanRequest{{Cursor: rand.Uint64(), Count: samples}, {Count: samples}} {
		for len(found) < samples {
			page, err := t.page(r)
			if err != nil {
				return err
			}
			found = append(found, page.Mutexes...)
			if r.Cursor = page.Cursor; r.Cursor == 0 {
				break
			}
		}
	}
	if len(found) == 0 {
		t.w.Null()
		return nil
	}
	t.w.BulkString(found[rand.IntN(len(found))])
	return nil
}

func dbsize(t *keyTx, _ [][]byte) error {
	s := t.x.keyspace.Stats()
	t.conn.RestOn(s.Seq)
	t.w.Int(s.Held)
	return nil
}
