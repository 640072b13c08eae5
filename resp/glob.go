package resp

// Match reports whether s matches a glob by the rules of Redis' stringmatchlen: '*', '?', '[a-z]',
// '[^a-z]' and '\' before a literal byte. Its time is at most proportional to the product of the
// lengths, because it retries only the last '*'. The last '*' can match everything that an earlier
// one could.
func Match(pattern, s string) bool {
	p, i := 0, 0
	star, resume := -1, 0 // a retry begins at pattern[star], behind the last '*', and at s[resume]
	for i < len(s) {
		if p < len(pattern) && pattern[p] == '*' {
			p++
			star, resume = p, i
			continue
		}
		if p < len(pattern) {
			if n, ok := matchByte(pattern[p:], s[i]); ok {
				p += n
				i++
				continue
			}
		}
		if star < 0 {
			return false
		}
		resume++
		p, i = star, resume
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// matchByte matches c against the first element of a pattern, which is not '*'. n is the length of
// the element.
func matchByte(pattern string, c byte) (n int, ok bool) {
	switch pattern[0] {
	case '?':
		return 1, true
	case '[':
		return matchClass(pattern, c)
	case '\\':
		if len(pattern) > 1 {
			return 2, pattern[1] == c
		}
	}
	return 1, pattern[0] == c
}

// matchClass matches c against "[…]". If ']' is missing, the class ends with the pattern.
func matchClass(pattern string, c byte) (n int, ok bool) {
	i := 1
	not := i < len(pattern) && pattern[i] == '^'
	if not {
		i++
	}
	for ; i < len(pattern) && pattern[i] != ']'; i++ {
		switch {
		case pattern[i] == '\\' && i+1 < len(pattern):
			i++
			ok = ok || pattern[i] == c
		case i+2 < len(pattern) && pattern[i+1] == '-':
			from, to := pattern[i], pattern[i+2]
			ok = ok || min(from, to) <= c && c <= max(from, to)
			i += 2
		default:
			ok = ok || pattern[i] == c
		}
	}
	return min(i+1, len(pattern)), ok != not
}
