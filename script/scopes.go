package script

// scopes knows, while one goes through a syntax tree, which names are local variables there, and which
// of these a function inside has captured.
type scopes struct {
	blocks   []block
	function int                      // how many functions are open inside each other
	declared map[string][]declaration // the variables of a name that are in scope, the innermost last
	count    int                      // of declarations until here

	usage []usage // of the variable of each declaration, in the order of the source
}

// usage is what becomes of a variable: whether a function inside captures it, and whether it is
// assigned to after its declaration.
type usage struct{ captured, assigned bool }

// block is a scope. The compiler closes captured variables for a block as a whole, so more need
// not be known of them.
type block struct {
	names    []string
	function int
	loop     bool
	captured bool
	closes   bool // of a loop: a break leaves blocks inside it that have captured variables
}

// declaration is where a name was declared.
type declaration struct{ block, function, number int }

func (s *scopes) open(loop bool) {
	s.blocks = append(s.blocks, block{function: s.function, loop: loop})
}

// close ends the innermost scope and returns what is known of it.
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

// needsBox reports whether the variable of a declaration does, see capture.go.
func (s *scopes) needsBox(number int) bool {
	return s.usage[number].captured && s.usage[number].assigned
}

// use notes that a name is used here, and reports whether its variable has a box.
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

// assign notes that a name is assigned to here.
func (s *scopes) assign(name string) {
	if v, ok := s.find(name); ok {
		s.usage[v.number].assigned = true
	}
}

// isLocal reports whether a name is a local variable of the function that is open, and has a box or has none.
func (s *scopes) isLocal(name string, boxed bool) bool {
	v, ok := s.find(name)
	return ok && v.function == s.function && s.needsBox(v.number) == boxed
}

// hasBox reports whether a name is a variable of any function that has a box.
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

// breakLoop notes a break here. The compiler closes captured variables at a break only if the
// loop's own block has some.
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
