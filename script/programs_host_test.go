package script

import (
	"fmt"
	"strconv"
)

// programsHost is the Host of the programs.
type programsHost struct{ keys map[string]string }

func (h *programsHost) Call(args [][]byte) []byte {
	bulk := func(s string, exists bool) []byte {
		if !exists {
			return []byte("$-1\r\n")
		}
		return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(s), s)
	}
	name := string(args[0])
	arity, known := map[string]int{"echo": 2, "get": 2, "set": 3, "del": 2, "incr": 2, "mget": 3}[name]
	switch {
	case !known:
		return []byte("-ERR Unknown Redis command called from script\r\n")
	case len(args) != arity:
		return []byte("-ERR Wrong number of args calling Redis command from script\r\n")
	}
	key := string(args[1])
	old, exists := h.keys[key]
	switch name {
	case "echo":
		return bulk(key, true)
	case "get":
		return bulk(old, exists)
	case "mget":
		other, known := h.keys[string(args[2])]
		return append(append([]byte("*2\r\n"), bulk(old, exists)...), bulk(other, known)...)
	case "set":
		h.keys[key] = string(args[2])
		return []byte("+OK\r\n")
	case "del":
		delete(h.keys, key)
		if exists {
			return []byte(":1\r\n")
		}
		return []byte(":0\r\n")
	}
	n, err := strconv.ParseInt(old, 10, 64)
	if exists && (err != nil || strconv.FormatInt(n, 10) != old) {
		return []byte("-ERR value is not an integer or out of range\r\n")
	}
	h.keys[key] = strconv.FormatInt(n+1, 10)
	return fmt.Appendf(nil, ":%d\r\n", n+1)
}
