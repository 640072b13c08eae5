package script

import (
	"testing"

	"github.com/simba-resp/simba-resp/resp"
)

// obtain is the acquire script of Spring's RedisLockRegistry.
const obtain = `local lockClientId = redis.call('GET', KEYS[1])
if lockClientId == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return true
elseif not lockClientId then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return true
end
return false`

type obtainHost struct{}

func (obtainHost) Call(args [][]byte) []byte {
	if string(args[0]) == "GET" {
		return []byte("$-1\r\n")
	}
	return []byte("+OK\r\n")
}

// BenchmarkObtain measures a usual script without the cost of its commands.
func BenchmarkObtain(b *testing.B) {
	r := New(Config{})
	sha, err := r.Load(obtain)
	if err != nil {
		b.Fatal(err)
	}
	c := Call{
		SHA:  sha,
		Keys: [][]byte{[]byte("registry:orders")},
		Args: [][]byte{[]byte("6ba7b810-9dad-11d1-80b4-00c04fd430c8"), []byte("60000")},
	}
	var w resp.Writer
	var h Host = obtainHost{}
	b.ReportAllocs()
	for b.Loop() {
		w.Truncate(0)
		if err := r.Run(b.Context(), c, h, &w); err != nil {
			b.Fatal(err)
		}
	}
}
