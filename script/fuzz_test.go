package script

import (
	"context"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/resp"
)

func FuzzScript(f *testing.F) {
	for _, source := range []string{
		"return 1", obtain, "return {1,{2,'a'},ok='x'}", "error({err='E x'})", "local t={} t[1]=t return t",
		"return ('x'):find('.', 1, true)",
		"return string.format('%5.2f %s', 1, 'a')", "goto a ::a:: return #'x'",
		"for k,v in pairs(_G) do v() end", "return setmetatable({},{__index=function() error(1) end}).a",
		"local f f=function(...) return f(1,...) end return f()", "return redis.call('echo', 1)",
	} {
		f.Add(source)
	}
	r := New(Config{Memory: 8 << 20})
	f.Fuzz(func(t *testing.T, source string) {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		var w resp.Writer
		err := r.Run(ctx, Call{Source: source}, echo, &w)
		if (err == nil) == (w.Len() == 0) {
			t.Errorf("Run returned the error %v and the reply %q; want one of them", err, w.Bytes())
		}
	})
}
