package redis

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/backendtest/seeds"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

// What servers overhear on the channels of all contenders, and what they do about it.

func TestAContenderMayBeNamedLikeAPattern(t *testing.T) {
	s := stores.Redis(t)
	for _, glob := range []string{noticeGlob, eventGlob, contenderGlob} {
		if _, _, ok := simba.ParseContenderChannel(glob); ok {
			t.Errorf("the pattern %s is a contender's channel", glob)
		}
	}
	e := newEar()
	b := serve(t, "redis://"+s.Addr, e)
	channel := simba.ContenderChannel("*", "*")
	e.listen(t, b, channel)
	acquire(t, b, "*", "o", time.Minute, nil)
	acquire(t, b, "*", "*", time.Minute, nil)
	release(t, b, "*", "o")
	e.hear(t, channel, is("released@@o"))
}
