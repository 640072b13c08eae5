package contenders

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/contend"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
	"github.com/simba-resp/simba-resp/tests/tenures"
)

// Ten contenders of one mutex run for at least 30 s, until each has owned it. They resign now and
// then. Two of them lose their connections at times. The case is that of Simba's compatibility kit
// for its backends.
func TestOfTenContendersThereAreNeverTwoOwners(t *testing.T) {
	simbatest.OnEveryEngine(t, func(t *testing.T, engine string) { tenContenders(t, simbatest.StartOn(t, engine)) })
}

func tenContenders(t *testing.T, s *simbatest.Server) {
	const mutex, contenders, cutOff, length = "ten", 10, 2, 30 * time.Second
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	var noted tenures.Log
	for i := range contenders {
		id := fmt.Sprint("c", i)
		if i < cutOff {
			link := stores.NewLink(t, s.Addr)
			k := newPasser(t, newClient(t, link.Addr()), mutex, id, 5*passerLease, &noted)
			all.Go(func() { k.run(ctx) })
			all.Go(func() { cut(ctx, k, link) })
			continue
		}
		k := newPasser(t, newClient(t, s.Addr), mutex, id, rand.N(passerLease), &noted)
		all.Go(func() { k.run(ctx) })
	}
	time.Sleep(length)
	for end := time.Now().Add(simbatest.Patience); len(noted.Owners()) < contenders && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	cancel()
	all.Wait()
	n := tenures.ServerSaw(t, changes(t, connect(t, s.Addr), mutex, 0), noted.NeverTwo(t))
	owners := noted.Owners()
	if len(owners) != contenders {
		t.Errorf("%d of %d contenders have owned the mutex; tenures: %v", len(owners), contenders, owners)
	}
	t.Logf("the server had %d tenures; the contenders noted %v", n, owners)
}

// cut repeatedly breaks the link of k while k is the owner, each time for longer than a lease.
func cut(ctx context.Context, k *passer, link *stores.Link) {
	for n := 0; ctx.Err() == nil; n++ {
		if time.Sleep(50 * time.Millisecond); !k.IsOwner() {
			continue
		}
		if n%2 == 0 {
			link.Blackhole()
		} else {
			link.Refuse()
		}
		time.Sleep(passerLease + rand.N(passerLease))
		link.Heal()
	}
}

const passerLease = 800 * time.Millisecond

// passer owns the mutex for some time, and then resigns.
type passer struct {
	*contend.Contender
	tired chan struct{} // gets a value when it has owned the mutex for long enough
}

func newPasser(t testing.TB, c *client.Client, mutex, id string, want time.Duration, noted *tenures.Log) *passer {
	t.Helper()
	p := &passer{tired: make(chan struct{}, 1)}
	k, err := contend.New(c, mutex, 0, func(ctx context.Context) {
		enough := time.AfterFunc(want, func() {
			select {
			case p.tired <- struct{}{}:
			default:
			}
		})
		defer enough.Stop()
		noted.Watch(ctx, id, client.Token(ctx))
	}, nil, client.WithID(id), client.WithTTL(passerLease/2), client.WithTransition(passerLease/2))
	simbatest.Must(t, err)
	p.Contender = k
	return p
}

func (p *passer) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := p.Start(); err != nil {
			panic(err) // a stopped contender can always start
		}
		select {
		case <-p.tired:
		case <-ctx.Done():
		}
		_ = p.Stop(context.Background()) // returns an error if its link is broken
	}
}
