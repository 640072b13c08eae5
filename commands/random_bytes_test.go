package commands

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// Random bytes as arguments must get the replies of Redis. There a NUL ends an error's text, and
// line ends at its end are cut off.
func TestRandomBytesAsArgumentsReplyAsRedis(t *testing.T) {
	names := strings.Fields("PING ECHO SELECT GET SET SETNX DEL EXISTS INCR INCRBY STRLEN TYPE MGET MSETNX HSET HGET HDEL EXPIRE PERSIST nonsense")
	compareSequences(t, func(r *rand.Rand) (commands []string) {
		for range 20 {
			command := names[r.IntN(len(names))]
			for range r.IntN(4) {
				word := make([]byte, r.IntN(8))
				for i := range word {
					word[i] = byte(1 + r.IntN(255))
				}
				command += " " + strconv.Quote(string(word)+"x")
			}
			commands = append(commands, command)
		}
		return commands
	})
}
