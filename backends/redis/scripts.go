package redis

import (
	"crypto/sha1"
	_ "embed" // the scripts
	"encoding/hex"
)

// script is one Lua script. Redis knows it by its SHA-1.
type script struct {
	name, text, sha string
}

// Every script is prove, state, its own fast path or first lines if it has some, steps, and its body.

//go:embed lua/prove.lua
var proveLua string

//go:embed lua/state.lua
var stateLua string

//go:embed lua/steps.lua
var stepsLua string

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

//go:embed lua/break_first.lua
var breakFirstLua string

//go:embed lua/break.lua
var breakLua string

//go:embed lua/look_fast.lua
var lookFastLua string

//go:embed lua/look.lua
var lookLua string

//go:embed lua/confirm.lua
var confirmLua string

//go:embed lua/leave.lua
var leaveLua string

//go:embed lua/pass.lua
var passLua string

//go:embed lua/queue_first.lua
var queueFirstLua string

//go:embed lua/queue.lua
var queueLua string

var (
	acquireScript = newScript("acquire", acquireFastLua, acquireLua)
	guardScript   = newScript("guard", guardFastLua, guardLua)
	releaseScript = newScript("release", releaseFastLua, releaseLua)
	breakScript   = newScript("break", breakFirstLua, breakLua)
	lookScript    = newScript("look", lookFastLua, lookLua)
	confirmScript = newScript("confirm", "", confirmLua)
	leaveScript   = newScript("leave", "", leaveLua)
	passScript    = newScript("pass", "", passLua)
	queueScript   = newScript("queue", queueFirstLua, queueLua)

	scripts = []*script{
		acquireScript, guardScript, releaseScript, breakScript,
		lookScript, confirmScript, leaveScript, passScript, queueScript,
	}
)

func newScript(name, fast, body string) *script {
	text := proveLua + stateLua + fast + stepsLua + body
	sum := sha1.Sum([]byte(text))
	return &script{name: name, text: text, sha: hex.EncodeToString(sum[:])}
}
