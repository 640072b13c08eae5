package main

import (
	"fmt"
	"math"
	"os"
	"strings"
)

// writeChart draws the tenures a second of 64 clients, uncontended and on one hot mutex, as SVG.
func (b *bench) writeChart(path string) error {
	const (
		size       = "64"
		left       = 230
		full       = 520 // of the longest bar
		bar        = 14
		group      = 2*bar + 14
		top        = 50
		wholeWidth = left + full + 110
	)
	var most float64
	for _, s := range subjects {
		for _, name := range []string{uncontended, handoffs} {
			if v := b.median(name, s.name, size); v > most {
				most = v
			}
		}
	}
	var w strings.Builder
	fmt.Fprintf(&w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", wholeWidth, top+group*len(subjects)+10)
	w.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	fmt.Fprintf(&w, `<text x="%d" y="20" font-size="14">Tenures a second, 64 clients</text>`+"\n", left)
	for i, key := range []struct{ colour, text string }{{"#2b6cb0", "a mutex each"}, {"#dd6b20", "one hot mutex"}} {
		fmt.Fprintf(&w, `<rect x="%d" y="30" width="10" height="10" fill="%s"/><text x="%d" y="39">%s</text>`+"\n", left+i*130, key.colour, left+i*130+15, key.text)
	}
	for i, s := range subjects {
		y := top + i*group
		fmt.Fprintf(&w, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-10, y+bar+4, s.name)
		for j, m := range []struct{ name, colour string }{{uncontended, "#2b6cb0"}, {handoffs, "#dd6b20"}} {
			v := b.median(m.name, s.name, size)
			if math.IsNaN(v) {
				continue
			}
			fmt.Fprintf(&w, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/><text x="%.1f" y="%d">%s</text>`+"\n",
				left, y+j*bar, max(1, full*v/most), bar-2, m.colour, left+6+full*v/most, y+j*bar+bar-3, number3(v))
		}
	}
	w.WriteString("</svg>\n")
	return os.WriteFile(path, []byte(w.String()), 0o644)
}
