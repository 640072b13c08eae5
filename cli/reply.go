package cli

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// record is a reply that is a map in RESP3 and a flat array in RESP2. Values that a server does not
// send are zero.
type record map[string]any

// toRecord converts what go-redis returned. A null reply is a nil record.
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

// optional returns a number, nil if the server does not know it.
func (r record) optional(name string) *int64 {
	if n, ok := r[name].(int64); ok {
		return &n
	}
	return nil
}

// records converts a list of records.
func records(reply any) ([]record, error) {
	list, ok := reply.([]any)
	if !ok {
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

// Tenure is the reply of SIMBA.OWNER. Its JSON form is documented in docs/reference/cli.md, as that
// of all types below.
type Tenure struct {
	Mutex        string      `json:"mutex"`
	Held         bool        `json:"held"`
	Owner        string      `json:"owner"`
	Token        int64       `json:"token"`
	Since        *int64      `json:"since"`
	AcquiredAt   int64       `json:"acquired_at"`
	TTLAt        int64       `json:"ttl_at"`
	TransitionAt int64       `json:"transition_at"`
	Now          int64       `json:"now"`
	TTL          int64       `json:"ttl"`
	Transition   int64       `json:"transition"`
	Waiters      int64       `json:"waiters"`
	Connection   *Connection `json:"connection"`
}

// Connection is the connection of a SESSION lease.
type Connection struct {
	ID   int64  `json:"id"`
	Addr string `json:"addr"`
	Name string `json:"name"`
}

// toTenure converts the reply of SIMBA.OWNER.
func toTenure(mutex string, v any) (Tenure, error) {
	t := Tenure{Mutex: mutex}
	r, err := toRecord(v)
	if r == nil || err != nil {
		return t, err
	}
	t.Held = true
	t.Owner, t.Token = r.text("owner"), r.number("token")
	t.Since = r.optional("since")
	t.AcquiredAt, t.TTLAt, t.TransitionAt = r.number("acquired_at"), r.number("ttl_at"), r.number("transition_at")
	t.Now, t.TTL, t.Transition = r.number("now"), r.number("ttl"), r.number("transition")
	t.Waiters = r.number("waiters")
	if c, err := toRecord(r["connection"]); c != nil && err == nil {
		t.Connection = &Connection{c.number("id"), c.text("addr"), c.text("name")}
	}
	return t, nil
}

// Waiter is a record of SIMBA.QUEUE.
type Waiter struct {
	Contender string `json:"contender"`
	Position  int64  `json:"position"`
	Waiting   int64  `json:"waiting"`
	Kind      string `json:"kind"`
}

func toWaiters(v any) ([]Waiter, error) {
	list, err := records(v)
	waiters := make([]Waiter, len(list))
	for i, r := range list {
		waiters[i] = Waiter{r.text("contender"), r.number("position"), r.number("waiting"), r.text("kind")}
	}
	return waiters, err
}

// Event is a record of SIMBA.HISTORY, and a message on the channel of a mutex.
type Event struct {
	Seq    int64  `json:"seq"`
	At     int64  `json:"at"`
	Event  string `json:"event"`
	Mutex  string `json:"mutex"`
	Owner  string `json:"owner"`
	Token  int64  `json:"token"`
	Reason string `json:"reason"`
}

func toEvents(mutex string, v any) ([]Event, error) {
	list, err := records(v)
	events := make([]Event, len(list))
	for i, r := range list {
		events[i] = Event{r.number("seq"), r.number("at"), r.text("event"), mutex, r.text("owner"), r.number("token"), r.text("reason")}
	}
	return events, err
}
