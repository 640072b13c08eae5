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

// NewID returns a random contender id: a UUID of version 4 without dashes.
func NewID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return hex.EncodeToString(b[:])
}

var (
	counter atomic.Uint64
	host    = sync.OnceValue(func() string {
		name, err := os.Hostname()
		if err != nil || names.CheckContender(name) != nil || strings.HasPrefix(name, "@") {
			name = "localhost"
		}
		return name
	})
	process = sync.OnceValue(func() string {
		var b [8]byte
		rand.Read(b[:]) // never fails
		return hex.EncodeToString(b[:])
	})
)

// maxPrefix is the longest IDPrefix, in bytes.
const maxPrefix = 64

// NewHostID returns a contender id that people can read, counter:pid@host, like Simba's
// HostContenderIdGenerator. The counter numbers the ids of this process.
//
// Two processes get the same id if they have the same process id and host name, as can happen in
// containers. The server treats two contenders with the same id as one.
func NewHostID() string { return hostID("", "") }

// defaultID returns a NewHostID with a prefix and a random suffix. All ids of a process have the same
// suffix.
func defaultID(prefix string) string { return hostID(prefix, "~"+process()) }

func hostID(prefix, suffix string) string {
	begin := prefix + strconv.FormatUint(counter.Add(1), 10) + ":" + strconv.Itoa(os.Getpid()) + "@"
	name := host()
	return begin + name[:max(0, min(len(name), names.MaxContenderLen-len(begin)-len(suffix)))] + suffix
}
