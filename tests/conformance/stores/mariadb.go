package stores

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/simba-resp/simba-resp/tests/need"
)

// MariaDB starts a MariaDB with an empty database "simba" and the user root without a password
// (root@tcp(Addr)/simba). Committed data survives Stop and Kill. The arguments are for mariadbd,
// and override the defaults.
func MariaDB(t TB, args ...string) *Server {
	t.Helper()
	return mariaDB(t, []string{createDatabase}, args...)
}

const createDatabase = "CREATE DATABASE IF NOT EXISTS simba"

// initFile is a file in Server.Dir. MariaDB executes it at each start, before it accepts
// connections. Each line has one statement.
const initFile = "begin.sql"

func mariaDB(t TB, begin []string, args ...string) *Server {
	t.Helper()
	program := need.Program(t, "mariadbd", "mariadb-server")
	port := FreePort(t)
	s := &Server{Addr: local(port), Dir: Scratch(t), program: program}
	tmp := filepath.Join(s.Dir, "tmp")
	if err := os.Mkdir(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	testOptions := []string{
		"--datadir=" + filepath.Join(s.Dir, "data"),
		"--tmpdir=" + tmp, // a starting server deletes all temporary tables there
		"--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M", "--innodb-use-native-aio=0",
		"--innodb-flush-log-at-trx-commit=2", // survives a crash of the process, without fsync
	}
	if os.Geteuid() == 0 {
		testOptions = append(testOptions, "--user=root") // else mariadbd does not run as root
	}
	install := exec.Command(need.Program(t, "mariadb-install-db", "mariadb-server"),
		append([]string{"--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"}, testOptions...)...)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("mariadb-install-db: %v\n%s", err, tail(string(out), 30))
	}
	writeInitFile(t, s, begin)
	s.args = append([]string{"--no-defaults"}, testOptions...)
	s.args = append(s.args,
		"--bind-address=127.0.0.1", "--port="+strconv.Itoa(port), "--skip-name-resolve",
		"--socket=sock", // relative to the data folder, since a socket's path must be short
		"--pid-file=pid", "--init-file="+filepath.Join(s.Dir, initFile), "--performance-schema=off", "--max-connections=500")
	s.args = append(s.args, args...)
	s.ready = func() error { return answers(s.Addr, "", "-MariaDB") } // its greeting has the version
	return start(t, s)
}

func writeInitFile(t TB, s *Server, statements []string) {
	t.Helper()
	text := strings.Join(statements, ";\n") + ";\n"
	if err := os.WriteFile(filepath.Join(s.Dir, initFile), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
