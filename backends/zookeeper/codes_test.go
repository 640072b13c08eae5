package zookeeper

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
)

// The library turns these codes of ZooKeeper into "unknown error".
func TestEveryCodeOfZooKeeperHasAName(t *testing.T) {
	for _, code := range []int{-1, -2, -3, -4, -5, -6, -7, -12, -13, -14, -113, -119, -120, -121, -122, -124, -125, -127} {
		err := named(fmt.Errorf("unknown error: %d", code))
		if strings.Contains(err.Error(), "unknown error") || !strings.HasSuffix(err.Error(), fmt.Sprintf(" (%d)", code)) {
			t.Errorf("the error with code %d is %q; want a name and the code", code, err)
		}
	}
	for _, err := range []error{zk.ErrNoNode, errors.New("unknown error: -999"), nil} {
		if named(err) != err {
			t.Errorf("named(%v) is %v; want the same error", err, named(err))
		}
	}
}
