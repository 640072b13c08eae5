package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// ask runs a script on a mutex and applies its reply. Its errors are simba.ErrStopped,
// *simba.UnavailableError and *simba.MisconfiguredError. After an error the script may have run.
func (b *Backend) ask(ctx context.Context, mutex string, s *script, args ...any) (*reply, error) {
	if away := b.Away(); away != nil && !b.Stopped() {
		return nil, away
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	refusal := b.Checks.Refusal()
	all := s.command(mutex, b.header(refusal != nil), args...)

	sent := time.Now()
	raw, err := b.up.run(ctx, simba.MutexChannel(mutex), s, all)
	var st *reply
	if err == nil {
		st, err = parseReply(mutex, raw)
	}
	if slotMoves(err) {
		if s == acquireScript || s == guardScript {
			st = b.renewWhileSlotMoves(ctx, mutex, s, args)
		}
		if err = b.warnOfMovingSlot(mutex, err); st != nil {
			err = nil
		}
	}
	if err != nil {
		if b.Waiters.Count(mutex) > 0 {
			b.schedule.bringForward(time.Now().Add(retryAfter), mutex)
		}
		return nil, b.requestError(err)
	}
	st.sent = sent
	b.applyReply(mutex, st)
	switch st.status {
	case "full":
		return nil, b.requestError(errFull)
	case "closed":
		return nil, refusal
	}
	if owned := st.status == "acquired" || st.status == "renewed"; owned && time.Since(sent) >= proxy.Between(st.now, st.ends) {
		return nil, b.requestError(errLate)
	}
	return st, nil
}

var (
	// errFull is the cause when Redis has no memory left for a new contender. The text is that of
	// Redis.
	errFull = errors.New("OOM command not allowed when used memory > 'maxmemory'.")
	// errLate is the cause when a granted or renewed lease may have ended before the reply arrived.
	errLate = errors.New("the reply took longer than the lease")
)

// reconcileAndRead returns the state of a mutex. The script first repairs it if needed.
func (b *Backend) reconcileAndRead(ctx context.Context, mutex string) (*reply, error) {
	return b.ask(ctx, mutex, reconcileScript, "0", "", 0)
}

func (b *Backend) acquire(ctx context.Context, r simba.AcquireRequest, mode, ticket string) (*reply, error) {
	return b.ask(ctx, r.Mutex, acquireScript, r.Contender, r.TTL.Milliseconds(), r.Transition.Milliseconds(),
		mode, proxy.Binding(b.id, r.Session), ticket)
}

// header returns the first arguments of every script: see lua/state.lua. pipeline.do sets the
// deadline, which is nil here. closed: no tenure may begin.
func (b *Backend) header(closed bool) [6]any {
	flags := ""
	if b.up.cluster != nil {
		flags += "cluster "
	}
	if closed {
		flags += "closed "
	}
	if b.plainChannels {
		flags += "plain "
	}
	return [6]any{
		b.id, b.HandoffWindow().Milliseconds(), b.QueueGrace().Milliseconds(), flags, nil, b.fenceTTL.Milliseconds(),
	}
}

func tokenText(token uint64) string { return strconv.FormatUint(token, 10) }

func (b *Backend) requestError(err error) error {
	if b.Stopped() || errors.Is(err, simba.ErrStopped) {
		return simba.ErrStopped
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no reply within %v", b.timeout)
	}
	if refusal := lastingCause(err); refusal != nil {
		return &simba.MisconfiguredError{Engine: "redis", Err: refusal}
	}
	busy := errors.Is(err, errLate)
	if !busy && b.up.cluster == nil { // in a cluster, the other nodes may answer
		b.Probe(b.timeout, b.ping, b.subs.catchUp)
	}
	return &simba.UnavailableError{Engine: "redis", Err: err, Busy: busy}
}

// ping returns the cause if Redis does not answer, and a *simba.MisconfiguredError if it refuses.
func (b *Backend) ping(ctx context.Context) error {
	err := b.up.client.Ping(ctx).Err()
	if err != nil {
		err = b.requestError(err)
	}
	if away := new(simba.UnavailableError); errors.As(err, &away) {
		return away.Err
	}
	return err
}
