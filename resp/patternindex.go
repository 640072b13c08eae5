package resp

import (
	"iter"
	"slices"
	"strings"
)

// patternIndex finds the patterns that match a channel, by their literal prefixes. It is immutable.
type patternIndex struct {
	byPrefix map[string][]*topic
	lengths  []int // the lengths of the keys of byPrefix, sorted, each once
}

// noPatterns is the index of no patterns.
var noPatterns = new(patternIndex)

func newPatternIndex(patterns iter.Seq[*topic]) *patternIndex {
	index := &patternIndex{byPrefix: make(map[string][]*topic)}
	for t := range patterns {
		literal := t.name
		if i := strings.IndexAny(literal, `*?[\`); i >= 0 {
			literal = literal[:i]
		}
		index.byPrefix[literal] = append(index.byPrefix[literal], t)
		if i, known := slices.BinarySearch(index.lengths, len(literal)); !known {
			index.lengths = slices.Insert(index.lengths, i, len(literal))
		}
	}
	return index
}

// matches returns the patterns that match a channel.
func (index *patternIndex) matches(channel string) iter.Seq[*topic] {
	return func(yield func(*topic) bool) {
		for _, n := range index.lengths {
			if n > len(channel) {
				return
			}
			for _, t := range index.byPrefix[channel[:n]] {
				if Match(t.name, channel) && !yield(t) {
					return
				}
			}
		}
	}
}
