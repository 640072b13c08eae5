package zookeeper

import (
	"fmt"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// patternSubscriber has a subscriber of every pattern.
type patternSubscriber struct{ *conformance.Broker }

func (patternSubscriber) SubscribedPattern(string) bool { return true }
func (patternSubscriber) Any() bool                     { return true }

func TestDeletedMutexIsNotWatched(t *testing.T) {
	srv := stores.ZooKeeper(t)
	b := open(t, Options{Servers: srv.Addr, Options: proxy.Options{Notices: patternSubscriber{newBroker("simba:{m}")}}})
	for i := range 100 {
		subscribe(t, b, fmt.Sprintf("simba:{m}:c%d", i))
	}
	subscribe(t, b, "simba:*")
	for i := range 100 {
		m := fmt.Sprintf("job-%d", i)
		take(t, b, m, "a", time.Minute)
		giveUp(t, b, m, "a")
	}
	await(t, "the server knows only m, without listeners", func() bool {
		b.store.mu.Lock()
		defer b.store.mu.Unlock()
		return len(b.store.mutexes) <= 1 && len(b.store.watched) == 1
	})
}

// The watcher of a pattern does not watch for the creation of each mutex.
func TestPatternSubscriberSeesARecreatedMutex(t *testing.T) {
	srv := stores.ZooKeeper(t)
	heard := patternSubscriber{newBroker()}
	one, two := open(t, Options{Servers: srv.Addr, Options: proxy.Options{Notices: heard}}), open(t, Options{Servers: srv.Addr})
	subscribe(t, one, "simba:*")
	c := raw(t, srv.Addr)
	for i := range 3 {
		take(t, two, "m", "a", time.Minute)
		await(t, "the tenure is announced", func() bool { return heard.Count("simba:{m}", "acquired@@a") == i+1 })
		giveUp(t, two, "m", "a")
		await(t, "the mutex's node is deleted", func() bool { there, _, err := c.Exists("/simba/m"); return err == nil && !there })
	}
}
