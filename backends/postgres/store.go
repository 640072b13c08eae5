package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

// store implements proxy.Store.
type store struct {
	pool    *pgxpool.Pool
	timeout time.Duration
	migrate bool // run Schema at the start
	clock   *proxy.Clock
	hooks   proxy.Hooks
	watch   watch
	// timeline is the highest timeline that this server has seen; 0 = none.
	timeline atomic.Uint32

	resetting sync.Mutex
	resetAt   time.Time // of the pool, last
}

var _ proxy.Store = (*store)(nil)

const (
	// dbClock is the present time of the database in Unix ms. now() would be the start of the
	// transaction.
	dbClock = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
	// node says what a connection leads to. pg_walfile_name fails on a standby, and begins with the
	// timeline.
	node = "current_setting('transaction_read_only') AS read_only," +
		" CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END COLLATE \"C\" AS timeline"
	columns  = "m.owner_id, m.token, m.revision, m.mark, m.acquired_at, m.ttl_at, m.transition_at"
	nowOnce  = "c AS MATERIALIZED (SELECT " + dbClock + " AS now, " + node + ")"
	isFree   = "(m.owner_id = '' OR m.transition_at <= c.now)"
	isLive   = "(m.owner_id <> '' AND m.transition_at > c.now)"
	newToken = "nextval('simba_token')"
)

// row is a row of the table.
type row struct {
	proxy.State
	missing bool // there is no row
}

// parse returns the row in the columns read_only, timeline and now, followed by columns. It returns
// an error if the node does not decide.
func (s *store) parse(v [][]byte) (r row, err error) {
	if err := s.checkNode(v); err != nil {
		return r, err
	}
	r.Now = number(v[2])
	if r.missing = v[3] == nil; r.missing {
		return r, nil
	}
	r.Owner, r.Token, r.Revision, r.Mark = string(v[3]), uint64(number(v[4])), uint64(number(v[5])), number(v[6])
	r.AcquiredAt, r.TTLAt, r.TransitionAt = number(v[7]), number(v[8]), number(v[9])
	r.Live = r.Owner != "" && r.TransitionAt > r.Now
	return r, nil
}

// number returns the value of a column of type bigint.
func number(text []byte) int64 {
	n, _ := strconv.ParseInt(string(text), 10, 64) // the check of the table has seen the type
	return n
}

// quote returns a string literal that means the same with every setting of the server.
func quote(s string) string {
	return "E'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(s) + "'"
}

// exec sends statements in one message and returns the rows of the last one. PostgreSQL runs them as
// one transaction, unless they end it themselves.
func (s *store) exec(ctx context.Context, statements string) (rows [][][]byte, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	return run(ctx, conn.Conn().PgConn(), statements)
}

func run(ctx context.Context, conn *pgconn.PgConn, statements string) ([][][]byte, error) {
	results, err := conn.Exec(ctx, statements).ReadAll()
	if err == nil && conn.CustomData()[unreplicated] != nil {
		_ = conn.Close(ctx)
		err = errUnreplicated
	}
	if err != nil {
		return nil, err
	}
	return results[len(results)-1].Rows, nil
}

// change is what a step changes in the row of a mutex.
type change struct {
	set   string // the assignments; "" = nothing
	where string // the state that the row must have
	free  bool   // a missing row is inserted before, as that of a free mutex
}

// changed is the row after a change.
type changed struct{ token, revision uint64 }

// windows returns the assignments that begin the windows of a lease now.
func windows(l *proxy.Lease) string {
	return fmt.Sprintf("mark = %d, acquired_at = c.now, ttl_at = c.now + %d, transition_at = c.now + %d",
		l.Mark, l.TTL.Milliseconds(), (l.TTL + l.Transition).Milliseconds())
}

// newMark returns a new Mark, which no other lease has.
func newMark() int64 { return rand.Int64N(1<<63-1) + 1 }

// lockWait bounds how long a step waits for transactions that have locked the row. Meanwhile it
// occupies a connection.
const lockWait = time.Second

// step locks the row of a mutex, and changes it if it is in the right state. It returns the row before
// the change; after is nil if the row was not changed.
func (s *store) step(ctx context.Context, mutex string, c change) (before row, after *changed, err error) {
	before, after, err = s.send(ctx, mutex, c, false)
	if err == nil && before.missing && c.free {
		before, after, err = s.send(ctx, mutex, c, true)
	}
	return before, after, err
}

