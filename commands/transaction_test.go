package commands

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/resp"
)

// A queued command must allocate little, because garbage collection slows all clients down.
func TestALongTransactionAllocatesLittle(t *testing.T) {
	const runs, commands = 20, 1000
	words := func(line string) [][]byte { return bytes.Fields([]byte(line)) }
	multi, set, exec := words("MULTI"), words("SET key value PX 1000"), words("EXEC")
	var before, after runtime.MemStats
	onConnectionTo(t, newEngine(t), func(x *Commands, conn *resp.Conn) {
		for i := range 1 + runs {
			if i == 1 { // the first run makes what later ones reuse
				runtime.ReadMemStats(&before)
			}
			x.Execute(conn, multi)
			for range commands {
				x.Execute(conn, set)
			}
			x.Execute(conn, exec)
			conn.Reply().Truncate(0)
			if err := conn.Commit(); err != nil {
				t.Error(err)
			}
		}
		runtime.ReadMemStats(&after)
	})
	if n := (after.TotalAlloc - before.TotalAlloc) / (runs * commands); n > 400 {
		t.Errorf("a queued command allocates %d bytes, want at most 400", n)
	}
}

func TestATransactionStartsEmpty(t *testing.T) {
	p := newEngineSite(t).dial()
	p.expectTransaction("*2\r\n+OK\r\n-"+string(errWrongType)+"\r\n", "SET a 1 PX 1000000", "HGET a f")
	p.expect("MULTI", ok)
	p.expect("SET b 1", queued)
	p.expect("SET b", failed("ERR wrong number of arguments for 'set' command"))
	p.expect("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n")
	p.expect("MULTI", ok)
	p.expect("SET c 1", queued)
	p.expect("DISCARD", ok)
	p.expectTransaction("*2\r\n$1\r\n1\r\n:1\r\n", "GET a", "EXISTS a b c")
	p.expectTransaction("*0\r\n")
}

func TestTransactionsAreBounded(t *testing.T) {
	p := newSite(t, Config{}).dial()
	p.expect("MULTI", ok)
	big := "ECHO " + strings.Repeat("x", 60<<10)
	refused := 0
	for range maxQueuedBytes/(60<<10) + 2 {
		if got := p.do(big); got != "+QUEUED\r\n" {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no command was refused")
	}
	p.expect("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n")
}

func TestEmptyArgumentsCountInATransaction(t *testing.T) {
	p := newSite(t, Config{}).dial()
	p.expect("MULTI", ok)
	const words = 1000
	command := "COMMAND INFO" + strings.Repeat(` ""`, words)
	queued := 0
	for p.do(command) == "+QUEUED\r\n" {
		queued++
	}
	if most := maxQueuedBytes / (words * argumentOverhead); queued == 0 || queued > most {
		t.Errorf("%d commands of %d empty arguments were queued, want at most %d", queued, words, most)
	}
	p.expect("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n")
}
