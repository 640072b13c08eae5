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

	"github.com/simba-resp/simba-resp/backends/backendtest/seeds"
)

// redisContender runs the scripts of Simba's Redis backend, and waits on its own channel for its turn, at most
// until the lease that it saw has ended.
type redisContender struct {
	w          *wire
	sub        *wire // nil if nobody else wants the mutex
	id         string
	take, give []byte
}

// toRedis connects contenders of Simba to a Redis.
func toRedis(addr string) connector {
	return func(mutex, id string, hot bool) (contender, error) {
		w, err := dial(addr)
		if err != nil {
			return nil, err
		}
		key := "simba:{" + mutex + "}"
		c := &redisContender{w: w, id: id}
		for _, s := range []struct {
			script  string
			command *[]byte
			args    []string
		}{
			{seeds.SimbaAcquire, &c.take, []string{leaseMS}},
			{seeds.SimbaRelease, &c.give, nil},
		} {
			if _, err := w.ask(frame("SCRIPT", "LOAD", s.script)); err != nil {
				return nil, err
			}
			*s.command = frame(append([]string{"EVALSHA", sha(s.script), "1", key, id}, s.args...)...)
		}
		if hot {
			if c.sub, err = dial(addr); err != nil {
				return nil, err
			}
			if _, err := c.sub.ask(frame("SUBSCRIBE", key+":"+id)); err != nil {
				return nil, err
			}
		}
		return c, nil
	}
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
			return fmt.Errorf("%s owns it", owner)
		}
		if err := c.sub.c.SetReadDeadline(time.Now().Add(left)); err != nil {
			return err
		}
		if _, err := c.sub.receive(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

// owner runs a script that answers with the owner and what is left of its lease.
func (c *redisContender) owner(command []byte) (id string, left time.Duration, err error) {
	got, err := c.w.ask(command)
	if err != nil {
		return "", 0, err
	}
	id, text, _ := strings.Cut(string(got[0]), "@@")
	ms, err := strconv.Atoi(text)
	if err != nil {
		return "", 0, fmt.Errorf("the answer is %q", got)
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
