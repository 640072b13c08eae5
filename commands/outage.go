package commands

import (
	"context"
	"errors"
	"time"

	"github.com/simba-resp/simba-resp"
)

// outage counts the time that the commands of one batch have lost to a store that does not answer.
// The server sends the replies of a batch together. So a pipeline of a hundred commands must not
// wait for a hundred timeouts. After a fast failure the next command still calls the store, because
// it may reach another node. A refusal (simba.MisconfiguredError) does not count, because the store
// has answered.
type outage struct {
	err   error         // the last error of the store
	lost  time.Duration // time that failed commands took
	fresh bool          // the method note has not yet been called for the command that met err
}

// outageLimit is the lost time after which the next commands of the batch do not call the store.
const outageLimit = time.Second

func (o *outage) met(err error) {
	if lost := (*simba.UnavailableError)(nil); errors.As(err, &lost) {
		o.err, o.fresh = lost, true
	}
}

// note adds the time of a command to the lost time, if the command met an error of the store.
func (o *outage) note(took time.Duration) {
	if o.fresh {
		o.lost, o.fresh = o.lost+took, false
	}
}

func (o *outage) over() bool { return o.lost >= outageLimit }

// refusing is a backend that fails without calling its store.
type refusing struct {
	simba.Backend // serves the calls that do not need the store
	err           error
}

func (r refusing) Acquire(context.Context, simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
	return simba.Outcome{}, nil, r.err
}

func (r refusing) Guard(context.Context, simba.GuardRequest) (simba.Outcome, error) {
	return simba.Outcome{}, r.err
}

func (r refusing) Release(context.Context, simba.ReleaseRequest) (bool, simba.Seq, error) {
	return false, 0, r.err
}

func (r refusing) Owner(context.Context, string) (simba.Tenure, simba.Seq, error) {
	return simba.Tenure{}, 0, r.err
}

func (r refusing) Queue(context.Context, string, int) ([]simba.QueueEntry, simba.Seq, error) {
	return nil, 0, r.err
}

func (r refusing) Scan(context.Context, simba.ScanRequest) (simba.ScanPage, simba.Seq, error) {
	return simba.ScanPage{}, 0, r.err
}

func (r refusing) Check(context.Context, string, uint64) (bool, simba.Seq, error) {
	return false, 0, r.err
}

func (r refusing) Break(context.Context, string, string) (bool, simba.Seq, error) {
	return false, 0, r.err
}

// Subscribed reports the subscription to the engine with a canceled context, so that the engine
// does not wait for the store.
func (r refusing) Subscribed(ctx context.Context, channel string, pattern bool) (simba.Seq, error) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return r.Backend.Subscribed(ctx, channel, pattern)
}
