package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/cli"
)

// loginWatch notes for how long the server has refused the login of a client. It is a redis.Hook,
// which sees the errors of new connections too. Safe for concurrent use.
type loginWatch struct {
	after   time.Duration
	refused chan error // has the refusal when the server has refused the login for the time after

	mu       sync.Mutex  // protects this group
	timer    *time.Timer // until refused gets the refusal; nil = the login is not refused
	accepted bool        // the server has accepted a login
}

// DialHook implements redis.Hook.
func (w *loginWatch) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (w *loginWatch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook.
func (w *loginWatch) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		// The replies to other requests do not show whether the user may contend.
		if replied := err == nil || errors.As(err, new(redis.Error)); !replied || strings.HasPrefix(cmd.Name(), "simba.") {
			w.note(err, replied)
		}
		return err
	}
}

// note notes the error of a request. If the server has not replied and not refused the login, the
// error says nothing about the login.
func (w *loginWatch) note(err error, replied bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch refused := cli.RefusesLogin(err); {
	case refused && w.timer == nil:
		var timer *time.Timer
		timer = time.AfterFunc(w.after, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.timer == timer {
				w.refused <- err
			}
		})
		w.timer = timer
	case !refused && replied:
		w.accepted = true
		if w.timer != nil {
			w.timer.Stop()
		}
		w.timer = nil
		select {
		case err = <-w.refused: // it has recovered
		default:
		}
	}
}

// mayRecover reports whether err refuses a login that was accepted before. Then a file may be about
// to change.
func (w *loginWatch) mayRecover(err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.accepted && cli.RefusesLogin(err)
}
