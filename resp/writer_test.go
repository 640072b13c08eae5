package resp

import (
	"math"
	"testing"
)

func TestRepliesInBothProtocols(t *testing.T) {
	tests := []struct {
		name         string
		write        func(w *Writer)
		resp2, resp3 string
	}{
		{"simple", func(w *Writer) { w.Simple("O\r\nK") }, "+O  K\r\n", "+O  K\r\n"},
		{"error", func(w *Writer) { w.Error("ERR a\r\nb") }, "-ERR a  b\r\n", "-ERR a  b\r\n"},
		{"int", func(w *Writer) { w.Int(-12) }, ":-12\r\n", ":-12\r\n"},
		{"bulk", func(w *Writer) { w.Bulk([]byte("a\r\nb")) }, "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n"},
		{"nil bulk", func(w *Writer) { w.Bulk(nil) }, "$0\r\n\r\n", "$0\r\n\r\n"},
		{"bulk string", func(w *Writer) { w.BulkString("0123456789") }, "$10\r\n0123456789\r\n", "$10\r\n0123456789\r\n"},
		{"null", (*Writer).Null, "$-1\r\n", "_\r\n"},
		{"array", func(w *Writer) { w.Array(10) }, "*10\r\n", "*10\r\n"},
		{"map", func(w *Writer) { w.Map(2) }, "*4\r\n", "%2\r\n"},
		{"map of pairs", func(w *Writer) { w.MapOf("k", "v", "n", int64(-1)) }, "*4\r\n$1\r\nk\r\n$1\r\nv\r\n$1\r\nn\r\n:-1\r\n", "%2\r\n$1\r\nk\r\n$1\r\nv\r\n$1\r\nn\r\n:-1\r\n"},
		{"set", func(w *Writer) { w.Set(2) }, "*2\r\n", "~2\r\n"},
		{"push", func(w *Writer) { w.Push(3) }, "*3\r\n", ">3\r\n"},
		{"double", func(w *Writer) { w.Double(0.1) }, "$19\r\n0.10000000000000001\r\n", ",0.10000000000000001\r\n"},
		{"whole double", func(w *Writer) { w.Double(100000) }, "$6\r\n100000\r\n", ",100000\r\n"},
		{"large double", func(w *Writer) { w.Double(1e100) }, "$6\r\n1e+100\r\n", ",1e+100\r\n"},
		{"infinity", func(w *Writer) { w.Double(math.Inf(-1)) }, "$4\r\n-inf\r\n", ",-inf\r\n"},
		{"no number", func(w *Writer) { w.Double(math.NaN()) }, "$3\r\nnan\r\n", ",nan\r\n"},
		{"verbatim", func(w *Writer) { w.Verbatim("txt", "a\nb") }, "$3\r\na\nb\r\n", "=7\r\ntxt:a\nb\r\n"},
	}
	for _, tt := range tests {
		var w2, w3 Writer
		w3.SetProto(3)
		tt.write(&w2)
		tt.write(&w3)
		if got := string(w2.Bytes()); got != tt.resp2 {
			t.Errorf("%s in RESP2: %q, want %q", tt.name, got, tt.resp2)
		}
		if got := string(w3.Bytes()); got != tt.resp3 {
			t.Errorf("%s in RESP3: %q, want %q", tt.name, got, tt.resp3)
		}
	}
}

func TestZeroWriterUsesRESP2(t *testing.T) {
	var w Writer
	if w.Proto() != 2 || w.Len() != 0 {
		t.Errorf("zero Writer: RESP%d, %d bytes; want RESP2, 0 bytes", w.Proto(), w.Len())
	}
	w.SetProto(3)
	w.Null()
	w.Simple("dropped")
	w.Truncate(len("_\r\n"))
	if w.Proto() != 3 || string(w.Bytes()) != "_\r\n" {
		t.Errorf("Writer after Truncate: RESP%d, %q; want RESP3, a null", w.Proto(), w.Bytes())
	}
}
