package simbatest

import (
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"
)

// Record is the reply of SIMBA.ACQUIRE or a similar command, as values by field name. A value is a
// string or an int64.
type Record map[string]any

// Text returns a string field, or "" if the record has no such field.
func (r Record) Text(name string) string { s, _ := r[name].(string); return s }

// Number returns a number field, or 0 if the record has no such field.
func (r Record) Number(name string) int64 { n, _ := r[name].(int64); return n }

// ToRecord converts a reply of redigo or go-redis: a flat array in RESP2, a map in RESP3. It
// converts null to a nil Record.
func ToRecord(reply any, err error) (Record, error) {
	if errors.Is(err, goredis.Nil) || err == nil && reply == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := make(Record)
	switch reply := reply.(type) {
	case []any:
		if len(reply)%2 != 0 {
			return nil, fmt.Errorf("%q is not a record: it has an odd length", reply)
		}
		for i := 0; i < len(reply); i += 2 {
			r[fmt.Sprint(text(reply[i]))] = text(reply[i+1])
		}
	case map[any]any:
		for name, value := range reply {
			r[fmt.Sprint(name)] = text(value)
		}
	default:
		return nil, fmt.Errorf("%v is not a record", reply)
	}
	return r, nil
}

// ToRecords converts the reply of SIMBA.HISTORY or SIMBA.QUEUE to a list of records.
func ToRecords(reply any, err error) ([]Record, error) {
	if err != nil {
		return nil, err
	}
	list, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("%v is not a list of records", reply)
	}
	records := make([]Record, len(list))
	for i, e := range list {
		if records[i], err = ToRecord(e, nil); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// text converts a bulk string to a string, and returns other values unchanged.
func text(v any) any {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return v
}