// send sends a step in one message, which may also insert a missing row.
//
// The settings apply to this transaction only, since a pooler may give the session to others. A
// transaction that changes nothing need not wait for the disk.
func (s *store) send(ctx context.Context, mutex string, c change, insert bool) (before row, after *changed, err error) {
	end, _ := ctx.Deadline()
	sent := time.Now()
	wait := max(10*time.Millisecond, min(lockWait, end.Sub(sent)-50*time.Millisecond))
	name, add := quote(mutex), ""
	if insert {
		add = "INSERT INTO simba_mutex VALUES (" + name + ", '', 0, 0, 0, 0, 0, 0) ON CONFLICT DO NOTHING; "
	}
	update := "SELECT NULL AS token, NULL AS revision WHERE false"
	if c.set != "" {
		update = fmt.Sprintf("UPDATE simba_mutex m SET %s FROM c WHERE m.mutex = %s AND c.now < %d AND c.timeline >= '%08X' AND %s RETURNING m.token, m.revision",
			c.set, name, s.clock.Latest(end), s.timeline.Load(), c.where)
	}
	rows, err := s.exec(ctx, fmt.Sprintf("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = %d; ", wait.Milliseconds())+
		add+"SELECT FROM simba_mutex WHERE mutex = "+name+" FOR NO KEY UPDATE; "+
		"WITH "+nowOnce+", u AS ("+update+") SELECT c.read_only, c.timeline, c.now, "+columns+", u.token, u.revision,"+
		" CASE WHEN u.token IS NULL THEN set_config('synchronous_commit', 'off', true) END"+
		" FROM c LEFT JOIN simba_mutex m ON m.mutex = "+name+" LEFT JOIN u ON true")
	if err == nil {
		before, err = s.parse(rows[0])
	}
	if err != nil {
		return before, nil, s.fail(sent, err)
	}
	s.clock.Learn(before.Now, sent, time.Now())
	if v := rows[0]; v[10] != nil {
		after = &changed{uint64(number(v[10])), uint64(number(v[11]))}
	}
	return before, after, nil
}

// Take implements proxy.Store.
func (s *store) Take(ctx context.Context, mutex string, l *proxy.Lease) (proxy.Taking, proxy.State, error) {
	l.Mark = newMark()
	owner := quote(l.Owner)
	before, after, err := s.step(ctx, mutex, change{
		free: true,
		set: "owner_id = " + owner + ", token = CASE WHEN " + isFree + " THEN " + newToken + " ELSE m.token END" +
			", revision = m.revision + CASE WHEN " + isFree + " THEN 1 ELSE 0 END, " + windows(l),
		where: "(" + isFree + " OR m.owner_id = " + owner + ")",
	})
	if err != nil || after == nil {
		return proxy.Held, before.State, err
	}
	l.Token, l.Revision = after.token, after.revision
	if before.Token == after.token {
		s.announceIfShorter(mutex, before, l)
		return proxy.Renewed, proxy.State{}, nil
	}
	s.announce(mutex)
	return proxy.Granted, proxy.State{}, nil
}

// Renew implements proxy.Store.
func (s *store) Renew(ctx context.Context, mutex string, l *proxy.Lease) (bool, error) {
	l.Mark = newMark()
	before, after, err := s.step(ctx, mutex, change{set: windows(l), where: isTenure(l.Owner, l.Token)})
	if after == nil {
		return false, err
	}
	l.Token = after.token
	s.announceIfShorter(mutex, before, l)
	return true, nil
}

// announceIfShorter announces a renewal by which the lease ends earlier than before.
func (s *store) announceIfShorter(mutex string, before row, l *proxy.Lease) {
	if l.TTL+l.Transition < proxy.Between(before.Now, before.TransitionAt) {
		s.announce(mutex)
	}
}

// isTenure returns the condition for the tenure of an owner, with a token or with any (0).
func isTenure(owner string, token uint64) string {
	where := isLive + " AND m.owner_id = " + quote(owner)
	if token != 0 {
		where += fmt.Sprintf(" AND m.token = %d", int64(token))
	}
	return where
}

// Pass implements proxy.Store.
func (s *store) Pass(ctx context.Context, mutex string, from proxy.From, to *proxy.Lease) (revision uint64, ok bool, err error) {
	c, grows := change{free: from.Free()}, 1
	if from.Free() {
		c.where = fmt.Sprintf("%s AND m.revision = %d", isFree, int64(from.Revision))
	} else {
		c.where = isTenure(from.Owner, from.Token)
		if from.Mark != 0 {
			c.where += fmt.Sprintf(" AND m.mark = %d", from.Mark)
		}
		if to != nil {
			grows = 2
		}
	}
	c.set = fmt.Sprintf("revision = m.revision + %d, ", grows)
	if to == nil {
		c.set += "owner_id = '', ttl_at = c.now, transition_at = c.now"
	} else {
		to.Mark = newMark()
		c.set += "owner_id = " + quote(to.Owner) + ", token = " + newToken + ", " + windows(to)
	}
	_, after, err := s.step(ctx, mutex, c)
	if after == nil {
		return 0, false, err
	}
	if to != nil {
		to.Token, to.Revision = after.token, after.revision
	}
	s.announce(mutex)
	return after.revision, true, nil
}

