package main

import (
	"fmt"
	"time"
)

// pingpong measures how often a second a server carries a message from one client to another and
// back, each way counted: no handoff from client to client can be faster.
func (b *bench) pingpong() {
	for _, s := range among(memory, redisMemory) {
		site := b.sites[s.name]
		if site == nil {
			continue
		}
		rate, err := bounce(site.addr, b.during)
		if err != nil {
			b.fault(bounces, err)
			continue
		}
		b.say("%-24s %-34s %9.0f/s", s.name, bounces, rate)
		b.table(bounces, "messages/s", "more", "Two clients bounce one message: PUBLISH to the one that subscribes, which does the same.").add(s.name, "2", rate)
	}
}

// player has a connection to publish by and one to listen on.
type player struct{ out, in *wire }

func newPlayer(addr, channel string) (*player, error) {
	out, err := dial(addr)
	if err != nil {
		return nil, err
	}
	in, err := dial(addr)
	if err != nil {
		return nil, err
	}
	_, err = in.ask(frame("SUBSCRIBE", channel))
	return &player{out, in}, err
}

func (p *player) close() { p.out.close(); p.in.close() }

func bounce(addr string, during time.Duration) (rate float64, err error) {
	a, err := newPlayer(addr, "ping")
	if err != nil {
		return 0, err
	}
	defer a.close()
	z, err := newPlayer(addr, "pong")
	if err != nil {
		return 0, err
	}
	defer z.close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := z.in.receive(); err != nil {
				return
			}
			if _, err := z.out.ask(frame("PUBLISH", "ping", "x")); err != nil {
				return
			}
		}
	}()
	n, began := 0, time.Now()
	for warm := began.Add(warmUp); ; n++ {
		if n > 0 && !warm.IsZero() && time.Now().After(warm) {
			n, began, warm = 0, time.Now(), time.Time{}
		}
		if warm.IsZero() && time.Since(began) >= during {
			break
		}
		if _, err := a.out.ask(frame("PUBLISH", "pong", "x")); err != nil {
			return 0, err
		}
		if _, err := a.in.receive(); err != nil {
			return 0, fmt.Errorf("no message came back: %w", err)
		}
	}
	rate = float64(2*n) / time.Since(began).Seconds()
	z.close()
	<-done
	return rate, nil
}
