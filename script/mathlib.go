package script

import (
	"math"
	"math/rand/v2"

	lua "github.com/yuin/gopher-lua"
)

// mathLibrary returns the math library, without the functions that no library for locks uses.
//
// None of its functions is gopher-lua's, whose errors, NaN and numeric strings are not those of
// Redis.
func (s *state) mathLibrary() *lua.LTable {
	functions := map[string]lua.LGFunction{
		"max":    mathExtreme(func(f, most float64) bool { return f > most }),
		"min":    mathExtreme(func(f, most float64) bool { return f < most }),
		"modf":   mathModf, // gopher-lua's has another fraction of an infinity
		"random": mathRandom,
		"fmod":   mathOfTwo(fmod),
		"pow":    mathOfTwo(power),
	}
	for name, f := range map[string]func(float64) float64{
		"abs": math.Abs, "ceil": math.Ceil, "exp": math.Exp, "floor": math.Floor, "log": math.Log, "sqrt": math.Sqrt,
	} {
		functions[name] = func(L *lua.LState) int {
			x := checkNumber(L, 1)
			y := f(x)
			if name != "abs" {
				y = signed(y, x)
			}
			return push(L, lua.LNumber(y))
		}
	}
	t := s.table(functions)
	t.RawSetString("pi", lua.LNumber(math.Pi))
	t.RawSetString("huge", lua.LNumber(math.Inf(1)))
	return t
}

func mathOfTwo(f func(a, b float64) float64) lua.LGFunction {
	return func(L *lua.LState) int { return push(L, lua.LNumber(f(checkNumber(L, 1), checkNumber(L, 2)))) }
}

func fmod(a, b float64) float64 { return signed(math.Mod(a, b), a, b) }

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

func mathModf(L *lua.LState) int {
	f := checkNumber(L, 1)
	whole, fraction := math.Modf(f)
	if math.IsInf(f, 0) {
		fraction = 0
	}
	return push(L, lua.LNumber(whole), lua.LNumber(math.Copysign(fraction, f)))
}

// mathRandom returns other numbers in each run, unlike Redis. A script may use a random number as
// the value of a lock, which must be unique.
func mathRandom(L *lua.LState) int {
	r := rand.Float64()
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
