package commands

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp"
	"github.com/simba-resp/simba-resp/script"
)

const (
	scriptFlags  = noscript | stale | skipMonitor | mayReplicate | noMandatoryKeys | movableKeys
	scriptKeyArg = 2 // index of the argument with the number of keys
)

var scriptKeys = keys{use: valueRead | valueWritten}

var scriptingCommands = []command{
	{
		name: "eval", arity: -3, flags: scriptFlags | longArgs, keys: scriptKeys, keyCount: scriptKeyArg, since: "2.6.0", keyed: eval,
		summary: "Execute a Lua script server side; a script that fails changes nothing", args: "script numkeys [key [key ...]] [arg [arg ...]]",
	},
	{
		name: "evalsha", arity: -3, flags: scriptFlags, keys: scriptKeys, keyCount: scriptKeyArg, since: "2.6.0", keyed: evalStored,
		summary: "Execute a Lua script server side", args: "sha1 numkeys [key [key ...]] [arg [arg ...]]",
	},
	{
		name: "script", arity: -2, since: "2.6.0",
		summary: "A container for Lua scripts management commands",
		subs: []command{
			{
				name: "exists", arity: -3, flags: noscript, since: "2.6.0", run: onScripts(scriptExists),
				summary: "Check existence of scripts in the script cache.",
				args:    "sha1 [sha1 ...]",
			},
			{
				name: "flush", arity: -2, flags: noscript | audited, since: "2.6.0", run: onScripts(scriptFlush),
				summary: "Remove all the scripts from the script cache.",
				args:    "[ASYNC | SYNC]",
			},
			{
				name: "kill", arity: 2, flags: noscript | allowBusy | audited, since: "2.6.0", run: onScripts(scriptKill),
				summary: "Kill the scripts that have run too long.",
			},
			{
				name: "load", arity: 3, flags: noscript | stale | longArgs, since: "2.6.0", run: onScripts(scriptLoad),
				summary: "Load the specified Lua script into the script cache.",
				args:    "script",
			},
		},
	},
}

// scripting runs the scripts of EVAL and similar commands.
type scripting struct {
	runner    *script.Runner
	busyAfter atomic.Int64 // milliseconds
}

const defaultBusyAfter = 5000

func (s *scripting) init(log *slog.Logger) {
	s.busyAfter.Store(defaultBusyAfter)
	s.runner = script.New(script.Config{
		BusyAfter: func() time.Duration {
			return time.Duration(min(s.busyAfter.Load(), simba.Endless.Milliseconds())) * time.Millisecond
		},
		Logger: log,
	})
}

func eval(t *keyTx, args [][]byte) error {
	return t.runScript(script.Call{Source: string(args[1])}, args)
}

const shaLength = 40

func evalStored(t *keyTx, args [][]byte) error {
	if len(args[1]) != shaLength {
		return script.ErrNoScript // even if the number of keys is wrong, as in Redis
	}
	return t.runScript(script.Call{SHA: strings.ToLower(string(args[1]))}, args)
}

// runScript runs a script in t. If the script fails after a change, runScript sets t.torn. The
// caller must then discard the script's changes, which Redis would keep.
func (t *keyTx) runScript(call script.Call, args [][]byte) error {
	n, err := parseKeyCount(args)
	if err != nil {
		return err
	}
	call.Keys, call.Args, call.Yield = args[3:3+n], args[3+n:], t.yield
	h := &scriptHost{full: t.c.permit.full, tx: *t}
	h.tx.w, h.tx.scripted = &h.reply, true
	t.c.conn.FreeSlot() // Run may wait for other scripts
	if err := t.c.x.scripting.runner.Run(t.c.conn.Context(), call, h, t.w); err != nil {
		t.torn = h.changed
		t.final = t.final || errors.As(err, new(*script.StoppedError))
		return err
	}
	return nil
}

func parseKeyCount(args [][]byte) (int, error) {
	n, ok := parseInt(args[2])
	switch {
	case !ok:
		return 0, errNotInteger
	case n > int64(len(args)-3):
		return 0, replyError("ERR Number of keys can't be greater than number of args")
	case n < 0:
		return 0, replyError("ERR Number of keys can't be negative")
	}
	return int(n), nil
}

// scriptHost runs the commands that a script calls. It is a script.Host.
type scriptHost struct {
	tx      keyTx       // the script's transaction, with reply as its writer
	reply   resp.Writer // the reply to the last call
	full    bool        // maxmemory was exceeded when the script began
	changed bool        // a command has changed something
}

// Call implements script.Host.
func (h *scriptHost) Call(args [][]byte) []byte {
	h.reply.Truncate(0)
	if err := h.run(args); err != nil {
		h.reply.Truncate(0)
		h.reply.Error(wireText(err))
	}
	return h.reply.Bytes()
}

func (h *scriptHost) run(args [][]byte) error {
	if h.tx.TooLarge() {
		return simba.ErrTooLarge
	}
	e, err := h.tx.c.x.table.find(args)
	writes := e != nil && e.has(write|mayReplicate)
	switch {
	case e == nil && notServed(args[0]) != nil:
		return notServed(args[0])
	case e == nil, err != nil && e.bySub != nil && len(args) > 1: // no such command or subcommand
		return replyError("ERR Unknown Redis command called from script")
	case err != nil:
		return replyError("ERR Wrong number of args calling Redis command from script")
	case e.keyed == nil || e.has(noscript):
		return replyError("ERR This Redis command is not allowed from script")
	}
	if d := e.deny(h.tx.user, args); d != nil {
		if !h.tx.again { // so that a script that runs often does not fill the audit log
			h.tx.c.noteDenial(d, "lua")
		}
		return replyError(denialWords[d.reason].script)
	}
	if h.full && h.tx.mayGrow(e, args) {
		return simba.ErrOutOfMemory
	}
	for _, a := range args { // resp limits only the arguments that clients send
		if err := checkLength("an argument", a, resp.DefaultMaxArg); err != nil {
			return err
		}
	}
	err = e.keyed(&h.tx, args)
	if err == nil && writes {
		h.changed = true
	}
	return err
}

// onScripts returns the run function of a SCRIPT subcommand.
func onScripts(do func(c *client, args [][]byte) error) func(c *client, args [][]byte) error {
	return func(c *client, args [][]byte) error {
		if _, err := c.keyspace(); err != nil {
			return err
		}
		return do(c, args)
	}
}

func scriptLoad(c *client, args [][]byte) error {
	sha, err := c.x.scripting.runner.Load(string(args[2]))
	if err != nil {
		return err
	}
	c.w.BulkString(sha)
	return nil
}

func scriptExists(c *client, args [][]byte) error {
	c.w.Array(len(args) - 2)
	for _, sha := range args[2:] {
		writeFlag(c.w, len(sha) == shaLength && c.x.scripting.runner.Exists(strings.ToLower(string(sha))))
	}
	return nil
}

func scriptFlush(c *client, args [][]byte) error {
	if len(args) > 3 || len(args) == 3 && !equalFold(args[2], "SYNC") && !equalFold(args[2], "ASYNC") {
		return replyError("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
	}
	c.x.scripting.runner.Flush()
	c.w.Simple("OK")
	return nil
}

func scriptKill(c *client, _ [][]byte) error {
	if err := c.x.scripting.runner.Kill(); err != nil {
		return err
	}
	c.w.Simple("OK")
	return nil
}
