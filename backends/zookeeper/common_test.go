package zookeeper

import (
	"context"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
)

var ctx = context.Background()

// longLease is the longest lease of the default session timeout.
const longLease = DefaultSessionTimeout / 2

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func guardOf(mutex, contender string, ttl time.Duration) simba.GuardRequest {
	return simba.GuardRequest{Mutex: mutex, Contender: contender, TTL: ttl}
}
