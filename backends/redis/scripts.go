package redis

import (
	"crypto/sha1"
	_ "embed" // the scripts
	"encoding/hex"
	"strings"

	"github.com/simba-resp/simba-resp"
)

// script is one Lua script. EVALSHA names it by its SHA-1.
type script struct {
	name, text, sha string
}

// suffixes are the suffixes of a mutex's keys, in the order of KEYS in lua/state.lua.
var suffixes = [...]string{"", ":contender", ":tenure", ":waiting", ":ended", ":fence", ":token"}

// command returns the command that runs a script on a mutex. header holds the arguments that every
// script takes.
func (s *script) command(mutex string, header [6]any, args ...any) []any {
	all := make([]any, 0, deadlineArg+2+len(args))
	all = append(all, "evalsha", s.sha, len(suffixes))
	keys := keysOf(mutex)
	for i := range keys {
		all = append(all, &keys[i]) // a pointer to a string saves an allocation
	}
	all = append(all, header[:]...)
	return append(all, args...)
}

// keysOf returns the keys of a mutex. All are parts of one string, to save allocations.
func keysOf(mutex string) *[len(suffixes)]string {
	lock := simba.MutexChannel(mutex)
	all := lock + strings.Join(suffixes[:], lock) // the first suffix is empty
	keys := new([len(suffixes)]string)
	for i, suffix := range suffixes {
		n := len(lock) + len(suffix)
		keys[i], all = all[:n], all[n:]
	}
	return keys
}

// Redis runs each script as one text. It consists of writable.lua, state.lua, the script's fast
// path or prelude if it has one, steps.lua, waiters.lua, and the script's body.

//go:embed lua/writable.lua
var writableLua string

//go:embed lua/state.lua
var stateLua string

//go:embed lua/steps.lua
var stepsLua string

//go:embed lua/waiters.lua
var waitersLua string

//go:embed lua/acquire_fast.lua
var acquireFastLua string

//go:embed lua/guard_fast.lua
var guardFastLua string

//go:embed lua/release_fast.lua
var releaseFastLua string

//go:embed lua/acquire.lua
var acquireLua string

//go:embed lua/guard.lua
var guardLua string

//go:embed lua/release.lua
var releaseLua string

//go:embed lua/break_prelude.lua
var breakPreludeLua string

//go:embed lua/break.lua
var breakLua string

//go:embed lua/reconcile_fast.lua
var reconcileFastLua string

//go:embed lua/reconcile.lua
var reconcileLua string

//go:embed lua/confirm.lua
var confirmLua string

//go:embed lua/leave.lua
var leaveLua string

//go:embed lua/giveback.lua
var giveBackLua string

//go:embed lua/queue_prelude.lua
var queuePreludeLua string

//go:embed lua/queue.lua
var queueLua string

var (
	acquireScript   = newScript("acquire", acquireFastLua, acquireLua)
	guardScript     = newScript("guard", guardFastLua, guardLua)
	releaseScript   = newScript("release", releaseFastLua, releaseLua)
	breakScript     = newScript("break", breakPreludeLua, breakLua)
	reconcileScript = newScript("reconcile", reconcileFastLua, reconcileLua)
	confirmScript   = newScript("confirm", "", confirmLua)
	leaveScript     = newScript("leave", "", leaveLua)
	giveBackScript  = newScript("giveback", "", giveBackLua)
	queueScript     = newScript("queue", queuePreludeLua, queueLua)

	scripts = []*script{
		acquireScript, guardScript, releaseScript, breakScript,
		reconcileScript, confirmScript, leaveScript, giveBackScript, queueScript,
	}
)

// newScript makes a script. prelude is its fast path or prelude; "" = neither.
func newScript(name, prelude, body string) *script {
	text := writableLua + stateLua + prelude + stepsLua + waitersLua + body
	sum := sha1.Sum([]byte(text))
	return &script{name: name, text: text, sha: hex.EncodeToString(sum[:])}
}
