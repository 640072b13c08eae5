package redis

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
)

// Which of Redis' errors do not pass by themselves. What is not known here is taken for
// one that does: to wait in vain is better than to give up too soon.

// refusedAfter is when a mutex is looked at again after Redis has refused to.
const refusedAfter = 2 * time.Second

var (
	// lastingCodes are of errors that Redis makes again until its settings, its users or a
	// key are mended.
	lastingCodes = []string{"WRONGTYPE", "NOPERM", "NOAUTH", "WRONGPASS", "DENIED"}

	// lastingTexts begin errors with the code ERR that are of the same kind.
	lastingTexts = []string{
		"unknown command", "Unknown Redis command", "unknown subcommand",
		"AUTH ", "Client sent AUTH", "invalid password",
		"DB index is out of range", "invalid DB index", "SELECT is not allowed in cluster mode",
		"This instance has cluster support disabled",
	}

	// passingCodes are of errors inside a script that pass. All others do not: our scripts
	// run where the keys and the user's rights are as we need them.
	passingCodes = []string{
		"OOM", "READONLY", "LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MOVED", "ASK", "CROSSSLOT",
		"MISCONF", // Redis cannot write to its disk until there is room
	}

	// passingTexts are parts of such errors without a code of their own.
	passingTexts = []string{"Script killed", "non local key"}

	// deniedTexts are parts of what Redis says of a right that is missing inside a script. Redis 7.0 and
	// before name neither the command nor the key.
	deniedTexts = []string{"NOPERM ", "The user executing the script can't "}

	// inScript is where in a script Redis met an error: in front of its text before Redis 7 and where Lua raised
	// it, behind the text otherwise.
	inScript     = regexp.MustCompile(`user_script: ?\d+: `)
	behindScript = regexp.MustCompile(` script: [0-9a-f]{40}, on @user_script:\d+\.$`)
)

// lasting returns what Redis refuses if err does not pass by itself, nil if it does.
func lasting(err error) error {
	if errors.Is(err, errReply) {
		return err
	}
	var said redis.Error
	if !errors.As(err, &said) {
		return nil
	}
	text, scripted := cause(said.Error())
	code, rest, _ := strings.Cut(text, " ")
	begins := func(prefix string) bool { return strings.HasPrefix(rest, prefix) }
	contained := func(part string) bool { return strings.Contains(text, part) }
	switch {
	case slices.Contains(passingCodes, code), slices.ContainsFunc(passingTexts, contained):
		return nil
	case scripted && slices.ContainsFunc(deniedTexts, contained):
		return fmt.Errorf("%s: the user needs %s", strings.TrimPrefix(text, "ERR "), neededRights)
	case scripted, slices.Contains(lastingCodes, code), code == "ERR" && slices.ContainsFunc(lastingTexts, begins):
		return errors.New(strings.TrimPrefix(text, "ERR "))
	}
	return nil
}

// cause takes off an error what Redis says of where in a script it was met, and reports
// whether that was said.
func cause(text string) (_ string, scripted bool) {
	if at := behindScript.FindStringIndex(text); at != nil {
		text, scripted = text[:at[0]], true
	}
	if all := inScript.FindAllStringIndex(text, -1); all != nil {
		text, scripted = strings.TrimPrefix(text[all[len(all)-1][1]:], "-"), true
	}
	return text, scripted
}

// retry has a mutex looked at again after a look has failed. If that will not pass by
// itself, the waits for it end by the error.
func (b *Backend) retry(mutex string, err error) {
	refusal := (*simba.MisconfiguredError)(nil)
	if !errors.As(err, &refusal) {
		b.schedule.advance(mutex, time.Now().Add(retryAfter))
		return
	}
	b.waiters.Fail(mutex, refusal)
	b.schedule.advance(mutex, time.Now().Add(refusedAfter))
}

// notListening is why the node of a mutex will not pass on to this server what others grant
// to waiters here, nil if it does or will again.
func (b *Backend) subscriptionError(mutex string) error {
	r := b.subs.subscriberOf(endedContext, simba.MutexChannel(mutex))
	if r == nil || r.confirmed(b.subs.serverChannel()) {
		return nil
	}
	if reason := r.reason(); reason != nil && lasting(reason) != nil {
		return b.unavailable(reason)
	}
	return nil
}
