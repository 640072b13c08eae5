package commands

import (
	"testing"

	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/resp"
)

func BenchmarkKeys(b *testing.B) {
	command := func(words ...string) (args [][]byte) {
		for _, w := range words {
			args = append(args, []byte(w))
		}
		return args
	}
	for _, bench := range []struct {
		name     string
		commands [][][]byte
	}{
		{"GET", [][][]byte{command("GET", "a")}},
		{"SET", [][][]byte{command("SET", "a", "owner", "PX", "30000")}},
		{"EVAL", [][][]byte{command("EVAL", "return redis.call('SET', KEYS[1], ARGV[1], 'PX', 30000)", "1", "a", "owner")}},
		{"EXEC", [][][]byte{command("MULTI"), command("SET", "a", "owner", "PX", "30000"), command("GET", "a"), command("EXEC")}},
		{"WATCH, EXEC", [][][]byte{command("WATCH", "a"), command("MULTI"), command("SET", "a", "owner", "PX", "30000"), command("EXEC")}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			e, err := engine.New(engine.Config{Clock: engine.NewClock(0)}, engine.Memory(), engine.Recovery{})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Stop()
			b.ReportAllocs()
			onConnectionTo(b, e, func(x *Commands, conn *resp.Conn) {
				for b.Loop() {
					for _, args := range bench.commands {
						x.Execute(conn, args)
					}
					conn.Reply().Truncate(0)
				}
			})
		})
	}
}
