package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// table prints rows in columns. It escapes its cells.
type table struct{ w *tabwriter.Writer }

func newTable(out io.Writer, heads ...string) table {
	t := table{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	if len(heads) > 0 {
		t.row(heads...)
	}
	return t
}

func (t table) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = Printable(cell)
	}
	// Flush returns the error.
	_, _ = io.WriteString(t.w, strings.Join(cells, "\t")+"\n")
}

func (t table) flush() error { return t.w.Flush() }

// printJSON prints one object in one line. Bytes that are not UTF-8 become U+FFFD. JSON allows
// unprintable characters that a terminal may obey, so printJSON escapes them too.
func printJSON(out io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	var line []byte
	for _, r := range strings.TrimSuffix(b.String(), "\n") {
		if unicode.IsPrint(r) {
			line = utf8.AppendRune(line, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			line = fmt.Appendf(line, `\u%04x`, unit)
		}
	}
	_, err := out.Write(append(line, '\n'))
	return err
}

func printJSONLines[T any](out io.Writer, list []T) error {
	for _, v := range list {
		if err := printJSON(out, v); err != nil {
			return err
		}
	}
	return nil
}

// millis returns a number of milliseconds as a person reads it: 340ms, 12.5s, 3m10s.
func millis(ms int64) string {
	switch {
	case ms < 1000:
		return strconv.FormatInt(ms, 10) + "ms"
	case ms < 60_000:
		return strconv.FormatFloat(math.Floor(float64(ms)/100)/10, 'f', 1, 64) + "s"
	}
	return (time.Duration(ms) * time.Millisecond).Truncate(time.Second).String()
}

// clock returns a time of Unix milliseconds in the zone of the reader, in the format of RFC 3339.
func clock(ms int64) string {
	return time.UnixMilli(ms).Local().Format("2006-01-02T15:04:05.000Z07:00")
}

func number(n int64) string { return strconv.FormatInt(n, 10) }
