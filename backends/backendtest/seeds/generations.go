package seeds

import _ "embed" // the scripts

// The scripts of Simba 3.2 and later are ours. They were compared with the published scripts of 3.2 and
// with the published releases of 3.3 and 4.0: steps, messages, and the order of KEYS. They differ:
//   - 3.2 replies {owner, ms left}; ours adds the token 0, so that all replies have one form.
//
// Not compared, and so assumed:
//   - the order of KEYS where 3.3 and later acquire and renew;
//   - 4.0 to 4.3 acquire and renew as 3.3 does.
var (
	//go:embed simba32_acquire.lua
	simba32Acquire string
	//go:embed simba32_guard.lua
	simba32Guard string
	//go:embed simba32_release.lua
	simba32Release string
	//go:embed simba33_acquire.lua
	simba33Acquire string
	//go:embed simba33_guard.lua
	simba33Guard string
	//go:embed simba33_release.lua
	simba33Release string
	//go:embed simba40_release.lua
	simba40Release string
)

// Script is a script of a contender, and the keys that it takes.
type Script struct {
	Source string
	keys   []string // what follows simba:{mutex}
}

// Keys returns the script's KEYS for a mutex.
func (s Script) Keys(mutex string) []string {
	keys := make([]string, len(s.keys))
	for i, k := range s.keys {
		keys[i] = Lease(mutex) + k
	}
	return keys
}

// Lease returns the key of a mutex' owner. It is the name of the mutex' channel too.
func Lease(mutex string) string { return "simba:{" + mutex + "}" }

// Fence returns the key of the counter of a mutex' tokens, which 3.3 and later have.
func Fence(mutex string) string { return Lease(mutex) + fence }

// Token returns the key of the token of the present tenure, which 3.3 and later have.
func Token(mutex string) string { return Lease(mutex) + token }

// Queue returns the key of the queue of a mutex, which those before 3.2 have.
func Queue(mutex string) string { return Lease(mutex) + queue }

const (
	lease = ""
	fence = ":fence"
	token = ":token"
	queue = ":contender"
)

// Generation is how some versions of Simba contend on Redis. Each script takes the contender; Acquire
// and Guard take the milliseconds until the end of its transition window too.
type Generation struct {
	Name                    string
	Acquire, Guard, Release Script
	// Queues means that a waiter has a place in the queue, and that a release tells one of them on a
	// channel of its own. Without it a release tells everybody on the mutex' channel. The replies
	// of those that queue are text, "owner@@ms"; those of the others {owner, ms left, token}.
	Queues bool
	// Braceless means that a contender listens on simba:m and simba:m:<id>. Its own scripts publish
	// on simba:{m} and simba:{m}:<id>, so it hears neither itself nor the others.
	Braceless bool
	// Tokens means that Acquire counts a token, and replies have it.
	Tokens bool
}

// Channels returns the channels that a contender subscribes to.
func (g Generation) Channels(mutex, contender string) []string {
	channel := Lease(mutex)
	if g.Braceless {
		channel = "simba:" + mutex
	}
	if g.Queues {
		return []string{channel, channel + ":" + contender}
	}
	return []string{channel}
}

// The generations of Simba's Redis backend.
var (
	// Simba29 is 2.2 to 3.0.1.
	Simba29 = Generation{Name: "2.9", Acquire: oldAcquire, Guard: oldGuard, Release: oldRelease, Queues: true, Braceless: true}
	// Simba31 is 3.0.2 to 3.1.
	Simba31 = Generation{Name: "3.1", Acquire: oldAcquire, Guard: oldGuard, Release: oldRelease, Queues: true}
	// Simba32 is 3.2.
	Simba32 = Generation{
		Name:    "3.2",
		Acquire: Script{simba32Acquire, []string{lease}},
		Guard:   Script{simba32Guard, []string{lease}},
		Release: Script{simba32Release, []string{lease, queue}},
	}
	// Simba33 is 3.3.
	Simba33 = Generation{
		Name:    "3.3",
		Acquire: Script{simba33Acquire, []string{lease, fence, token}},
		Guard:   Script{simba33Guard, []string{lease, token}},
		Release: Script{simba33Release, []string{lease, queue, token}},
		Tokens:  true,
	}
	// Simba40 is 4.0 to 4.3.
	Simba40 = Generation{
		Name: "4.0", Acquire: Simba33.Acquire, Guard: Simba33.Guard,
		Release: Script{simba40Release, []string{lease, token}},
		Tokens:  true,
	}

	// Generations are all of them, the oldest first.
	Generations = []Generation{Simba29, Simba31, Simba32, Simba33, Simba40}

	oldAcquire = Script{SimbaAcquire, []string{lease}}
	oldGuard   = Script{SimbaGuard, []string{lease}}
	oldRelease = Script{SimbaRelease, []string{lease}}
)
