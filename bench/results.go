package main

import (
	"math"
	"slices"
)

// results are all that was measured, in the order in which it first was.
type results struct {
	tables []*table
	errs   []string // what went wrong, for the report
}

// table is a workload: for each subject and size the value of each round.
type table struct {
	name, unit, about string
	better            string // "more" or "less"
	rows, columns     []string
	cells             map[cell][]float64
}

type cell struct{ row, column string }

// table returns the table of that name, new if there is none.
func (r *results) table(name, unit, better, about string) *table {
	for _, t := range r.tables {
		if t.name == name {
			return t
		}
	}
	t := &table{name: name, unit: unit, better: better, about: about, cells: make(map[cell][]float64)}
	r.tables = append(r.tables, t)
	return t
}

func (t *table) add(row, column string, value float64) {
	if !slices.Contains(t.rows, row) {
		t.rows = append(t.rows, row)
	}
	if !slices.Contains(t.columns, column) {
		t.columns = append(t.columns, column)
	}
	at := cell{row, column}
	t.cells[at] = append(t.cells[at], value)
}

// median of what was measured there; NaN if nothing was.
func (t *table) median(row, column string) float64 {
	if t == nil {
		return math.NaN()
	}
	all := slices.Sorted(slices.Values(t.cells[cell{row, column}]))
	switch n := len(all); {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return all[n/2]
	default:
		return (all[n/2-1] + all[n/2]) / 2
	}
}

// median of a table's cell.
func (r *results) median(name, row, column string) float64 {
	for _, t := range r.tables {
		if t.name == name {
			return t.median(row, column)
		}
	}
	return math.NaN()
}
