// Package lifecycle tests the start and the stop of the server: what the server refuses, how it
// ends, and what it logs.
package lifecycle

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// newDirLine matches the log line of a server that has created its data directory.
const newDirLine = `level=WARN msg="new data directory: it has no leases" dir=(\S+)`

func TestANewDataDirectoryIsLoggedOnce(t *testing.T) {
	dir := t.TempDir() + "/data"
	s := simbatest.StartIn(t, dir)
	if match := regexp.MustCompile(newDirLine).FindStringSubmatch(s.Output()); match == nil || match[1] != dir {
		t.Errorf("the server does not log that the directory is new:\n%s", s.Output())
	}
	s.Signal(syscall.SIGKILL) // the directory exists, but has no lease
	s.Wait(t)
	again := simbatest.StartIn(t, dir)
	if log := again.Output(); regexp.MustCompile(newDirLine).MatchString(log) {
		t.Errorf("the server logs that the directory of an earlier run is new:\n%s", log)
	}
}

func TestAddressInUseIsRefused(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	simbatest.Must(t, err)
	defer ln.Close()
	s := simbatest.Start(t) // the server logs a new data directory
	s.Stop()
	simbatest.Refused(t, 1, "addr: listen tcp "+ln.Addr().String()+": bind: address already in use", "--addr", ln.Addr().String(), "--data-dir", s.Dir)
}

// While a server waits for a store that sends nothing, a signal must end it at once.
func TestASignalEndsAServerThatWaitsForItsStore(t *testing.T) {
	for engine, flags := range map[string]string{
		"redis": "--redis-url redis://%s", "mysql": "--mysql-dsn u@tcp(%s)/simba",
		"postgres": "--postgres-url postgres://u@%s/simba", "zookeeper": "--zookeeper-servers %s",
	} {
		t.Run(engine, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			simbatest.Must(t, err)
			defer ln.Close()
			args := append([]string{"--addr", "127.0.0.1:0", "--engine", engine, "--backend-timeout", "24h"},
				strings.Fields(fmt.Sprintf(flags, ln.Addr()))...)
			s := simbatest.Launch(t, args...)
			asked, err := ln.Accept()
			simbatest.Must(t, err)
			defer asked.Close()
			s.Signal(syscall.SIGTERM)
			s.Wait(t)
		})
	}
}

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }
