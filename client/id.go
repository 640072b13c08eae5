package client

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
	origin  = sync.OnceValue(func() string {
		host, err := os.Hostname()
		if err != nil || checkContender(host) != nil || strings.HasPrefix(host, "@") {
			host = "localhost"
		}
		const digits = 20 + 1 + 20 + 1 + 1 + 8 // counter, ':', pid, '@', '~', random
		return ":" + strconv.Itoa(os.Getpid()) + "@" + host[:min(len(host), maxContenderLen-digits)]
	})
)

// NewHostID returns a contender id that people can read, counter:pid@host: the next number
// in this process, the process and the host, as Simba's HostContenderIdGenerator does. It
// is not unique where two hosts have one name and processes have the same number, as in containers, nor
// after a restart there: then two are one to the server.
func NewHostID() string { return strconv.FormatUint(counter.Add(1), 10) + origin() }

// defaultID is a NewHostID that is unique: what makes it so is chosen once a process.
func defaultID() string { return NewHostID() + "~" + process() }

var process = sync.OnceValue(func() string { return NewID()[:8] })
