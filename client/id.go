package client

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/simba-resp/simba-resp/client/internal/names"
)

// maxPrefix is the longest IDPrefix, in bytes.
const maxPrefix = 64

var (
	counter atomic.Uint64 // numbers the ids of this process
	host    = sync.OnceValue(func() string {
		name, err := os.Hostname()
		if err != nil || strings.ContainsAny(name, "@{} ") {
			name = "localhost"
		}
		return name
	})
	// process tells processes with the same id and host name apart, as in containers.
	process = sync.OnceValue(func() string {
		var b [8]byte
		rand.Read(b[:]) // never fails
		return hex.EncodeToString(b[:])
	})
)

// defaultID returns a contender id that people can read, prefix, counter:pid@host~random. Without the
// random part, which all ids of a process share, it is that of Simba's HostContenderIdGenerator.
func defaultID(prefix string) string {
	begin, suffix := prefix+strconv.FormatUint(counter.Add(1), 10)+":"+strconv.Itoa(os.Getpid())+"@", "~"+process()
	name := host()
	return begin + name[:max(0, min(len(name), names.MaxContenderLen-len(begin)-len(suffix)))] + suffix
}
