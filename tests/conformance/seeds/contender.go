package seeds

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Contender acts like a contender of one generation: it runs that generation's scripts, and
// subscribes to its channels.
type Contender struct {
	Client    redis.UniversalClient
	Of        Generation
	Mutex, ID string
}

// Send sends a script to Redis, or to a pipeline. args follow the contender's id in ARGV.
func (c *Contender) Send(ctx context.Context, to redis.Cmdable, s Script, args ...any) *redis.Cmd {
	return to.Eval(ctx, s.Source, s.Keys(c.Mutex), append([]any{c.ID}, args...)...)
}

// State runs the acquire or guard script. It returns the owner, the remaining time of its lease, and
// its token; 0 = the generation has no tokens.
func (c *Contender) State(ctx context.Context, s Script, lease time.Duration) (owner string, left time.Duration, token uint64, err error) {
	reply, err := c.Send(ctx, c.Client, s, lease.Milliseconds()).Result()
	if err != nil {
		return "", 0, 0, err
	}
	ms := int64(0)
	switch v := reply.(type) {
	case string:
		var rest string
		if owner, rest, _ = strings.Cut(v, "@@"); rest != "" {
			ms, err = strconv.ParseInt(rest, 10, 64)
		}
	case []any:
		if len(v) == 3 {
			owner, _ = v[0].(string)
			ms, _ = v[1].(int64)
			n, _ := v[2].(int64)
			token = uint64(n)
			break
		}
		err = fmt.Errorf("the script returns %v, want 3 values", v)
	default:
		err = fmt.Errorf("the script returns %v", v)
	}
	return owner, time.Duration(ms) * time.Millisecond, token, err
}

// Subscribe subscribes to the contender's channels, and returns when Redis has confirmed that.
func (c *Contender) Subscribe(ctx context.Context) (*redis.PubSub, error) {
	channels := c.Of.Channels(c.Mutex, c.ID)
	sub := c.Client.Subscribe(ctx, channels...)
	for range channels {
		if _, err := sub.Receive(ctx); err != nil {
			_ = sub.Close()
			return nil, err
		}
	}
	return sub, nil
}
