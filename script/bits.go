package script

import (
	"fmt"
	"math"
	"math/bits"

	lua "github.com/yuin/gopher-lua"
)

// bitLibrary returns the bit library of Redis. It uses the low 32 bits of numbers, and its results
// are signed.
func bitLibrary() map[string]lua.LGFunction {
	fold := func(f func(a, b uint32) uint32) lua.LGFunction {
		return func(L *lua.LState) int {
			all := toBits(L, 1)
			for i := 2; i <= L.GetTop(); i++ {
				all = f(all, toBits(L, i))
			}
			return pushBits(L, all)
		}
	}
	shift := func(f func(a uint32, n int) uint32) lua.LGFunction {
		return func(L *lua.LState) int { return pushBits(L, f(toBits(L, 1), int(toBits(L, 2)&31))) }
	}
	one := func(f func(a uint32) uint32) lua.LGFunction {
		return func(L *lua.LState) int { return pushBits(L, f(toBits(L, 1))) }
	}
	return map[string]lua.LGFunction{
		"tobit":   one(func(a uint32) uint32 { return a }),
		"bnot":    one(func(a uint32) uint32 { return ^a }),
		"bswap":   one(bits.ReverseBytes32),
		"band":    fold(func(a, b uint32) uint32 { return a & b }),
		"bor":     fold(func(a, b uint32) uint32 { return a | b }),
		"bxor":    fold(func(a, b uint32) uint32 { return a ^ b }),
		"lshift":  shift(func(a uint32, n int) uint32 { return a << n }),
		"rshift":  shift(func(a uint32, n int) uint32 { return a >> n }),
		"arshift": shift(func(a uint32, n int) uint32 { return uint32(int32(a) >> n) }),
		"rol":     shift(bits.RotateLeft32),
		"ror":     shift(func(a uint32, n int) uint32 { return bits.RotateLeft32(a, -n) }),
		"tohex":   bitToHex,
	}
}

// toBits returns the low 32 bits of an argument as Redis' C code does. The constant moves the
// integer part to the low bits of the double. Above 2^51 it does not, and the result is another
// number.
func toBits(L *lua.LState, n int) uint32 {
	return uint32(math.Float64bits(checkNumber(L, n) + (1<<52 + 1<<51)))
}

func pushBits(L *lua.LState, b uint32) int {
	return push(L, lua.LNumber(int32(b)))
}

func bitToHex(L *lua.LState) int {
	b := toBits(L, 1)
	n, format := 8, "%08x"
	if L.GetTop() > 1 {
		n = int(int32(toBits(L, 2)))
	}
	if n < 0 {
		n, format = -n, "%08X"
	}
	text := fmt.Sprintf(format, b)
	return push(L, lua.LString(text[8-min(n, 8):]))
}
