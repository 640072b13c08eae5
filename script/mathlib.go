package script

import (
	"math"
	"math/rand/v2"

	lua "github.com/yuin/gopher-lua"
)

// random is the generator of Redis, C's drand48, so a seed yields the same numbers as in Redis.
// Each run begins with another seed: a script may use a random number as the value of a lock, which
// must be unique.
type random struct{ x uint64 }

func (r *random) begin() { r.x = rand.Uint64() >> 16 }

func (r *random) seed(n uint32) { r.x = uint64(n)<<16 | 0x330E }

// next returns a number in [0, 1).
func (r *random) next() float64 {
	r.x = (r.x*0x5DEECE66D + 0xB) & (1<<48 - 1)
	return float64(r.x>>17%math.MaxInt32) / math.MaxInt32
}

// mathLibrary returns the math library.
//
// None of its functions is gopher-lua's, whose errors, NaN and numeric strings are not those of
// Redis. The comments below say how else
// gopher-lua's function differs.
func (s *state) mathLibrary() *lua.LTable {
	functions := map[string]lua.LGFunction{
		"max":        mathExtreme(func(f, most float64) bool { return f > most }),
		"min":        mathExtreme(func(f, most float64) bool { return f < most }),
		"frexp":      mathFrexp,
		"ldexp":      mathLdexp,        // gopher-lua's keeps exponents beyond 32 bits
		"modf":       mathModf,         // differs: the fraction of an infinity
		"random":     s.mathRandom,     // differs: other numbers for the same seed
		"randomseed": s.mathRandomSeed, // gopher-lua's seeds the whole process
	}
	for name, f := range map[string]func(a, b float64) float64{
		"atan2": func(y, x float64) float64 { return signed(math.Atan2(y, x), invalid, x, y) },
		"fmod":  fmod, "mod": fmod, "pow": power,
	} {
		functions[name] = func(L *lua.LState) int {
			return push(L, lua.LNumber(f(checkNumber(L, 1), checkNumber(L, 2))))
		}
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
			return push(L, lua.LNumber(y))
		}
	}
	t := s.table(functions)
	t.RawSetString("pi", lua.LNumber(math.Pi))
	t.RawSetString("huge", lua.LNumber(math.Inf(1)))
	return t
}

func fmod(a, b float64) float64 { return signed(math.Mod(a, b), invalid, a, b) }

func mathExtreme(isMore func(f, most float64) bool) lua.LGFunction {
	return func(L *lua.LState) int {
		most := checkNumber(L, 1)
		for i := 2; i <= L.GetTop(); i++ {
			if f := checkNumber(L, i); isMore(f, most) {
				most = f
			}
		}
		return push(L, lua.LNumber(most))
	}
}

func mathFrexp(L *lua.LState) int {
	fraction, exponent := math.Frexp(checkNumber(L, 1))
	return push(L, lua.LNumber(fraction), lua.LNumber(exponent))
}

func mathLdexp(L *lua.LState) int {
	return push(L, lua.LNumber(math.Ldexp(checkNumber(L, 1), checkInt(L, 2))))
}

func mathModf(L *lua.LState) int {
	f := checkNumber(L, 1)
	whole, fraction := math.Modf(f)
	if math.IsInf(f, 0) {
		fraction = 0
	}
	return push(L, lua.LNumber(whole), lua.LNumber(math.Copysign(fraction, f)))
}

func (s *state) mathRandom(L *lua.LState) int {
	r := s.random.next()
	var low, high int32 = 1, 0
	switch L.GetTop() {
	case 0:
		return push(L, lua.LNumber(r))
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
	return push(L, lua.LNumber(math.Floor(r*float64(high-low+1))+float64(low)))
}

func (s *state) mathRandomSeed(L *lua.LState) int {
	s.random.seed(uint32(checkInt(L, 1)))
	return 0
}
