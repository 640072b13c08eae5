package contend_test

import (
	"testing"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/internal/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// connect starts a server for an example and returns a client of it. A real program creates a
// client like this:
//
//	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:7379", ContextTimeoutEnabled: true})
//	c, err := client.New(rdb, client.Options{})
func connect() (c *client.Client, done func()) { return testserver.Connect() }

func check(err error) { testserver.Check(err) }
