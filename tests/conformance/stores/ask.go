package stores

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp/tests/need"
)

// ask sends one inline command to a Redis server on its own connection. It returns the reply if it
// is a status, an integer or a bulk string.
func ask(addr, command string) (string, error) {
	c, err := net.DialTimeout("tcp", addr, need.Hang)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(need.Hang))
	if _, err := io.WriteString(c, command+"\r\n"); err != nil {
		return "", err
	}
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, rest := line[0], strings.TrimSpace(line[1:])
	switch kind {
	case '+', ':':
		return rest, nil
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return "", fmt.Errorf("%s answers %q with %q", addr, command, line)
		}
		text := make([]byte, n)
		_, err = io.ReadFull(r, text)
		return string(text), err
	}
	return "", fmt.Errorf("%s answers %q with %q", addr, command, strings.TrimSpace(line))
}

func mustAsk(t TB, addr, command string) string {
	t.Helper()
	reply, err := ask(addr, command)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func replyContains(addr, command string, want ...string) bool {
	reply, err := ask(addr, command)
	if err != nil {
		return false
	}
	for _, w := range want {
		if !strings.Contains(reply, w) {
			return false
		}
	}
	return true
}
