package seeds

import _ "embed" // for the scripts

// The scripts for Simba 3.2 and later were written for this package. Those of 3.2, and the
// release scripts of 3.3 and 4.0, have the steps, messages and order of KEYS of the published
// scripts. There is one difference:
//
//   - 3.2 replies {owner, ms left}. The scripts here also reply the token 0, so that the reply has
//     the form of 3.3.
//
// These points are assumptions:
//
//   - the order of KEYS of the scripts by which 3.3 and later acquire and renew;
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

// Script is a script of Simba and its keys.
type Script struct {
	Source string
	keys   []string // what follows simba:{mutex} in the name of each key
}

// Keys returns the script's KEYS for a mutex.
func (s Script) Keys(mutex string) []string {
	keys := make([]string, len(s.keys))
	for i, k := range s.keys {
		keys[i] = Lease(mutex) + k
	}
	return keys
}

// Lease returns the key of a mutex's owner. It is also the name of the mutex's channel.
func Lease(mutex string) string { return "simba:{" + mutex + "}" }

// Fence returns the key of a mutex's token counter, which exists since 3.3.
func Fence(mutex string) string { return Lease(mutex) + fence }

// Token returns the key of the current tenure's token, which exists since 3.3.
func Token(mutex string) string { return Lease(mutex) + token }

// Queue returns the key of a mutex's queue, which exists before 3.2.
func Queue(mutex string) string { return Lease(mutex) + queue }

const (
	lease = ""
	fence = ":fence"
	token = ":token"
	queue = ":contender"
)

// Generation has the scripts of some versions of Simba for Redis. ARGV of each script begins with
// the contender. Acquire and Guard also take the milliseconds until the end of the contender's
// transition window.
type Generation struct {
	Name                    string
	Acquire, Guard, Release Script
	// Queues means that a waiter has a queue entry. A release notifies one waiter on its own
	// channel, and replies are text, "owner@@ms". Without Queues, a release notifies all
	// subscribers of the mutex's channel, and replies are {owner, ms left, token}.
	Queues bool
	// Braceless means that a contender subscribes to simba:m and simba:m:<id>. All generations
	// publish on simba:{m} and simba:{m}:<id>, so such a contender receives no notices.
	Braceless bool
	// Tokens means that each tenure has a token, which replies contain.
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

	// Generations are all generations, the oldest first.
	Generations = []Generation{Simba29, Simba31, Simba32, Simba33, Simba40}

	oldAcquire = Script{SimbaAcquire, []string{lease}}
	oldGuard   = Script{SimbaGuard, []string{lease}}
	oldRelease = Script{SimbaRelease, []string{lease}}
)
