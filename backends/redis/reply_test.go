package redis

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
)

// asReply turns decoded JSON into the types of a go-redis reply: int64, string, []any and nil.
func asReply(v any) any {
	switch v := v.(type) {
	case json.Number:
		n, _ := v.Int64()
		return n
	case []any:
		for i := range v {
			v[i] = asReply(v[i])
		}
		return v
	case string:
		return v
	}
	return nil
}

// FuzzState checks that parseReply never panics, and that an accepted reply is fit for a client. A
// reply contains values of keys that other programs may write.
func FuzzState(f *testing.F) {
	for _, seed := range []string{
		`["busy","a","1790000000000001",1790000000000,1790000001000,1790000002000,1790000000500,0,"",1790000002000,[],[]]`,
		`["acquired","b","1790000000000002",1790000000000,1790000001000,1790000001000,1790000000000,0,"",1790000001000,` +
			`["c","3","t1"],["expired","a","1","","acquired","b","2","handoff"]]`,
		`["ok","","0",0,0,0,1790000000000,1,3,0,["c","3","t1","d","4","t2","e","expired","t3","f","ended","t4"],["queued","d","0","","left","e","0","lapsed"]]`,
		`["late","","0",0,0,0,1790000000000,""]`, `["released","a","17",0,0,0,1790000000000,"why"]`,
		`["acquired","a","1790000000000002",1790000000000,1790000001000,1790000002000,1790000000000,""]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var v any
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if d.Decode(&v) != nil {
			return
		}
		reply := asReply(v)
		now, _ := clockOf(reply)
		s, err := parseReply("m", reply)
		if err != nil {
			if !errors.Is(err, errReply) {
				t.Errorf("parseReply of %s: %v; want errReply", text, err)
			}
			return
		}
		s.sent = time.Now()
		if s.now != now {
			t.Errorf("reply %s: the clock is %d, want %d", text, s.now, now)
		}
		o, left := s.outcome(simba.StatusBusy), s.tenure()
		if o.TTL < 0 || o.Transition < 0 || o.Position < 0 || left.TTL < 0 || left.Transition < 0 || s.began().After(s.sent) {
			t.Errorf("reply %s gives %+v, %+v; want nothing negative", text, o, left)
		}
		for _, e := range s.events {
			if !json.Valid(e.AppendJSON(nil)) || e.Kind == 0 {
				t.Errorf("reply %s: the event %+v is invalid", text, e)
			}
		}
	})
}
