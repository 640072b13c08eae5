package mysql

import (
	"context"
	"errors"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

// The token of a tenure is the row's fencing_token.
//
// Every contender increments version when it begins or ends a tenure. A contender on the JVM
// (Simba's own code) also does so when it renews. With the setting simba.jdbc.fencing, Simba 3.3
// and later increment fencing_token when a tenure begins. Other contenders on the JVM leave it
// unchanged; the table below calls them "up to 3.2". So fencing_token shows which program set it:
//
//	fencing_token               set by
//	version * tokenUnit         this engine, which granted or released the mutex
//	version * tokenUnit + 1     this engine, which assigned it to an owner up to 3.2
//	n * tokenUnit, n < version  nobody: an owner up to 3.2 came after this engine's step, or the first
//	any other                   a contender on the JVM
//
// The first server that reads the row of an owner without a token assigns one (read). The assigned
// token is larger than all earlier tokens. Simba 3.3 increments version whenever it increments
// fencing_token, so fencing_token is always below (version + 1) * tokenUnit. The owner without a
// token has incremented version once more.
//
// The engine's tokens are below 2^53 until the version needs more than 33 bits. After a million
// tenures of 3.3 in a row, a token that 3.3 has set can be n * tokenUnit too. Then a server assigns
// another token, which the owner learns when it renews.
const (
	tokenUnit    = 1_000_000 // the statements contain it as a literal
	assignedMark = 1         // fencing_token % tokenUnit, if this engine assigned it

	nextVersion = "(GREATEST(version, fencing_token DIV 1000000) + 1)"
	setToken    = ", fencing_token = version * 1000000" // after the assignment of version
	// ofAny and ofToken say whose tenure a statement changes: one with a token of this engine, or
	// the one with the given token.
	ofAny   = " AND fencing_token = version * 1000000"
	ofToken = " AND IF(fencing_token % 1000000 = 0, version * 1000000, fencing_token) = ?"

	// assignToken does nothing if the row has changed.
	assignToken = "UPDATE simba_mutex SET fencing_token = version * 1000000 + 1 WHERE " + sameMutex + " AND version = ? AND fencing_token = ?"
)

// derive sets the fields of the state that are not in the row. AcquiredAt may be later than Now, by
// up to clockError. Then derive sets Now to AcquiredAt, so that the lease never has more time left
// than its request wanted.
func (r *row) derive() {
	if r.Token = r.fencing; r.fencing%tokenUnit == 0 {
		r.Token = r.Revision * tokenUnit
	}
	r.Mark = r.AcquiredAt
	r.Live = r.TransitionAt > r.Now
	if ahead := r.AcquiredAt - r.Now; ahead > 0 && ahead <= clockError {
		r.Now = r.AcquiredAt
	}
}

// lacksToken reports whether the row shows that its owner has no token of its own. The
// fencing_token is then that of an earlier grant or release by this engine.
func (r row) lacksToken() bool {
	return r.Owner != "" && r.fencing%tokenUnit == 0 && r.fencing/tokenUnit < r.Revision
}

var errUnassigned = errors.New("the owner has no token, and the row changes at each attempt to assign one")

// read reads the row of a mutex. It assigns a token to an owner that has none, as far as this
// server knows. If several servers try, one succeeds.
func (s *store) read(ctx context.Context, mutex string, lock bool) (r row, err error) {
	for range 5 {
		since := s.tenures.version(mutex)
		r, err = s.readOnce(ctx, mutex, lock)
		if err != nil || !r.lacksToken() && s.tenures.note(mutex, r, since) {
			return r, err
		}
		_, ok, err := s.exec(ctx, assignToken, mutex, mutex, r.Revision, r.fencing)
		if err != nil {
			return r, err
		}
		if ok {
			r.fencing = r.Revision*tokenUnit + assignedMark
			r.Token = r.fencing
			s.tenures.note(mutex, r, since)
			return r, nil
		}
	}
	return r, proxy.NotDone{Err: errUnassigned}
}
