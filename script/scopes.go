package script

// scopes tracks the local variables during a walk of a syntax tree, and which of them closures
// capture.
type scopes struct {
	blocks   []block
	function int                      // nesting level of the current function
	declared map[string][]declaration // visible variables by name, the innermost last
	count    int                      // number of declarations so far

	usage []usage // by number of the declaration, in the order of the source
}

// usage says whether a closure captures a variable, and whether the script assigns to it after its
// declaration.
type usage struct{ captured, assigned bool }

// block is a scope. The compiler closes the captured variables of a block together.
type block struct {
	names    []string
	function int
	loop     bool
	captured bool // a closure captures one of its variables
	closes   bool // of a loop: some break leaves an inner block with captured variables
}

// declaration says where a name was declared.
type declaration struct{ block, function, number int }

func (s *scopes) open(loop bool) {
	s.blocks = append(s.blocks, block{function: s.function, loop: loop})
}

// close ends the innermost scope and returns its block.
func (s *scopes) close() block {
	last := len(s.blocks) - 1
	b := s.blocks[last]
	s.blocks = s.blocks[:last]
	for _, name := range b.names {
		s.declared[name] = s.declared[name][:len(s.declared[name])-1]
	}
	return b
}

func (s *scopes) openFunction() {
	s.function++
	s.open(false)
}

func (s *scopes) closeFunction() {
	s.close()
	s.function--
}

func (s *scopes) declare(name string) (boxed bool) {
	if s.declared == nil {
		s.declared = map[string][]declaration{}
	}
	last := len(s.blocks) - 1
	s.declared[name] = append(s.declared[name], declaration{last, s.function, s.count})
	s.blocks[last].names = append(s.blocks[last].names, name)
	s.count++
	if s.count > len(s.usage) {
		s.usage = append(s.usage, usage{})
	}
	return s.needsBox(s.count - 1)
}

// needsBox reports whether a variable needs a box (capture.go).
func (s *scopes) needsBox(number int) bool {
	return s.usage[number].captured && s.usage[number].assigned
}

// use records a use of a name, and reports whether its variable has a box.
func (s *scopes) use(name string) (boxed bool) {
	v, ok := s.find(name)
	if !ok {
		return false
	}
	if v.function != s.function {
		s.blocks[v.block].captured = true
		s.usage[v.number].captured = true
	}
	return s.needsBox(v.number)
}

func (s *scopes) assign(name string) {
	if v, ok := s.find(name); ok {
		s.usage[v.number].assigned = true
	}
}

// isLocal reports whether a name is a local variable of the current function, with or without a
// box.
func (s *scopes) isLocal(name string, boxed bool) bool {
	v, ok := s.find(name)
	return ok && v.function == s.function && s.needsBox(v.number) == boxed
}

// hasBox reports whether a name is a boxed variable of any function.
func (s *scopes) hasBox(name string) bool {
	v, ok := s.find(name)
	return ok && s.needsBox(v.number)
}

func (s *scopes) find(name string) (declaration, bool) {
	all := s.declared[name]
	if len(all) == 0 {
		return declaration{}, false
	}
	return all[len(all)-1], true
}

// breakLoop records a break. The compiler closes captured variables at a break only if the loop's
// own block has some.
func (s *scopes) breakLoop() {
	captured := false
	for i := len(s.blocks) - 1; i >= 0 && s.blocks[i].function == s.function; i-- {
		b := &s.blocks[i]
		if b.loop {
			b.closes = b.closes || captured
			return
		}
		captured = captured || b.captured
	}
}
