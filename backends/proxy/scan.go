package proxy

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/simba-resp/simba-resp"
)

const maxScanKey = math.MaxUint32

func byKey(a, b Scanned) int {
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Mutex, b.Mutex))
}

// Page returns the first page of what a scan has found from its cursor on: count mutexes by ascending
// key, and those with the same key as the last one. next is the cursor of the rest; 0 = there is none.
func Page(found []Scanned, count int) (page []Scanned, next uint64) {
	slices.SortFunc(found, byKey)
	found = slices.CompactFunc(found, func(a, b Scanned) bool { return a.Mutex == b.Mutex })
	n := min(count, len(found))
	for n < len(found) && found[n].Key == found[n-1].Key {
		n++
	}
	if n < len(found) {
		next = found[n].Key
	}
	return found[:n], next
}

// Scan implements simba.Backend. It orders mutexes by their ScanKey. So a cursor needs no state and
// is valid on every server. Mutexes with the same key are in the same page.
func (e *Engine) Scan(ctx context.Context, r simba.ScanRequest) (page simba.ScanPage, _ simba.Seq, err error) {
	r.Count = cmp.Or(r.Count, 10)
	err = e.serve(ctx, func(ctx context.Context) error {
		page, err = e.scan(ctx, r)
		return err
	})
	return page, 0, err
}

func (e *Engine) scan(ctx context.Context, r simba.ScanRequest) (page simba.ScanPage, err error) {
	last := uint64(maxScanKey) // the page covers the keys up to here
	list := e.contended(r.Cursor)
	if r.Held || !r.Contended || e.queue != nil {
		held, err := e.store.Scan(ctx, r.Cursor, maxScanKey, r.Count)
		if err == nil && len(held) == r.Count {
			last = held[len(held)-1].Key
			var same []Scanned
			same, err = e.store.Scan(ctx, last, last, 0)
			held = append(held, same...)
		}
		if err != nil {
			return page, err
		}
		if e.queue != nil {
			list = nil
			held = slices.DeleteFunc(held, func(h Scanned) bool {
				return !h.Live && h.Next == "" || r.Held && h.Owner == "" || r.Contended && h.Waiters == 0
			})
		} else if r.Held {
			held = slices.DeleteFunc(held, func(h Scanned) bool {
				return r.Contended && !slices.ContainsFunc(list, func(s Scanned) bool { return s.Mutex == h.Mutex })
			})
			list = nil
		}
		list = append(list, held...)
	}
	list = slices.DeleteFunc(list, func(s Scanned) bool { return s.Key > last })
	list, page.Cursor = Page(list, r.Count)
	if page.Cursor == 0 && last < maxScanKey {
		page.Cursor = last + 1
	}
	for _, s := range list {
		if r.Match == nil || r.Match(s.Mutex) {
			page.Mutexes = append(page.Mutexes, s.Mutex)
		}
	}
	return page, nil
}

// contended returns the mutexes that clients of this server wait for, from a key on.
func (e *Engine) contended(from uint64) (list []Scanned) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for mutex, m := range e.mutexes {
		if key := e.store.ScanKey(mutex); len(m.entries) > 0 && key >= from {
			list = append(list, Scanned{Mutex: mutex, Key: key})
		}
	}
	return list
}