// Read implements proxy.Store. A settled read locks the row. It inserts a missing one, and so waits
// for a transaction that is doing the same.
func (s *store) Read(ctx context.Context, mutex string, settled bool) (proxy.State, error) {
	if settled {
		r, _, err := s.step(ctx, mutex, change{free: true})
		return r.State, err
	}
	sent := time.Now()
	rows, err := s.exec(ctx, "WITH "+nowOnce+" SELECT c.read_only, c.timeline, c.now, "+columns+
		" FROM c LEFT JOIN simba_mutex m ON m.mutex = "+quote(mutex))
	var r row
	if err == nil {
		r, err = s.parse(rows[0])
	}
	if err != nil {
		return r.State, s.fail(sent, err)
	}
	s.clock.Learn(r.Now, sent, time.Now())
	return r.State, nil
}

// Ping implements proxy.Store. It reads the database's clock.
func (s *store) Ping(ctx context.Context) error {
	_, err := s.Read(ctx, "", false)
	return err
}

// scanKey is ScanKey as an expression.
const scanKey = "('x' || left(encode(sha256(convert_to(m.mutex, 'UTF8')), 'hex'), 8))::bit(32)::bigint"

// ScanKey implements proxy.Store.
func (s *store) ScanKey(mutex string) uint64 {
	sum := sha256.Sum256([]byte(mutex))
	return uint64(binary.BigEndian.Uint32(sum[:]))
}

// Scan implements proxy.Store. The database reads the whole table, and sorts what it finds.
func (s *store) Scan(ctx context.Context, from, to uint64, limit int) ([]proxy.Scanned, error) {
	// The outer join returns what the node is even if no mutex has an owner.
	statement := "WITH " + nowOnce + " SELECT c.read_only, c.timeline, c.now, " + columns + ", m.mutex FROM c LEFT JOIN simba_mutex m ON " + isLive
	if from > 0 || limit > 0 {
		statement += fmt.Sprintf(" AND %s BETWEEN %d AND %d", scanKey, from, to)
	}
	statement += " ORDER BY " + scanKey + ", m.mutex"
	if limit > 0 {
		statement += fmt.Sprintf(" LIMIT %d", limit)
	}
	sent := time.Now()
	rows, err := s.exec(ctx, statement)
	if err != nil {
		return nil, s.fail(sent, err)
	}
	list := make([]proxy.Scanned, 0, len(rows))
	for _, v := range rows {
		r, err := s.parse(v)
		if err != nil {
			return nil, s.fail(sent, err)
		}
		if mutex := string(v[10]); !r.missing {
			list = append(list, proxy.Scanned{Mutex: mutex, Key: s.ScanKey(mutex), State: r.State})
		}
	}
	return list, nil
}

// Horizon implements proxy.Store. A step that passes its deadline has locked the row before. So who
// locks the row after the deadline sees what the step has changed. The rest is for an estimate of
// the clock that has become more exact since the step was sent.
func (s *store) Horizon(t time.Time) int64 { return s.clock.Latest(t) + 1000 }

// CheckNames implements proxy.Store. The table holds all names.
func (s *store) CheckNames(_, _ string) error { return nil }

// Start implements proxy.Store. It may create the table and the sequence, unless both exist: a role
// that must not create them may still start.
func (s *store) Start(ctx context.Context, h proxy.Hooks) error {
	s.hooks = h
	if s.migrate {
		ctx, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		missing, err := s.exec(ctx, "SELECT to_regclass('simba_mutex') IS NULL OR to_regclass('simba_token') IS NULL")
		if err == nil && string(missing[0][0]) == "t" {
			_, err = s.exec(ctx, Schema)
		}
		if err != nil {
			return err
		}
	}
	s.watch.start(s)
	return nil
}

// Close implements proxy.Store.
func (s *store) Close() error {
	s.watch.close()
	s.pool.Close()
	return nil
}

var (
	// errStandby is returned when a connection leads to a node that refuses writes.
	errStandby = errors.New("the database is read-only: it is a standby, or default_transaction_read_only is on")
	// errOldTimeline is returned when a connection leads to a node that another one has replaced.
	errOldTimeline = errors.New("the database is an old primary: another node was promoted since")
)

// checkNode returns an error unless the columns read_only and timeline are those of the primary. A
// transaction that began on a standby stays read-only. So the rows of a statement that is not
// read-only were read after the node's promotion.
func (s *store) checkNode(v [][]byte) error {
	if string(v[0]) != "off" || len(v[1]) != 8 {
		return errStandby
	}
	number, err := hex.DecodeString(string(v[1]))
	if err != nil {
		return fmt.Errorf("the name of the WAL file begins with %q", v[1])
	}
	timeline := binary.BigEndian.Uint32(number)
	for {
		switch seen := s.timeline.Load(); {
		case timeline < seen:
			return fmt.Errorf("%w: its timeline is %d, the other's is %d", errOldTimeline, timeline, seen)
		case timeline == seen || s.timeline.CompareAndSwap(seen, timeline):
			return nil
		}
	}
}
