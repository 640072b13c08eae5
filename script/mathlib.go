package script

import (
	"math"
	"math/rand/v2"

	lua "github.com/yuin/gopher-lua"
)

// random is the generator of Redis, C's drand48, so that a seed gives the same numbers
// everywhere. Each run begins with another seed: what a script draws may become the value of a
// lock, which two clients must not share.
type random struct{ x uint64 }

func (r *random) begin() { r.x = rand.Uint64() >> 16 }

func (r *random) seed(n uint32) { r.x = uint64(n)<<16 | 0x330E }

// next is at least 0 and less than 1.
func (r *random) next() float64 {
	r.x = (r.x*0x5DEECE66D + 0xB) & (1<<48 - 1)
	return float64(r.x>>17%math.MaxInt32) / math.MaxInt32
}

func (s *state) mathLibrary() *lua.LTable {
	functions := map[string]lua.LGFunction{
		"atan2": mathAtan2, "fmod": math2(fmod), "mod": math2(fmod), "pow": math2(power),
		"max":   mathMost(func(f, most float64) bool { return f > most }),
		"min":   mathMost(func(f, most float64) bool { return f < most }),
		"frexp": mathFrexp, "ldexp": mathLdexp, "modf": mathModf,
		"random": s.mathRandom, "randomseed": s.mathRandomSeed,
	}
	for name, f := range map[string]func(float64) float64{
		"abs": math.Abs, "acos": math.Acos, "asin": math.Asin, "atan": math.Atan, "ceil": math.Ceil,
		"cos": math.Cos, "cosh": math.Cosh, "exp": math.Exp, "floor": math.Floor, "log": math.Log,
		"log10": math.Log10, "sin": math.Sin, "sinh": math.Sinh, "sqrt": math.Sqrt, "tan": math.Tan,
		"tanh": math.Tanh,
		"deg":  func(f float64) float64 { return f / (math.Pi / 180) },
		"rad":  func(f float64) float64 { return f * (math.Pi / 180) },
	} {
		nan := invalid
		if name == "acos" || name == "asin" || name == "log10" {
			nan = -nan // as in the C library
		}
		functions[name] = func(L *lua.LState) int {
			x := checkNumber(L, 1)
			y := f(x)
			if name != "abs" {
				y = signed(y, nan, x)
			}
			L.Push(lua.LNumber(y))
			return 1
		}
	}
	t := s.table(functions)
	t.RawSetString("pi", lua.LNumber(math.Pi))
	t.RawSetString("huge", lua.LNumber(math.Inf(1)))
	return t
}

func mathAtan2(L *lua.LState) int {
	y, x := checkNumber(L, 1), checkNumber(L, 2)
	L.Push(lua.LNumber(signed(math.Atan2(y, x), invalid, x, y)))
	return 1
}

func math2(f func(a, b float64) float64) lua.LGFunction {
	return func(L *lua.LState) int {
		a, b := checkNumber(L, 1), checkNumber(L, 2)
		L.Push(lua.LNumber(f(a, b)))
		return 1
	}
}

func fmod(a, b float64) float64 { return signed(math.Mod(a, b), invalid, a, b) }

func mathMost(isMore func(f, most float64) bool) lua.LGFunction {
	return func(L *lua.LState) int {
		most := checkNumber(L, 1)
		for i := 2; i <= L.GetTop(); i++ {
			if f := checkNumber(L, i); isMore(f, most) {
				most = f
			}
		}
		L.Push(lua.LNumber(most))
		return 1
	}
}

func mathFrexp(L *lua.LState) int {
	fraction, exponent := math.Frexp(checkNumber(L, 1))
	L.Push(lua.LNumber(fraction))
	L.Push(lua.LNumber(exponent))
	return 2
}

func mathLdexp(L *lua.LState) int {
	L.Push(lua.LNumber(math.Ldexp(checkNumber(L, 1), checkInt(L, 2))))
	return 1
}

func mathModf(L *lua.LState) int {
	f := checkNumber(L, 1)
	whole, fraction := math.Modf(f)
	if math.IsInf(f, 0) {
		fraction = 0
	}
	L.Push(lua.LNumber(whole))
	L.Push(lua.LNumber(math.Copysign(fraction, f)))
	return 2
}

func (s *state) mathRandom(L *lua.LState) int {
	r := s.random.next()
	var low, high int32 = 1, 0
	switch L.GetTop() {
	case 0:
		L.Push(lua.LNumber(r))
		return 1
	case 1:
		high = int32(checkInt(L, 1))
	case 2:
		low, high = int32(checkInt(L, 1)), int32(checkInt(L, 2))
	default:
		raiseError(L, "wrong number of arguments")
	}
	if low > high {
		badArgument(L, L.GetTop(), "interval is empty")
	}
	L.Push(lua.LNumber(math.Floor(r*float64(high-low+1)) + float64(low)))
	return 1
}

func (s *state) mathRandomSeed(L *lua.LState) int {
	s.random.seed(uint32(checkInt(L, 1)))
	return 0
}
