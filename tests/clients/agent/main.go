// Agent drives the Go client for the cases of clients/cases.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp/client"
)

type request struct {
	ID       int    `json:"id"`
	Do       string `json:"do"`
	URL      string `json:"url"`
	Sentinel string `json:"sentinel"` // addresses with commas; "" = URL is that of the server
	CA       string `json:"ca"`
	Protocol int    `json:"protocol"`
	Timeout  int64  `json:"timeout"`
	Mutex    string `json:"mutex"`
	As       string `json:"as"`
	IDOf     string `json:"id_of"`
	TTL      int64  `json:"ttl"`
	Grace    int64  `json:"grace"`
	Limit    int64  `json:"limit"`
	Work     int64  `json:"work"`
	Period   int64  `json:"period"`
	Token    uint64 `json:"token"`
	MS       int64  `json:"ms"`
}

type fields map[string]any

type agent struct {
	mu    sync.Mutex // guards out, locks and stops
	out   *json.Encoder
	locks map[string]*client.Lock
	stops map[string]context.CancelFunc

	rdb *redis.Client
	c   *client.Client
}

func main() {
	a := &agent{out: json.NewEncoder(os.Stdout), locks: make(map[string]*client.Lock), stops: make(map[string]context.CancelFunc)}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var r request
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		ctx, cancel := context.WithCancel(context.Background())
		if r.As != "" && r.Do != "stop" && r.Do != "unlock" && r.Do != "held" {
			a.mu.Lock()
			a.stops[r.As] = cancel
			a.mu.Unlock()
		}
		if r.Do == "open" || r.Do == "stop" {
			a.answer(ctx, r)
			continue
		}
		go a.answer(ctx, r)
	}
}

func (a *agent) answer(ctx context.Context, r request) {
	result, err := a.do(ctx, r)
	line := fields{"id": r.ID, "ok": result}
	if err != nil {
		line = fields{"id": r.ID, "error": code(err), "text": err.Error()}
	}
	a.say(line)
	if r.Do == "close" {
		os.Exit(0)
	}
}

// say writes a line with the time on the clock that all processes of the machine share.
func (a *agent) say(line fields) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	line["at"] = now.Nano() / 1000
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = a.out.Encode(line)
}

func code(err error) string {
	var reply redis.Error
	switch {
	case errors.Is(err, client.ErrLost):
		return "lost"
	case errors.Is(err, client.ErrInUse):
		return "in_use"
	case errors.Is(err, client.ErrClosed):
		return "closed"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, client.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, client.ErrNotAcquired):
		return "not_acquired"
	case errors.As(err, &reply):
		return "refused"
	}
	return "argument"
}

func (a *agent) do(ctx context.Context, r request) (fields, error) {
	terms := []client.Option{client.WithID(r.IDOf)}
	if r.TTL != 0 {
		terms = append(terms, client.WithTTL(millis(r.TTL)), client.WithTransition(millis(r.Grace)))
	}
	switch r.Do {
	case "open":
		return nil, a.open(r)
	case "lock", "try_lock":
		return a.lock(ctx, r, terms)
	case "unlock":
		return nil, a.lockOf(r.As).Unlock(ctx)
	case "held":
		return fields{"held": a.lockOf(r.As).Context().Err() == nil}, nil
	case "lead":
		return nil, a.c.Lead(ctx, r.Mutex, func(ctx context.Context) error {
			a.say(fields{"event": "begin", "as": r.As, "token": client.Token(ctx)})
			if r.Work == 0 {
				<-ctx.Done()
			} else {
				sleep(ctx, millis(r.Work))
			}
			a.say(fields{"event": "end", "as": r.As, "lost": errors.Is(context.Cause(ctx), client.ErrLost)})
			return nil
		}, terms...)
	case "every":
		return nil, a.c.Every(ctx, r.Mutex, client.Schedule{Period: millis(r.Period)}, func(ctx context.Context) error {
			a.say(fields{"event": "run", "as": r.As, "token": client.Token(ctx)})
			return nil
		}, terms...)
	case "watch":
		for s, err := range a.c.Watch(ctx, r.Mutex) {
			if err == nil {
				a.say(fields{"event": "owner", "as": r.As, "owner": s.Owner.ID, "token": s.Owner.Token})
			}
		}
		return nil, ctx.Err()
	case "stop":
		a.mu.Lock()
		defer a.mu.Unlock()
		a.stops[r.As]()
		return nil, nil
	case "owner":
		o, err := a.c.Owner(ctx, r.Mutex)
		return fields{"owner": o.ID, "token": o.Token}, err
	case "check":
		holds, err := a.c.Check(ctx, r.Mutex, r.Token)
		return fields{"holds": holds}, err
	case "block":
		time.Sleep(millis(r.MS))
		return nil, nil
	case "close":
		return nil, a.c.Close()
	}
	return nil, fmt.Errorf("unknown request %q", r.Do)
}

func (a *agent) open(r request) error {
	o, err := redis.ParseURL(r.URL)
	if err != nil {
		return err
	}
	o.ContextTimeoutEnabled = true
	o.Protocol = r.Protocol
	if r.CA != "" {
		text, err := os.ReadFile(r.CA)
		if err != nil {
			return err
		}
		o.TLSConfig.RootCAs = x509.NewCertPool()
		o.TLSConfig.RootCAs.AppendCertsFromPEM(text)
		o.TLSConfig.MinVersion = tls.VersionTLS12
	}
	a.rdb = redis.NewClient(o)
	if r.Sentinel != "" {
		a.rdb = redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "simba", SentinelAddrs: strings.Split(r.Sentinel, ","), Protocol: o.Protocol,
			Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig, ContextTimeoutEnabled: true,
		})
	}
	a.c, err = client.New(a.rdb, client.Options{Timeout: millis(r.Timeout), TTL: millis(r.TTL), Transition: millis(r.Grace)})
	return err
}

func (a *agent) lock(ctx context.Context, r request, terms []client.Option) (fields, error) {
	if r.Limit != 0 {
		limited, cancel := context.WithTimeout(ctx, millis(r.Limit))
		defer cancel()
		ctx = limited
	}
	lock := a.c.Lock
	if r.Do == "try_lock" {
		lock = a.c.TryLock
	}
	l, err := lock(ctx, r.Mutex, terms...)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.locks[r.As] = l
	a.mu.Unlock()
	context.AfterFunc(l.Context(), func() {
		if errors.Is(context.Cause(l.Context()), client.ErrLost) {
			a.say(fields{"event": "lost", "as": r.As})
		}
	})
	return fields{"token": l.Token(), "id": l.Owner().ID}, nil
}

func (a *agent) lockOf(as string) *client.Lock {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.locks[as]
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
