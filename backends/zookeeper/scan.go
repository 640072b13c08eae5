package zookeeper

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"

	"github.com/simba-resp/simba-resp"
)

const (
	defaultCount = 10
	// cursorBits is the size of a cursor, which is a hash of a name. JavaScript numbers hold 48
	// bits exactly.
	cursorBits = 48
)

// Scan implements simba.Backend. It lists mutexes in the order of a hash of their names. The cursor
// is the next hash, so a scan needs no state and misses no mutex.
func (b *Backend) Scan(ctx context.Context, r simba.ScanRequest) (page simba.ScanPage, _ simba.Seq, err error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return page, 0, err
	}
	defer leave()
	if r.Count == 0 {
		r.Count = defaultCount
	}
	err = b.retryRead(ctx, "", func(s *session) (err error) {
		page, err = b.scan(ctx, s, r)
		return err
	})
	return page, 0, b.failed(err)
}

type candidate struct {
	mutex string
	hash  uint64
}

func (b *Backend) scan(ctx context.Context, s *session, r simba.ScanRequest) (page simba.ScanPage, err error) {
	if err := s.sync(ctx, s.mutexes()); err != nil {
		return page, err
	}
	names, err := s.list(ctx, s.mutexes())
	if err != nil {
		return page, err
	}
	list := make([]candidate, 0, len(names))
	for _, name := range names {
		if mutex, ok := decodeName(name); ok && simba.CheckMutex(mutex) == nil {
			if h := scanHash(mutex); h >= r.Cursor {
				list = append(list, candidate{mutex, h})
			}
		}
	}
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(a.hash, b.hash) })
	n := min(r.Count, len(list))
	for n < len(list) && n > 0 && list[n].hash == list[n-1].hash { // keep equal hashes in one page
		n++
	}
	if n < len(list) {
		page.Cursor = list[n].hash
	}
	found := make([]bool, n)
	err = each(n, func(i int) (err error) {
		if r.Match == nil || r.Match(list[i].mutex) {
			found[i], err = b.fits(ctx, s, list[i].mutex, r)
		}
		return err
	})
	for i := range found {
		if found[i] {
			page.Mutexes = append(page.Mutexes, list[i].mutex)
		}
	}
	return page, err
}

// fits reports whether a mutex has an owner or a queue, as the request demands.
func (b *Backend) fits(ctx context.Context, s *session, mutex string, r simba.ScanRequest) (bool, error) {
	names, err := s.children(ctx, mutex)
	if err != nil || len(names) == 0 {
		return false, err
	}
	if !r.Held && !r.Contended || !r.Held && len(names) > 1 {
		return true, nil
	}
	h, err := b.head(ctx, s, mutex, names, "")
	return (h.owned || !r.Held) && (h.waiters() > 0 || !r.Contended), err
}

// scanHash returns the hash of a name. It is never 0, since cursor 0 starts a scan.
func scanHash(mutex string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(mutex))
	return max(1, h.Sum64()>>(64-cursorBits))
}
