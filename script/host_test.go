package script

import (
	"context"
	"fmt"
	"testing"

	"github.com/simba-resp/simba-resp/resp"
)

// hostFunc makes a function a Host.
type hostFunc func(args [][]byte) []byte

func (f hostFunc) Call(args [][]byte) []byte { return f(args) }

// echo is a Host with the command ECHO only.
var echo = hostFunc(func(args [][]byte) []byte {
	if string(args[0]) == "echo" && len(args) == 2 {
		return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(args[1]), args[1])
	}
	return []byte("-ERR Unknown Redis command called from script\r\n")
})

// answer is a Host whose commands all have the same reply.
func answer(reply string) Host {
	return hostFunc(func([][]byte) []byte { return []byte(reply) })
}

// eval runs a script and returns its reply, or its error as a reply.
func eval(t testing.TB, r *Runner, h Host, c Call) string {
	t.Helper()
	var w resp.Writer
	if err := r.Run(context.Background(), c, h, &w); err != nil {
		if w.Len() > 0 {
			t.Errorf("Run of %q failed, but wrote the reply %q", c.Source, w.Bytes())
		}
		w.Error(err.Error())
	}
	return string(w.Bytes())
}

// run runs a script with the Host echo.
func run(t testing.TB, r *Runner, source string) string {
	t.Helper()
	return eval(t, r, echo, Call{Source: source})
}

func expect(t *testing.T, r *Runner, source, want string) {
	t.Helper()
	if got := run(t, r, source); got != want {
		t.Errorf("script %s\n got %q\nwant %q", source, got, want)
	}
}
