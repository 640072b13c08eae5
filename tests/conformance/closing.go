package conformance

import (
	"context"
	"errors"
	"sync"

	"github.com/simba-resp/simba-resp"
)

type call struct {
	name string
	do   func(ctx context.Context, b simba.Backend, m string) error
}

// calls are calls of all methods that need the store.
var calls = []call{
	{"acquire", func(ctx context.Context, b simba.Backend, m string) error {
		_, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: m, Contender: "x", TTL: sec})
		return err
	}},
	{"acquire by a waiter", func(ctx context.Context, b simba.Backend, m string) error {
		_, ticket, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: m, Contender: "y", TTL: sec, Waiter: noWaiter{}})
		if ticket != nil {
			_, err = ticket.End(simba.EndGone)
		}
		return err
	}},
	{"guard", func(ctx context.Context, b simba.Backend, m string) error {
		_, err := b.Guard(ctx, simba.GuardRequest{Mutex: m, Contender: "owner", TTL: long})
		return err
	}},
	{"release", func(ctx context.Context, b simba.Backend, m string) error {
		_, _, err := b.Release(ctx, simba.ReleaseRequest{Mutex: m, Contender: "z"})
		return err
	}},
	{"owner", func(ctx context.Context, b simba.Backend, m string) error {
		_, _, err := b.Owner(ctx, m)
		return err
	}},
	{"check", func(ctx context.Context, b simba.Backend, m string) error {
		_, _, err := b.Check(ctx, m, 1)
		return err
	}},
	{"break", func(ctx context.Context, b simba.Backend, m string) error {
		_, _, err := b.Break(ctx, m+"-other", "")
		return err
	}},
	{"scan", func(ctx context.Context, b simba.Backend, m string) error {
		_, _, err := b.Scan(ctx, simba.ScanRequest{})
		return err
	}},
}

// noWaiter is a waiter that ignores its wake-up.
type noWaiter struct{}

func (noWaiter) Wake() {}

func lifeRules() []rule {
	return []rule{
		{"close", "every method of a closed server returns ErrStopped", 0, func(tc *testCase) {
			s, m := tc.held()
			x := s.block(m, "b", long, 0)
			s.close()
			s.close()
			ctx := context.Background()
			all := append([]call{
				{"queue", func(ctx context.Context, b simba.Backend, m string) error {
					_, _, err := b.Queue(ctx, m, 1)
					return err
				}},
				{"history", func(ctx context.Context, b simba.Backend, m string) error {
					_, _, err := b.History(ctx, simba.HistoryRequest{Mutex: m})
					return err
				}},
				{"commit", func(ctx context.Context, b simba.Backend, m string) error { return b.Commit(1) }},
				{"the end of a wait", func(context.Context, simba.Backend, string) error {
					_, err := x.ticket.End(simba.EndWoken)
					return err
				}},
				{"subscribed", func(ctx context.Context, b simba.Backend, m string) error {
					_, err := b.Subscribed(ctx, simba.ContenderChannel(m, "b"), false)
					return err
				}},
			}, calls...)
			for _, c := range all {
				if err := c.do(ctx, s.b, m); !errors.Is(err, simba.ErrStopped) {
					tc.t.Errorf("%s after Close: %v; want ErrStopped", c.name, err)
				}
			}
		}},
		{"close", "a server can be closed while it is busy", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			var all sync.WaitGroup
			for range 4 {
				for _, c := range calls {
					all.Go(func() {
						for {
							err := c.do(context.Background(), s.b, m)
							if unavailable := (*simba.UnavailableError)(nil); errors.Is(err, simba.ErrStopped) {
								return
							} else if err != nil && !errors.As(err, &unavailable) {
								tc.t.Errorf("%s during Close: %v; want ErrStopped or an UnavailableError",
									c.name, err)
								return
							}
						}
					})
				}
			}
			pause(100 * ms)
			s.close()
			all.Wait()
		}},
		{"close", "a subscription to any other channel succeeds", 0, func(tc *testCase) {
			s := tc.server()
			for _, channel := range []string{"news", "simba:{", "simba:{}", "simba:x", "simba-events:{", "simba:{m", ""} {
				s.subscribe(channel)
				s.psubscribe(channel)
			}
			s.psubscribe("*")
			m := tc.mutex()
			s.mustAcquire(m, "a", long, 0)
		}},
	}
}
