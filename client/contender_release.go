package client

import (
	"context"
	"errors"
	"time"
)

// requestResign ends an ownership and makes the goroutine of the run resign. It does not wait.
func (r *contenderRun) requestResign(own *ownership, how resignation) {
	r.resign.Store(int32(how))
	_ = own.Err() // ends the ownership with ErrLost if the lease has ended
	own.end(ErrReleased)
	r.askNow()
}

// doResign waits for the callbacks and releases the mutex. It returns true when the run may contend
// again, and false when the run is over.
func (r *contenderRun) doResign() bool {
	if r.own != nil && !r.lose(ErrReleased, Owner{}) || !r.afterLoss() {
		return false
	}
	pause := resignation(r.resign.Load()) == resignForTTL
	if pause && r.releasing != nil {
		r.releasing()
	}
	if _, err := r.release(r.lastToken, r.quit); err != nil {
		return !r.stopping() && r.fail(err)
	}
	r.report.released(nil)
	r.resign.Store(int32(noResignation))
	if pause {
		if r.waiting != nil {
			r.waiting(Owner{})
		}
		return r.sleep(r.ttl, nil)
	}
	return !r.stopping()
}

// releaseEnded releases a tenure that has ended in this process but not at the server.
func (r *contenderRun) releaseEnded() bool {
	if _, err := r.release(r.lastToken, r.quit); err != nil {
		return !r.stopping() && r.fail(err)
	}
	return !r.stopping()
}

// release releases the tenure with the given token. Token 0 releases any tenure, and the queue
// entry. release waits for the reply until Timeout or until enough is closed. After that the
// request may continue in the background.
func (r *contenderRun) release(token uint64, enough <-chan struct{}) (released bool, err error) {
	type outcome struct {
		released bool
		err      error
	}
	terms := r.terms // as in send
	answer := make(chan outcome, 1)
	r.requests.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), r.c.timeout)
		defer cancel()
		released, err := r.c.release(ctx, terms, token)
		answer <- outcome{released, err}
	})
	late := time.NewTimer(r.c.timeout)
	defer late.Stop()
	select {
	case o := <-answer:
		return o.released, o.err
	case <-late.C:
	case <-enough:
	}
	return false, errNoAnswer
}

// giveUp ends the ownership, waits for the callbacks, and releases the mutex or the queue entry. It
// returns when the server has confirmed or refused the release, or when the lease has expired.
func (r *contenderRun) giveUp() error {
	r.stop() // if the run has ended by itself, nobody has called stop yet
	token := uint64(0)
	if r.own != nil {
		token = r.own.token
		r.lose(ErrReleased, Owner{})
	}
	r.report.gaveUp(r.seen)
	if r.listener != nil {
		r.c.subscriptions.remove(r.listener)
	}
	r.awaitCallbacks(nil)
	if r.releasing != nil {
		r.releasing()
	}
	r.endGuards()
	late := time.AfterFunc(r.c.timeout, func() {
		r.callEnded()
		r.finish(errNoAnswer)
	})
	defer late.Stop()
	err := r.releaseAll(token)
	r.requests.Wait() // a RELEASE that took longer than Timeout may still be in progress
	r.report.released(err)
	return err
}

// releaseAll sends RELEASE until the server confirms or refuses it, or the lease has expired.
func (r *contenderRun) releaseAll(token uint64) error {
	r.requests.Wait() // an ACQUIRE must not reach the server after the RELEASE
	if !r.present {
		return nil
	}
	if r.uncertain {
		token = 0
	}
	for repeated := false; ; repeated = true {
		released, err := r.release(token, nil)
		switch {
		case err == nil:
			if token != 0 && !released && !repeated {
				return ErrLost
			}
			return nil
		case refused(err), errors.Is(err, ErrClosed), now().since(r.sent) > r.lease():
			return err
		}
		r.pause = min(2*r.pause, time.Second)
		time.Sleep(r.pause / 2)
	}
}
