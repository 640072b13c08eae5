package mysql

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Simba's own migration adds the column fencing_token with 0 in every row. The next contender of
// Simba 3.3 would then get token 1, which an earlier tenure already had. So a server that finds the
// column replaces each 0 with legacyToken. In a row with either of these two values, the tenure's
// token is the row's version (see token.go). So this backfill changes no token of a running tenure,
// and several servers may run it at once.

// legacyToken is the fencing_token of a row that is older than the column.
const legacyToken = "version * 1000000 + 2"

const (
	// backfillPage is the most rows that one statement changes. Until it commits, the statement
	// locks them.
	backfillPage = 100
	// backfillRetry is the pause before the next attempt, after a locked row or a failed request.
	backfillRetry = time.Second
)

// noteColumn records whether the table has fencing_token. If the column is new, it starts the
// backfill.
func (s *store) noteColumn(fenced bool) {
	if !fenced {
		s.backfillPending.Store(true) // a column that is added later needs a backfill
	}
	if s.fenced.Swap(fenced) != fenced && fenced {
		select {
		case s.columnAdded <- struct{}{}:
		default: // a backfill will start anyway
		}
	}
}

// backfillTokens runs the backfill each time the column appears, until the backend is closed.
func (b *Backend) backfillTokens() {
	defer b.running.Done()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-b.store.columnAdded:
		}
		for i := 0; ; i++ {
			err := b.store.backfill(b.ctx, b.timeout)
			if err == nil {
				b.store.backfillPending.Store(false)
				break
			}
			if isOtherTable(err) { // the column has been dropped again
				break
			}
			if i == 0 && b.ctx.Err() == nil {
				b.log.Warn("cannot set fencing_token in rows older than the column; retrying", "err", err)
			}
			select {
			case <-b.ctx.Done():
				return
			case <-time.After(backfillRetry):
			}
		}
	}
}

// backfill replaces every fencing_token of 0, except in rows that never had an owner. The time
// limit applies to each page. backfill skips a page that has a locked row, and returns the error of
// the last such page.
func (s *store) backfill(ctx context.Context, limit time.Duration) (locked error) {
	for last, more := "", true; more; {
		err := within(ctx, limit, func(ctx context.Context) (err error) {
			first := last
			last, more, err = s.nextLegacyPage(ctx, first)
			if err != nil || last == first {
				return err
			}
			_, err = s.db.ExecContext(ctx, "UPDATE simba_mutex SET fencing_token = "+legacyToken+
				" WHERE mutex > ? AND mutex <= ? AND fencing_token = 0 AND version > 0", first, last)
			return err
		})
		switch {
		case isConflict(err):
			locked = err
		case err != nil:
			return err
		}
	}
	return locked
}

// nextLegacyPage returns the last mutex of the next page of rows to change. The page begins after
// the mutex from. more is true if the page is full. If no row is left, last equals from.
func (s *store) nextLegacyPage(ctx context.Context, from string) (last string, more bool, err error) {
	err = queryRow(ctx, s.db, []any{&last}, "SELECT mutex FROM simba_mutex"+
		" WHERE mutex > ? AND fencing_token = 0 AND version > 0 ORDER BY mutex LIMIT ?, 1", from, backfillPage-1)
	if !errors.Is(err, sql.ErrNoRows) {
		return last, err == nil, err
	}
	err = queryRow(ctx, s.db, []any{&last}, "SELECT COALESCE(MAX(mutex), ?) FROM simba_mutex"+
		" WHERE mutex > ? AND fencing_token = 0 AND version > 0", from, from)
	return last, false, err
}
