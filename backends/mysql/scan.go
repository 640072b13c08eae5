package mysql

import (
	"cmp"
	"context"
	"hash/crc32"
	"math"
	"slices"

	"github.com/simba-resp/simba-resp"
)

// crcOfMutex orders a scan. The order does not change when rows come and go. The database has to
// read and sort the whole table for it.
const crcOfMutex = "CRC32(CONVERT(mutex USING utf8mb4))"

type scanned struct {
	crc   uint64
	mutex string
}

func byCRC(a, b scanned) int {
	return cmp.Or(cmp.Compare(a.crc, b.crc), cmp.Compare(a.mutex, b.mutex))
}

// readHeld returns the rows whose lease is running.
func (s *store) readHeld(ctx context.Context) (map[string]row, error) {
	rows, err := s.readRows(ctx, "", "transition_at > "+dbNow)
	if err != nil {
		return nil, err
	}
	held := make(map[string]row, len(rows))
	for _, r := range rows {
		held[r.mutex] = r.row
	}
	return held, nil
}

// scanHeld returns about limit held mutexes from a CRC on, and the last CRC that the page covers.
// Mutexes with the same CRC are in the same page.
func (s *store) scanHeld(ctx context.Context, from uint64, limit int) (page []scanned, last uint64, err error) {
	page, err = s.queryHeld(ctx, crcOfMutex+" >= ? ORDER BY 1, 2 LIMIT ?", from, limit)
	if err != nil || len(page) < limit {
		return page, math.MaxUint32, err
	}
	last = page[len(page)-1].crc
	equal, err := s.queryHeld(ctx, crcOfMutex+" = ?", last)
	if err != nil {
		return nil, 0, err
	}
	page = slices.DeleteFunc(page, func(s scanned) bool { return s.crc == last })
	return append(page, equal...), last, nil
}

func (s *store) queryHeld(ctx context.Context, where string, args ...any) (page []scanned, err error) {
	rows, err := query(ctx, s.db, "SELECT "+crcOfMutex+", mutex FROM simba_mutex WHERE transition_at > "+dbNow+" AND "+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s scanned
		if err := scan(rows, &s.crc, &s.mutex); err != nil {
			return nil, err
		}
		page = append(page, s)
	}
	return page, rows.Err()
}

// Scan implements simba.Backend. It orders mutexes by the CRC32 of their names. So a cursor needs
// no state and is valid on every server.
func (b *Backend) Scan(ctx context.Context, r simba.ScanRequest) (page simba.ScanPage, _ simba.Seq, err error) {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return page, 0, err
	}
	defer done()
	if r.Count == 0 {
		r.Count = 10
	}
	var list []scanned
	last := uint64(math.MaxUint32)
	contended := b.contended(r.Cursor)
	if r.Held || !r.Contended {
		if list, last, err = b.store.scanHeld(ctx, r.Cursor, r.Count); err != nil {
			return page, 0, b.fail(err)
		}
	}
	switch {
	case r.Held && r.Contended:
		list = slices.DeleteFunc(list, func(s scanned) bool { return !slices.Contains(contended, s) })
	case !r.Held:
		for _, s := range contended {
			if s.crc <= last {
				list = append(list, s)
			}
		}
	}
	slices.SortFunc(list, byCRC)
	list = slices.Compact(list)
	if n := r.Count; len(list) > n { // keep mutexes with the same CRC in one page
		for n < len(list) && list[n].crc == list[n-1].crc {
			n++
		}
		if n < len(list) {
			list, last = list[:n], list[n-1].crc
		}
	}
	for _, s := range list {
		if r.Match == nil || r.Match(s.mutex) {
			page.Mutexes = append(page.Mutexes, s.mutex)
		}
	}
	if last < math.MaxUint32 {
		page.Cursor = last + 1
	}
	return page, 0, nil
}

// contended returns the mutexes that clients of this server wait for, from a CRC on.
func (b *Backend) contended(from uint64) (list []scanned) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for mutex, m := range b.mutexes {
		if crc := uint64(crc32.ChecksumIEEE([]byte(mutex))); len(m.entries) > 0 && crc >= from {
			list = append(list, scanned{crc, mutex})
		}
	}
	slices.SortFunc(list, byCRC)
	return list
}
