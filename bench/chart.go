package main

import (
	"fmt"
	"math"
	"strings"
)

// picture is a bar chart with one bar for each subject. A bar has one or more parts in a row.
type picture struct {
	file  string // end of the file's name: the page benchmarks has benchmarks-<file>.svg
	alt   string
	about string // what the picture shows, and whether a long bar is good
	parts []part
}

// part is the same part of each bar: a quantity and its colour.
type part struct {
	quantity quantity
	colour   string
	label    string // in the legend; "" = none
}

const (
	blue   = "#2b6cb0"
	orange = "#dd6b20"
	grey   = "#a0aec0"
)

const manyClients = 64

var pictures = []picture{
	{
		file: "tenures", alt: "Tenures a second of 64 clients with a mutex each",
		about: "**A mutex each.** Each client takes a mutex of its own and gives it back, so nobody waits. The\n" +
			"picture shows the tenures a second of all clients together: longer is better.",
		parts: []part{{tenures, blue, ""}},
	},
	{
		file: "handoffs", alt: "Tenures a second of 64 clients that want one mutex",
		about: "**One mutex for all.** All clients want the same mutex, so it goes from one to the next. The\n" +
			"picture shows the tenures a second of all clients together: longer is better.",
		parts: []part{{handoffs, blue, ""}},
	},
	{
		file: "processor", alt: "Processor time of a tenure of 64 clients with a mutex each",
		about: "**Processor time.** The picture shows what one tenure of the first picture costs, in µs of one\n" +
			"processor: shorter is better. The clients are part of the benchmark. A server that answers\n" +
			"several of them at once makes them cheaper, too.",
		parts: []part{
			{serverTime, blue, "simba-resp"},
			{storeTime, orange, "the store: Redis, MariaDB, PostgreSQL, ZooKeeper or etcd"},
			{clientTime, grey, "the clients"},
		},
	},
}

// The measures of a picture, in pixels.
const (
	left     = 190 // where the bars begin
	longest  = 480
	right    = 200 // space for the figures behind the longest bar
	row      = 24
	barHigh  = 16
	heading  = 30
	wholeWay = left + longest + right
)

// values returns the lengths of the parts of a bar. If one of them was not measured, ok is false.
func (p picture) values(r *results, subject string) (all []float64, ok bool) {
	for _, part := range p.parts {
		v := median(r.of(key{part.quantity, subject, manyClients}))
		if math.IsNaN(v) {
			return nil, false
		}
		all = append(all, v)
	}
	return all, true
}

// svg draws the picture. A subject that was not measured has no bar.
func (p picture) svg(r *results) string {
	var most float64
	for _, s := range subjects {
		if values, ok := p.values(r, s.name); ok {
			most = max(most, sumOf(values))
		}
	}
	var w strings.Builder
	y := 8
	y = p.legend(&w, y)
	group := ""
	for _, s := range subjects {
		values, ok := p.values(r, s.name)
		if !ok {
			continue
		}
		if s.group != group {
			group = s.group
			fmt.Fprintf(&w, `<text x="10" y="%d" fill="#4a5568">%s</text>`+"\n", y+heading-9, group)
			y += heading
		}
		fmt.Fprintf(&w, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-10, y+barHigh-3, s.name)
		x := float64(left)
		for i, v := range values {
			wide := longest * v / most
			fmt.Fprintf(&w, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", x, y, wide, barHigh, p.parts[i].colour)
			x += wide
		}
		fmt.Fprintf(&w, `<text x="%.1f" y="%d">%s</text>`+"\n", x+6, y+barHigh-3, p.caption(values))
		y += row
	}
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="13">`+"\n"+
		`<rect width="100%%" height="100%%" fill="white"/>`+"\n", wholeWay, y+8)
	return head + w.String() + "</svg>\n"
}

// legend draws the legend, and returns the y coordinate below it.
func (p picture) legend(w *strings.Builder, y int) int {
	x, any := 10, false
	for _, part := range p.parts {
		if part.label == "" {
			continue
		}
		any = true
		fmt.Fprintf(w, `<rect x="%d" y="%d" width="12" height="12" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n",
			x, y, part.colour, x+18, y+11, part.label)
		x += 40 + 7*len(part.label)
	}
	if any {
		y += row
	}
	return y
}

// caption returns the figures behind a bar: the sum, and the parts if there are several.
func (p picture) caption(values []float64) string {
	if len(values) == 1 {
		return figure(values[0])
	}
	var parts []string
	whole := 0.0 // sum of the rounded parts, so that the shown figures add up
	for _, v := range values {
		if v > 0 {
			parts = append(parts, thousands(fmt.Sprintf("%.0f", v)))
			whole += math.Round(v)
		}
	}
	return fmt.Sprintf("%s = %s", thousands(fmt.Sprintf("%.0f", whole)), strings.Join(parts, " + "))
}

func sumOf(values []float64) (sum float64) {
	for _, v := range values {
		sum += v
	}
	return sum
}
