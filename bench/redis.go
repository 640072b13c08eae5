package main

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
)

// redisContender runs the scripts of Simba's Redis backend. A waiter waits for a notice on its own
// channel, but not longer than the remaining lease that the script returned.
type redisContender struct {
	w          *wire
	sub        *wire // receives notices; nil if no other contender wants the mutex
	id         string
	take, give []byte
}

func toRedis(addr string) connector {
	return func(mutex, id string, hot bool) (contender, error) {
		w, err := dial(addr, lifetime())
		if err != nil {
			return nil, err
		}
		key := "simba:{" + mutex + "}"
		c := &redisContender{
			w: w, id: id,
			take: frame("EVALSHA", sha(seeds.SimbaAcquire), "1", key, id, leaseMS),
			give: frame("EVALSHA", sha(seeds.SimbaRelease), "1", key, id),
		}
		if err := c.prepare(addr, key, hot); err != nil {
			c.close()
			return nil, err
		}
		return c, nil
	}
}

// prepare loads the scripts. If hot is true, it subscribes to the contender's channel.
func (c *redisContender) prepare(addr, key string, hot bool) error {
	for _, script := range []string{seeds.SimbaAcquire, seeds.SimbaRelease} {
		if _, err := c.w.ask(frame("SCRIPT", "LOAD", script)); err != nil {
			return err
		}
	}
	if !hot {
		return nil
	}
	var err error
	if c.sub, err = dial(addr, lifetime()); err != nil {
		return err
	}
	_, err = c.sub.ask(frame("SUBSCRIBE", key+":"+c.id))
	return err
}

func sha(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

func (c *redisContender) acquire() error {
	for {
		owner, left, err := c.owner(c.take)
		if err != nil || owner == c.id {
			return err
		}
		if c.sub == nil {
			return fmt.Errorf("%s owns a mutex that no other contender should want", owner)
		}
		if err := c.sub.c.SetReadDeadline(time.Now().Add(left)); err != nil {
			return err
		}
		if _, err := c.sub.receive(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

// owner runs a script that returns the owner and the remaining time of its lease.
func (c *redisContender) owner(command []byte) (id string, left time.Duration, err error) {
	got, err := c.w.ask(command)
	if err != nil {
		return "", 0, err
	}
	id, text, _ := strings.Cut(string(got[0]), "@@")
	ms, err := strconv.Atoi(text)
	if err != nil {
		return "", 0, fmt.Errorf("the script returns %q, want an owner and a time", got)
	}
	return id, time.Duration(ms) * time.Millisecond, nil
}

func (c *redisContender) release() error { return c.w.yes(c.give) }

func (c *redisContender) close() {
	c.w.close()
	if c.sub != nil {
		c.sub.close()
	}
}
