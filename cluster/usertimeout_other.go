//go:build !linux

package cluster

import (
	"syscall"
	"time"
)

func endStalled(syscall.RawConn, time.Duration) error { return nil }
