package commands

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxFrameDepth is deeper than any reply nests.
const maxFrameDepth = 64

// errPartFrame is returned for an incomplete frame.
var errPartFrame = errors.New("a part of a frame")

// frameLen returns the length of the frame at the beginning of s, as strictly as RESP2 and RESP3
// define it. readFrame is more lenient.
func frameLen(s string) (int, error) { return frameLenAt(s, 0) }

func frameLenAt(s string, depth int) (int, error) {
	line, _, ok := strings.Cut(s, "\n")
	switch {
	case !ok:
		return 0, errPartFrame
	case len(line) < 2 || line[len(line)-1] != '\r' || depth > maxFrameDepth:
		return 0, fmt.Errorf("a frame begins with %q", line)
	}
	n := len(line) + 1
	text := line[1 : len(line)-1]
	bad := fmt.Errorf("a frame begins with %q", line)
	parts := 0
	switch line[0] {
	case '+', '-':
		if strings.Contains(text, "\r") {
			return 0, bad
		}
		return n, nil
	case ':':
		_, err := strconv.ParseInt(text, 10, 64)
		return n, err
	case ',':
		_, err := strconv.ParseFloat(text, 64)
		return n, err
	case '(':
		if strings.Trim(text, "-0123456789") != "" || text == "" {
			return 0, bad
		}
		return n, nil
	case '#':
		if text != "t" && text != "f" {
			return 0, bad
		}
		return n, nil
	case '_':
		if text != "" {
			return 0, bad
		}
		return n, nil
	case '$', '=':
		size, err := strconv.Atoi(text)
		switch {
		case err != nil || size < -1 || size < 0 && line[0] == '=':
			return 0, bad
		case size < 0:
			return n, nil
		case len(s) < n+size+2:
			return 0, errPartFrame
		case s[n+size:n+size+2] != "\r\n" || line[0] == '=' && (size < 4 || s[n+3] != ':'):
			return 0, fmt.Errorf("a bulk of %d bytes does not end as it should", size)
		}
		return n + size + 2, nil
	case '*', '~', '>', '%', '|':
		count, err := strconv.Atoi(text)
		if err != nil || count < -1 || count < 0 && line[0] != '*' {
			return 0, bad
		}
		parts = max(count, 0)
		if line[0] == '%' || line[0] == '|' {
			parts *= 2
		}
	default:
		return 0, bad
	}
	for range parts {
		part, err := frameLenAt(s[n:], depth+1)
		if err != nil {
			return 0, err
		}
		n += part
	}
	return n, nil
}
