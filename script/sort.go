package script

import (
	lua "github.com/yuin/gopher-lua"
)

// sorter sorts a table by the algorithm of Lua 5.1 (ltablib.c), so equal elements and an
// inconsistent order function give the result of Redis.
type sorter struct {
	s    *state
	L    *lua.LState
	t    *lua.LTable
	less *lua.LFunction // nil = the operator <
}

func (s *state) tableSort(L *lua.LState) int {
	t := checkTable(L, 1)
	if _, ok := s.contents[t]; ok {
		return 0 // a read-only table has no elements
	}
	o := sorter{s: s, L: L, t: t}
	if !isNone(L, 2) {
		o.less = checkFunction(L, 2)
	}
	o.sort(1, length(t))
	return 0
}

func (o *sorter) get(i int) lua.LValue { return o.t.RawGet(lua.LNumber(i)) }

func (o *sorter) set(i int, v lua.LValue) { o.t.RawSetInt(i, v) }

func (o *sorter) isLess(a, b lua.LValue) bool {
	L := o.L
	o.s.spend(L, 1)
	if o.less == nil {
		return L.LessThan(a, b)
	}
	return lua.LVAsBool(call1(L, o.less, a, b))
}

// order swaps elements i and j if they are in the wrong order. i < j.
func (o *sorter) order(i, j int) {
	a, b := o.get(i), o.get(j)
	if o.isLess(b, a) {
		o.set(i, b)
		o.set(j, a)
	}
}

func (o *sorter) sort(low, high int) {
	for low < high {
		o.order(low, high)
		if high-low == 1 {
			return
		}
		middle := (low + high) / 2
		if a, first := o.get(middle), o.get(low); o.isLess(a, first) {
			o.set(middle, first)
			o.set(low, a)
		} else {
			o.order(middle, high)
		}
		if high-low == 2 {
			return
		}
		pivot := o.get(middle)
		o.set(middle, o.get(high-1))
		o.set(high-1, pivot)
		i := o.partition(low, high, pivot)
		v := o.get(high - 1)
		o.set(high-1, o.get(i))
		o.set(i, v)
		if i-low < high-i { // recursing into the smaller half bounds the depth
			o.sort(low, i-1)
			low = i + 1
		} else {
			o.sort(i+1, high)
			high = i - 1
		}
	}
}

// partition moves the elements below the pivot, which is at high-1, before the others. It returns
// where the others begin.
func (o *sorter) partition(low, high int, pivot lua.LValue) int {
	i, j := low, high-1
	for {
		for i++; o.isLess(o.get(i), pivot); i++ {
			if i > high {
				raiseError(o.L, "invalid order function for sorting")
			}
		}
		for j--; o.isLess(pivot, o.get(j)); j-- {
			if j < low {
				raiseError(o.L, "invalid order function for sorting")
			}
		}
		if j < i {
			return i
		}
		a, b := o.get(i), o.get(j)
		o.set(i, b)
		o.set(j, a)
	}
}
