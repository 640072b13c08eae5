package mysql

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Simba's own migration adds fencing_token with 0 in every row. The next contender of Simba 3.3
// would get token 1, which was given before. So a server that meets the column raises each 0 to
// fromBefore. The token of such a row is its version, as with 0. So no running tenure of ours
// changes its own, and several servers may do it at once.

// fromBefore is the fencing_token of a row from before the column.
const legacyToken = "version * 1000000 + 2"

const (
	// raisePage is how many rows one statement raises at most. It holds their locks until it commits.
	backfillPage = 100
	// raisePause lies between two tries, if a row was locked or the database did not answer.
	backfillRetry = time.Second
)

// meet takes note of whether the table has fencing_token, and wakes raise when it has come.
func (s *store) noteColumn(fenced bool) {
	if !fenced {
		s.backfillPending.Store(true) // when it comes
	}
	if s.fenced.Swap(fenced) != fenced && fenced {
		select {
		case s.columnAdded <- struct{}{}:
		default: // raise has yet to begin
		}
	}
}

// raise runs until the backend is closed. It raises the tokens each time that the column has come.
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
			if isOtherTable(err) { // the column has gone again
				break
			}
			if i == 0 && b.ctx.Err() == nil {
				b.log.Warn("setting fencing_token in rows of before failed, it is tried again", "err", err)
			}
			select {
			case <-b.ctx.Done():
				return
			case <-time.After(backfillRetry):
			}
		}
	}
}

// raise sets every fencing_token of 0, but for rows that nobody has owned. Each page has the time limit.
// It skips a page with a locked row, and returns the error of the last such page.
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

// nextZeros returns the last mutex of the next page of rows to raise, or from if there is none.
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
