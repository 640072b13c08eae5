package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// record is a reply that is a map in RESP3 and a flat array in RESP2. Fields that the server does
// not send are zero.
type record map[string]any

// toRecord converts a reply of go-redis. A null reply is a nil record.
func toRecord(reply any) (record, error) {
	r := make(record)
	switch reply := reply.(type) {
	case nil:
		return nil, nil
	case map[any]any:
		for name, value := range reply {
			r[fmt.Sprint(name)] = value
		}
	case []any:
		for i := 0; i+1 < len(reply); i += 2 {
			r[fmt.Sprint(reply[i])] = reply[i+1]
		}
	default:
		return nil, fmt.Errorf("the server replied %T instead of a record; is it simba-resp?", reply)
	}
	return r, nil
}

func (r record) text(name string) string { s, _ := r[name].(string); return s }
func (r record) number(name string) int64 {
	n, _ := r[name].(int64)
	return n
}

// optional returns a number, or nil if the record does not have it.
func (r record) optional(name string) *int64 {
	if n, ok := r[name].(int64); ok {
		return &n
	}
	return nil
}

// records converts a reply that is a list of records.
func records(reply any, err error) ([]record, error) {
	list, ok := reply.([]any)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, fmt.Errorf("the server replied %T instead of a list; is it simba-resp?", reply)
	}
	converted := make([]record, len(list))
	for i, element := range list {
		r, err := toRecord(element)
		if err != nil {
			return nil, err
		}
		converted[i] = r
	}
	return converted, nil
}

// reply returns the reply of a command. A null reply is nil and no error.
func reply(cmd *redis.Cmd) (any, error) {
	v, err := cmd.Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return v, err
}

// ask sends a command and returns its reply.
func ask(ctx context.Context, c *redis.Client, args ...any) (any, error) {
	v, err := reply(c.Do(ctx, args...))
	return v, Explain(c.Options(), err)
}

// Tenure is the reply of SIMBA.OWNER. The JSON of the types in this file follows the rule of the
// package, not the wire.
type Tenure struct {
	Mutex string `json:"mutex" doc:"name"`
	Held  bool   `json:"held" doc:"whether it has an owner; if not, numbers are 0"`
	Owner string `json:"owner" doc:"the owner"`
	Token int64  `json:"token" doc:"its fencing token"`

	Since        *int64 `json:"since" doc:"start of the tenure; null = the engine does not know it"`
	AcquiredAt   int64  `json:"acquired_at" doc:"start of the present lease: each renewal moves it"`
	TTLAt        *int64 `json:"ttl_at" doc:"end of the TTL window; null = no expiry, or no owner"`
	TransitionAt *int64 `json:"transition_at" doc:"end of the lease; null as of ttl_at"`
	Now          int64  `json:"now" doc:"time of the server"`
	TTL          *int64 `json:"ttl_ms" doc:"time left until ttl_at; null as of ttl_at"`
	Transition   *int64 `json:"transition_ms" doc:"time left until transition_at; null as of ttl_at"`

	Waiters    int64       `json:"waiters" doc:"length of the queue"`
	Connection *Connection `json:"connection" doc:"the connection of a SESSION lease, with id, addr and name as in CLIENT LIST; null = none"`
}

// Connection is the connection of a SESSION lease.
type Connection struct {
	ID   int64  `json:"id"`
	Addr string `json:"addr"`
	Name string `json:"name"`
}

// longestTTL is the longest TTL window of a contender, in milliseconds. A Redis key without expiry
// has a lease without end. The server always shows it as a lease that ends longestTTL from now.
const longestTTL = int64(24 * time.Hour / time.Millisecond)

func toTenure(mutex string, v any) (Tenure, error) {
	t := Tenure{Mutex: mutex}
	r, err := toRecord(v)
	if r == nil || err != nil {
		return t, err
	}
	t.Held = true
	t.Owner, t.Token = r.text("owner"), r.number("token")
	t.Since = r.optional("since")
	t.AcquiredAt, t.Now = r.number("acquired_at"), r.number("now")
	t.Waiters = r.number("waiters")
	// A contender's lease never exceeds longestTTL. A Redis key with a longer expiry also looks
	// like this, but only in the millisecond in which longestTTL is left.
	noExpiry := r.number("ttl") == longestTTL && r.number("ttl_at")-t.AcquiredAt > longestTTL
	if !noExpiry {
		t.TTLAt, t.TransitionAt = r.optional("ttl_at"), r.optional("transition_at")
		t.TTL, t.Transition = r.optional("ttl"), r.optional("transition")
	}
	if c, err := toRecord(r["connection"]); c != nil && err == nil {
		t.Connection = &Connection{c.number("id"), c.text("addr"), c.text("name")}
	}
	return t, nil
}

// Waiter is a record of SIMBA.QUEUE.
type Waiter struct {
	Contender string `json:"contender" doc:"the waiter"`
	Position  int64  `json:"position" doc:"its position, from 1"`
	Waiting   int64  `json:"waiting_ms" doc:"time in the queue"`
	Kind      string `json:"kind" doc:"blocked or polling"`
}

// Event is a record of SIMBA.HISTORY, and a message on the channel of a mutex.
type Event struct {
	Seq    int64  `json:"seq" doc:"number of the change on this server"`
	At     int64  `json:"at" doc:"time of the event"`
	Event  string `json:"event" doc:"acquired, released, expired, broken, queued or left"`
	Mutex  string `json:"mutex" doc:"name"`
	Owner  string `json:"owner" doc:"the owner; for queued and left the waiter"`
	Token  int64  `json:"token" doc:"fencing token of the tenure; for queued and left 0"`
	Reason string `json:"reason" doc:"why; often empty"`
}
