package tests

import "fmt"

// record is a reply of SIMBA.ACQUIRE and the like: strings and int64s by name.
type record map[string]any

// toRecord takes what redigo or go-redis returned for a record, a flat array in
// RESP2 or a map in RESP3. redigo's null is a nil record.
func toRecord(reply any, err error) (record, error) {
	if err != nil {
		return nil, err
	}
	if reply == nil {
		return nil, nil
	}
	r := make(record)
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

// text returns a bulk string as a string, and any other value as it is.
func text(v any) any {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return v
}
