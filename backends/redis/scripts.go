package redis

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"

	"github.com/simba-resp/simba-resp"
)

// script is one Lua script. EVALSHA names it by its SHA-1.
type script struct {
	text, sha string
}

// suffixes are the suffixes of a mutex's keys, in the order of KEYS in lua/state.lua.
var suffixes = [...]string{"", ":contender", ":tenure", ":waiting", ":ended", ":fence", ":token"}

// command returns the command that runs a script on a mutex. header holds the arguments that every
// script takes.
func (s *script) command(mutex string, header [6]any, args ...any) []any {
	all := make([]any, 0, deadlineArg+2+len(args))
	all = append(all, "evalsha", s.sha, len(suffixes))
	for _, suffix := range suffixes {
		all = append(all, simba.MutexChannel(mutex)+suffix)
	}
	all = append(all, header[:]...)
	return append(all, args...)
}

//go:embed lua/*.lua
var luaFiles embed.FS

// lua returns the text of a file in lua/; "" for no name.
func lua(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil && name != "" {
		panic(err) // the file is missing in the program
	}
	return string(text)
}

var (
	acquireScript   = newScript("acquire", "acquire_fast")
	guardScript     = newScript("guard", "guard_fast")
	releaseScript   = newScript("release", "release_fast")
	breakScript     = newScript("break", "break_prelude")
	reconcileScript = newScript("reconcile", "reconcile_fast")
	confirmScript   = newScript("confirm", "")
	leaveScript     = newScript("leave", "")
	queueScript     = newScript("queue", "queue_prelude")
)

// newScript makes a script, which Redis runs as one text. It consists of writable.lua, state.lua,
// the script's fast path or prelude if it has one, steps.lua, waiters.lua, and the script's body.
func newScript(name, prelude string) *script {
	text := lua("writable") + lua("state") + lua(prelude) + lua("steps") + lua("waiters") + lua(name)
	sum := sha1.Sum([]byte(text))
	return &script{text: text, sha: hex.EncodeToString(sum[:])}
}
