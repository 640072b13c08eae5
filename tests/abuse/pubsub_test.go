package abuse

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
)

func TestOneStuckSubscriberOfAThousandIsCutAndTheOthersMissNothing(t *testing.T) {
	t.Parallel()
	v := attacked(t)
	const subscribers, messages = 999, 200
	conns := v.raws(subscribers)
	if err := v.each(subscribers, func(i int) error {
		_, err := conns[i].ask(words("SUBSCRIBE", "news"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	// Many patterns of the stuck subscriber match, so it gets each message hundreds of times.
	stuck := v.raw()
	patterns := []any{"PSUBSCRIBE"}
	for i := range 500 {
		patterns = append(patterns, "n*"+strings.Repeat("*", i%50)+strings.Repeat("?", i%2)+strings.Repeat("[!0]", i/250))
	}
	if _, err := stuck.ask(words(patterns...)); err != nil {
		t.Fatal(err)
	}
	v.until("all clients are subscribed", func() bool { return v.info("pubsub_clients") == subscribers+1 })

	payload := func(i int) string { return fmt.Sprintf("%04d %s", i, strings.Repeat("x", 50)) }
	heard := make(chan error, subscribers)
	for _, c := range conns {
		go func() { heard <- hears(c, messages, payload) }()
	}
	v.servesOthers()
	for i := range messages { // PUBLISH must not wait for the stuck subscriber
		if n, err := redis.Int(v.eye.Do("PUBLISH", "news", payload(i))); err != nil || n < subscribers {
			t.Fatalf("PUBLISH of message %d returns %d, %v", i, n, err)
		}
	}
	for range conns {
		if err := <-heard; err != nil {
			t.Error(err)
		}
	}
	v.until("the server has disconnected the stuck subscriber", func() bool { return v.info("pubsub_clients_cut") == 1 && v.info("pubsub_clients") == subscribers })
	if err := stuck.ended(); err != nil {
		t.Errorf("the server does not disconnect the stuck subscriber: %v", err)
	}
	v.servesOthers()
	v.costsAtMost(64 << 20)
	hangUp(conns)
	v.recovers()
}

// hears reads all messages after the confirmation. It returns an error if one is missing.
func hears(c *raw, messages int, payload func(int) string) error {
	if _, err := io.CopyN(io.Discard, c.in, int64(len("$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n"))); err != nil {
		return err
	}
	for i := range messages {
		want := []byte(words("message", "news", payload(i)))
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c.in, got); err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("instead of message %d the subscriber gets %q, %w", i, got, err)
		}
	}
	return nil
}
