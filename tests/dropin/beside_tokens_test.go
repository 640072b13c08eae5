package dropin

import (
	"strconv"
	"time"

	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
)

// tokenRules has rules about the token of a tenure. Contenders of Simba and ours must see the same
// token.
var tokenRules = []rule{
	{"their tenure has one token, which CHECK passes until it ends", nil, func(m *meeting) {
		before := m.takes("ours")
		is(m, m.rdb, int64(1), "simba.release", m.mutex, "ours")
		k := m.owns(m.jvm("jvm"))
		token := m.owner("jvm")
		if k.last != 0 && k.last != token {
			m.Errorf("their script returns token %d, SIMBA.OWNER returns %d", k.last, token)
		}
		if token <= before {
			m.Errorf("their token is %d, want more than %d, our earlier token", token, before)
		}
		for range 3 {
			m.must(k.guard(m.ctx))
			if t := m.owner("jvm"); t != token || !m.check(token) {
				m.Errorf("after a renewal SIMBA.OWNER returns token %d, want %d, and CHECK reports %v, want true", t, token, m.check(token))
			}
		}
		if m.check(before) {
			m.Error("CHECK passes the token of our earlier tenure")
		}
		m.must(k.end(m.ctx))
		if m.check(token) {
			m.Error("CHECK passes a token whose tenure is over")
		}
		if next := m.takes("ours"); next <= token {
			m.Errorf("our token is %d, want more than %d, their earlier token", next, token)
		}
	}},
	{"their scripts return our token", fencing, func(m *meeting) {
		token := m.takes("ours")
		k := m.jvm("jvm")
		owner, _, last, err := k.state(m.ctx, k.Of.Acquire)
		m.must(err)
		if owner != "ours" || last != token {
			m.Errorf("their acquire script returns the owner %s with token %d, want ours with %d", owner, last, token)
		}
		if owner, _, last, err = k.state(m.ctx, k.Of.Guard); err != nil || owner != "ours" || last != token {
			m.Errorf("their guard script returns the owner %s with token %d, %v, want ours with %d", owner, last, err, token)
		}
	}},
	{"the token's key exists as long as our lease", fencing, func(m *meeting) {
		token := m.takes("ours")
		is(m, m.store, strconv.FormatUint(token, 10), "get", seeds.Token(m.mutex))
		lock, err := m.store.PTTL(m.ctx, seeds.Lease(m.mutex)).Result()
		m.must(err)
		if ms, err := m.store.PTTL(m.ctx, seeds.Token(m.mutex)).Result(); err != nil || ms <= lock-time.Minute || ms > lock {
			m.Errorf("the token's key expires in %v, the lease's key in %v, PTTL: %v", ms, lock, err)
		}
		if n, err := m.store.Get(m.ctx, seeds.Fence(m.mutex)).Uint64(); err != nil || n != token {
			m.Errorf("the token counter is %d, %v, want %d, our token", n, err, token)
		}
		is(m, m.store, int64(-1), "pttl", seeds.Fence(m.mutex))
		is(m, m.rdb, int64(1), "simba.release", m.mutex, "ours")
		is(m, m.store, nil, "get", seeds.Token(m.mutex))
	}},
	{"an unseen tenure between two of the same contender changes its token", nil, func(m *meeting) {
		k, between := m.jvm("jvm"), []seeds.Generation{seeds.Simba33}
		if m.gen.Tokens {
			between = append(between, seeds.Simba31)
		}
		for _, gen := range between {
			unseen := m.jvmOf(gen, "unseen")
			m.owns(k)
			first := m.owner("jvm")
			m.must(k.end(m.ctx))
			m.must(m.owns(unseen).end(m.ctx))
			m.owns(k)
			if m.check(first) {
				m.Error("CHECK passes the token of the first tenure")
			}
			if token := m.owner("jvm"); token <= unseen.last || token <= first || k.last != 0 && token != k.last {
				m.Errorf("the token of the third tenure is %d, at its owner %d; want more than %d and %d, the earlier tokens", token, k.last, first, unseen.last)
			}
			m.must(k.end(m.ctx))
		}
	}},
}
