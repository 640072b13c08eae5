package main

import (
	"testing"

	"github.com/simba-resp/simba-resp/backends/zookeeper"
)

// The guide of the engine zookeeper asks for leases of at most half of the session timeout.
func TestDefaultLeaseOfWrapperIsAtMostHalfOfTheZooKeeperSession(t *testing.T) {
	if lease := defaultTTL + defaultGrace; lease > zookeeper.DefaultSessionTimeout/2 {
		t.Errorf("the default lease of lock and elect is %v, want at most half of the session timeout, %v", lease, zookeeper.DefaultSessionTimeout)
	}
}
