package proxy

import (
	"context"

	"github.com/simba-resp/simba-resp"
)

// RenewOnly is what an Acquire that is Full comes down to where the store has the queue: to
// renew, or simba.ErrOutOfMemory. It asks the store once, and leaves nothing anywhere. What binds the
// lease to a session stays as it is.
func RenewOnly(ctx context.Context, b simba.Backend, r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
	o, err := b.Guard(ctx, simba.GuardRequest{Mutex: r.Mutex, Contender: r.Contender, TTL: r.TTL, Transition: r.Transition})
	if err != nil {
		return simba.Outcome{}, nil, err
	}
	if o.Status != simba.StatusRenewed {
		return simba.Outcome{}, nil, simba.ErrOutOfMemory
	}
	return o, nil, nil
}
