package simbatest

import "fmt"

// Record is a reply of SIMBA.ACQUIRE and similar commands: strings and int64s by name.
type Record map[string]any

// ToRecord converts a reply that redigo or go-redis returned: a flat array in RESP2 or a map in
// RESP3. The null of redigo becomes a nil Record.
func ToRecord(reply any, err error) (Record, error) {
	if err != nil || reply == nil {
		return nil, err
	}
	r := make(Record)
	switch reply := reply.(type) {
	case []any:
		for i := 0; i+1 < len(reply); i += 2 {
			r[fmt.Sprint(text(reply[i]))] = text(reply[i+1])
		}
	case map[any]any:
		for name, value := range reply {
			r[fmt.Sprint(name)] = text(value)
		}
	default:
		return nil, fmt.Errorf("%v is no record", reply)
	}
	return r, nil
}

// text returns a bulk string as a string, and any other value unchanged.
func text(v any) any {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return v
}
