package commands

import (
	"strings"

	"github.com/simba-resp/simba-resp"
)

// keyName is what a key names: a mutex, or the queue of one.
type keyName struct {
	mutex string
	queue bool
}

// queueSuffix follows the lock key in the name of a mutex' queue, as in Simba's Redis backend.
const queueSuffix = ":contender"

// parseKey reads a key. The mutex m has two spellings, m and simba:{m}; simba:{m}:contender is
// its queue. Whatever cannot name a mutex is a lock key all the same, of that very name.
func parseKey(key []byte) keyName {
	name := string(key)
	lock, queue := strings.CutSuffix(name, queueSuffix)
	if m, ok := simba.ParseMutexChannel(lock); ok && simba.CheckMutex(m) == nil {
		return keyName{m, queue}
	}
	return keyName{mutex: name}
}
