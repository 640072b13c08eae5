package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// unmeasured stands for a missing figure.
const unmeasured = "–"

// figure formats a number with three digits, or with all digits before the point if there are more.
func figure(v float64) string {
	switch {
	case math.IsNaN(v):
		return unmeasured
	case v >= 1000:
		return thousands(fmt.Sprintf("%.0f", v))
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// figureBeside works like figure, but adds digits until the text differs from the limit.
func figureBeside(v, limit float64) string {
	text := figure(v)
	for digits := 1; v != limit && isNumber(text, limit) && digits < 10; digits++ {
		text = strconv.FormatFloat(v, 'f', digits, 64)
	}
	return text
}

func isNumber(text string, number float64) bool {
	v, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
	return err == nil && v == number
}

// thousands separates groups of three digits of a whole number by commas.
func thousands(text string) string {
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func withUnit(number, unit string) string {
	if unit == "" || number == unmeasured {
		return number
	}
	return number + " " + unit
}

func clients(n int) string {
	if n == 1 {
		return "1 client"
	}
	return fmt.Sprintf("%d clients", n)
}
